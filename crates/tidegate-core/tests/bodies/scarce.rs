//! While descriptors are short, the workers of a process accept one after the other.

use crate::client::Client;
use crate::server::Server;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tidegate_io::descriptors;
use tidegate_testkit::OverWhenDropped;

/// What a worker does for whom it has accepted, no other one waits for.
#[test]
fn a_first_request_keeps_no_other_worker_from_accepting() {
    let (one, other) = (Server::start(""), Server::start(""));
    let is_over = AtomicBool::new(false);
    descriptors::have_run_out();
    std::thread::scope(|scope| {
        let _over = OverWhenDropped(&is_over);
        let mut first = Client::connect(&one);
        first.send("GET /hold-up HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(one.told(), "held up");
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                descriptors::have_run_out(); // and stay short for as long as it takes
                std::thread::yield_now();
            }
        });
        assert_eq!(Client::connect(&other).get("/empty").status, 204);
        one.gate.open();
        assert_eq!(first.answer().body, b"late");
    });
}
