//! The store from outside: scenarios, properties, threads, memory.

mod allocations;
mod below;
mod collapse;
mod contents;
mod evictions;
mod model;
mod purges;
mod support;
mod threads;
mod variants;
