//! Content in both directions, through the engine itself: handlers that read it in every manner, and
//! responses of every kind. The product's own handlers are tested by transcripts.

mod busy;
mod client;
mod commits;
mod gates;
mod h2;
mod handlers;
mod logs;
mod pipelines;
mod requests;
mod responses;
mod scarce;
mod server;
mod turns;
