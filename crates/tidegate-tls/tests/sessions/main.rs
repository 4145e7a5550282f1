//! Sessions against the client of rustls, over socket pairs, without threads and without waiting.

mod certificates;
mod handshakes;
mod peer;
mod traffic;
