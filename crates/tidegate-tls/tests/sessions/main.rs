//! Sessions against the client of rustls, over socket pairs, without threads and without waiting.

mod alerts;
mod certificates;
mod handshakes;
mod memory;
mod outgoing;
mod peer;
mod traffic;
