//! Settings that cannot be taken up after all: what was in force stays in force (FAULTS 67).

use crate::client::Client;
use crate::server::{PATIENCE, Server, settings};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::channel;
use tidegate_config::settings::ListenAddress;
use tidegate_core::listen::Listener;
use tidegate_core::worker::Command;

#[test]
fn a_worker_goes_on_listening_where_new_listeners_cannot_be_watched() {
    let server = Server::start("");
    let before = server.address;
    // The poller takes no regular files (EPERM), and the socket in front of it has been added by then.
    let socket: OwnedFd = std::net::TcpListener::bind("127.0.0.1:0").unwrap().into();
    let file: OwnedFd = std::fs::File::open("/proc/self/exe").unwrap().into();
    let listener = |fd| Listener { fd, address: ListenAddress::Tcp(before) };
    let (sender, reply) = channel();
    let next = Arc::new(settings("limits { body-size \"1KiB\" }"));
    let listeners = vec![listener(socket), listener(file)];
    server.handle.send(Command::Prepare(next, Some(listeners), sender));
    reply.recv_timeout(PATIENCE).unwrap().unwrap();
    let (sender, reply) = channel();
    server.handle.send(Command::Commit(sender));
    reply.recv_timeout(PATIENCE).unwrap().unwrap_err();

    // The old listeners are there, and so are the old settings.
    let mut client = Client::connect(&server);
    client.send("POST /count HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\n\r\n");
    client.send([b'a'; 2000]);
    assert_eq!(client.answer().body, b"2000 of Some(2000)");
}
