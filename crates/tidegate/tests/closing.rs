//! How connections end: with all of their last answer, whatever the client does meanwhile.

mod running;

use running::{Folder, Server, WAIT, site, wait_for};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

/// Where a connection ends with an answer, both leave in one segment: nobody sees the one without the other.
#[test]
fn an_answer_and_the_end_of_its_connection_come_together() {
    let folder = Folder::new("ends-together");
    let server = Server::with_config(&folder, &site("hello"));
    for _ in 0..100 {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        // Tried over and over: by the time that a thread is woken, a second segment has come as well.
        stream.set_nonblocking(true).unwrap();
        let deadline = Instant::now() + WAIT;
        while stream.peek(&mut [0]).is_err() {
            assert!(Instant::now() < deadline, "no answer");
        }
        let mut asked = [PollFd::new(&stream, PollFlags::RDHUP)];
        assert_eq!(poll(&mut asked, Some(&Timespec::default())), Ok(1), "an answer without the end");
        stream.set_nonblocking(false).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
    }
}

/// A server that ends leaves no answer behind that its client has not got, whatever that sends meanwhile.
#[test]
fn an_answer_that_the_kernel_has_is_in_flight() {
    let folder = Folder::new("ends-delivered");
    fs::create_dir_all(folder.path("www")).unwrap();
    fs::write(folder.path("www/f"), vec![7; 200_000]).unwrap();
    let server = Server::with_config(&folder, "workers 1\nlisten \"127.0.0.1:0\"\nsite { root \"www\" }\n");
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let address: std::net::SocketAddr = server.address.parse().unwrap();
    socket.connect(&address.into()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(WAIT)).unwrap();
    let request = b"GET /f HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request).unwrap();
    wait_for(|| (server.status()["stats"]["responses"]["2xx"] == 1).then_some(()), "the answer");
    server.signal(Signal::TERM);
    wait_for(|| TcpStream::connect(&server.address).is_err().then_some(()), "the end of listening");
    stream.write_all(request).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let head = answer.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    assert_eq!(answer.len() - head, 200_000);
}
