//! How connections end: with all of their last answer, whatever the client does meanwhile.

mod running;

use running::{Folder, Server, WAIT, site, wait_for};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
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

/// Connects with room for few bytes, so that the rest of a long answer waits in the server's kernel.
fn connect_with_little_room(address: &str) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let address: SocketAddr = address.parse().unwrap();
    socket.connect(&address.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(WAIT)).unwrap();
    stream
}

/// A client that has asked for the end and says something more all the same gets all of its answer, whether the kernel takes
/// that in one call or in several.
#[test]
fn a_long_answer_is_delivered_whatever_comes_behind_the_last_request() {
    for length in [50_000, 100_000, 200_000, 1_000_000] {
        deliver_whatever_comes(length);
    }
}

fn deliver_whatever_comes(length: usize) {
    let folder = Folder::new(&format!("ends-long-{length}"));
    fs::create_dir_all(folder.path("www")).unwrap();
    fs::write(folder.path("www/f"), vec![7; length]).unwrap();
    let server = Server::with_config(&folder, "workers 1\nlisten \"127.0.0.1:0\"\nsite { root \"www\" }\n");
    let mut stream = connect_with_little_room(&server.address);
    stream.write_all(b"GET /f HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    // What does not fit into the kernel waits for the client, who reads all but the end.
    let mut answer = vec![0; length.saturating_sub(100_000)];
    stream.read_exact(&mut answer).unwrap();
    wait_for(|| (server.status()["stats"]["responses"]["2xx"] == 1).then_some(()), "the answer");
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    stream.read_to_end(&mut answer).unwrap();
    let head = answer.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    assert_eq!(answer.len() - head, length);
}

/// What a client gets that does not read while the server ends, and sends `more` meanwhile.
fn answer_at_the_end(folder: &Folder, listen: &str, request: &[u8], more: &[u8]) -> Vec<u8> {
    fs::create_dir_all(folder.path("www")).unwrap();
    fs::write(folder.path("www/f"), vec![7; 200_000]).unwrap();
    let settings = format!("workers 1\nlisten \"127.0.0.1:0\" {listen}\nsite {{ root \"www\" }}\n");
    let server = Server::with_config(folder, &settings);
    let mut stream = connect_with_little_room(&server.address);
    stream.write_all(request).unwrap();
    wait_for(|| (server.status()["stats"]["responses"]["2xx"] == 1).then_some(()), "the answer");
    server.signal(Signal::TERM);
    wait_for(|| TcpStream::connect(&server.address).is_err().then_some(()), "the end of listening");
    stream.write_all(more).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer
}

/// A server that ends leaves no answer behind that its client has not got, whatever that sends meanwhile.
#[test]
fn an_answer_that_the_kernel_has_is_in_flight() {
    let request = b"GET /f HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let answer = answer_at_the_end(&Folder::new("ends-delivered"), "", request, request);
    let head = answer.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    assert_eq!(answer.len() - head, 200_000);
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    [&[0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream][..], payload].concat()
}

/// Opens a connection of HTTP/2 for more than is sent, and asks for `/f`.
fn request_over_http2() -> Vec<u8> {
    let window = 0x7fff_0000_u32.to_be_bytes();
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(4, 0, 0, &[&[0, 4][..], &window].concat()), // SETTINGS_INITIAL_WINDOW_SIZE
        frame(8, 0, 0, &window),                          // WINDOW_UPDATE
        frame(1, 5, 1, b"\x82\x86\x41\x09localhost\x44\x02/f"), // HEADERS: END_STREAM, END_HEADERS
    ]
    .concat()
}

/// Bytes of content in whole frames, of which the last is a GOAWAY.
fn content_of_frames(answer: &[u8]) -> usize {
    let (mut rest, mut content, mut last) = (answer, 0, 0);
    while let [a, b, c, kind, _, _, _, _, _, payload @ ..] = rest {
        let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        content += if *kind == 0 { length } else { 0 };
        rest = payload.get(length..).expect("a frame is whole");
        last = *kind;
    }
    assert_eq!((rest.len(), last), (0, 7), "the client is told");
    content
}

#[test]
fn so_is_one_over_http2() {
    let ping = frame(6, 0, 0, &[0; 8]);
    let answer =
        answer_at_the_end(&Folder::new("ends-delivered-h2"), "{ h2c }", &request_over_http2(), &ping);
    assert_eq!(content_of_frames(&answer), 200_000);
}

/// A client of HTTP/2 opens windows as it reads. Where a closed socket answered those with a reset, it could write no more and would
/// give up what it has not read, though its kernel has acknowledged all of it.
#[test]
fn a_client_that_opens_windows_reads_all_that_was_sent_before_it_was_closed() {
    for (limits, ended) in [
        ("keep-alive-connections 1", "keep_alive_flushes"),
        ("keep-alive-timeout \"100ms\"", "keep_alive_timeouts"),
    ] {
        read_while_it_closes(limits, ended);
    }
}

/// Who says something and asks for nothing is as idle as who says nothing, in whichever pieces that comes.
#[test]
fn a_client_that_only_pings_is_idle() {
    // Whatever comes together with the ticks of the server's clock.
    const AT_ONCE: usize = 30;
    let folder = Folder::new("ends-pings");
    let settings = "workers 1\nlisten \"127.0.0.1:0\" { h2c }\nlimits { keep-alive-timeout \"300ms\"; linger-timeout \"300ms\" }\nsite { respond 200 }\n";
    let server = Server::with_config(&folder, settings);
    std::thread::scope(|scope| {
        for number in 0..AT_ONCE {
            let address = &server.address;
            scope.spawn(move || ping_until_it_closes(address, [9, 9, 17][number % 3]));
        }
    });
    assert_eq!(server.status()["stats"]["keep_alive_timeouts"], AT_ONCE);
}

/// In pieces of so many bytes.
fn ping_until_it_closes(address: &str, piece: usize) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&[&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, &[])].concat()).unwrap();
    // Far shorter than what it is closed after, and too long for a flood.
    stream.set_read_timeout(Some(std::time::Duration::from_millis(50))).unwrap();
    let ping = frame(6, 0, 0, &[0; 8]);
    let mut pieces = ping.chunks(piece).cycle();
    let is_closed = || match stream.read(&mut [0; 1000]) {
        Ok(count) => (count == 0).then_some(()),
        Err(_) => stream.write_all(pieces.next()?).err().map(drop),
    };
    wait_for(is_closed, "the end of what is idle");
}

fn read_while_it_closes(limits: &str, ended: &str) {
    const LENGTH: usize = 50_000;
    let folder = Folder::new(&format!("ends-unread-{ended}"));
    fs::create_dir_all(folder.path("www")).unwrap();
    fs::write(folder.path("www/f"), vec![7; LENGTH]).unwrap();
    let settings = format!(
        "workers 1\nlisten \"127.0.0.1:0\" {{ h2c }}\nlimits {{ {limits} }}\nsite {{ root \"www\" }}\n"
    );
    let server = Server::with_config(&folder, &settings);
    let mut slow = TcpStream::connect(&server.address).unwrap();
    slow.set_read_timeout(Some(WAIT)).unwrap();
    slow.write_all(&request_over_http2()).unwrap();
    wait_for(|| (server.status()["stats"]["responses"]["2xx"] == 1).then_some(()), "the answer");
    // Those that have to be there for another to be one too many.
    let _others: Vec<TcpStream> = (0..2)
        .map(|_| {
            let mut other = TcpStream::connect(&server.address).unwrap();
            other.write_all(b"GET /f HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            other.read_exact(&mut [0; LENGTH]).unwrap();
            other
        })
        .collect();
    wait_for(|| (server.status()["stats"][ended].as_u64()? > 0).then_some(()), "the end of what is idle");
    let mut answer = Vec::new();
    loop {
        let mut piece = [0; 1000];
        let count = slow.read(&mut piece).unwrap();
        if count == 0 {
            break;
        }
        answer.extend_from_slice(&piece[..count]);
        slow.write_all(&frame(8, 0, 0, &(count as u32).to_be_bytes()))
            .expect("it may still say that it reads");
    }
    assert_eq!(content_of_frames(&answer), LENGTH);
}

/// The last answer on a connection says so (RFC 9112 section 9.6), though it was not known when the request came.
#[test]
fn an_answer_that_comes_while_the_server_ends_tells_the_client() {
    let folder = Folder::new("ends-told");
    let application = UnixListener::bind(folder.path("app.sock")).unwrap();
    let settings = "workers 1\nlisten \"127.0.0.1:0\"\nsite { proxy \"http://unix:app.sock\" }\n";
    let server = Server::with_config(&folder, settings);
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(WAIT)).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let (mut asked, _) = application.accept().unwrap();
    assert!(asked.read(&mut [0; 1000]).unwrap() > 0);
    server.signal(Signal::TERM);
    wait_for(|| TcpStream::connect(&server.address).is_err().then_some(()), "the end of listening");
    asked.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("\r\nConnection: close\r\n") && answer.ends_with("\r\n\r\nhello"), "{answer}");
}

/// An application on a unix socket that reads a little of each request, answers and closes: the rest it leaves unread.
fn hasty_application(socket: &Path, answer: &'static [u8]) {
    let listener = UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        for mut asked in listener.incoming().map_while(Result::ok) {
            let _ = asked.read(&mut [0; 90]);
            let _ = asked.write_all(answer);
        }
    });
}

/// Who answers without reading all of the request has answered (RFC 3875, section 4.2; RFC 9112, section 9.5).
#[test]
fn an_answer_is_one_though_the_request_was_not_read() {
    let folder = Folder::new("ends-hasty");
    fs::create_dir_all(folder.path("www")).unwrap();
    folder.write("www/script", "#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\n\\r\\nanswer'\n");
    fs::set_permissions(folder.path("www/script"), Permissions::from_mode(0o755)).unwrap();
    hasty_application(&folder.path("scgi.sock"), b"Content-Type: text/plain\r\n\r\nanswer");
    hasty_application(&folder.path("http.sock"), b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nanswer");
    let settings = "workers 1\nlisten \"127.0.0.1:0\"\nsite {\n root \"www\"\n\
                    route \"/script\" { cgi }\n\
                    route \"/scgi\" { scgi \"unix:scgi.sock\" { mount \"/\" } }\n\
                    route \"/http\" { proxy \"http://unix:http.sock\" }\n}\n";
    let server = Server::with_config(&folder, settings);
    for (path, length) in
        [("script", 4), ("script", 70_000), ("scgi", 5_000), ("scgi", 60_000), ("http", 1_000_000)]
    {
        for _ in 0..10 {
            let mut stream = TcpStream::connect(&server.address).unwrap();
            stream.set_read_timeout(Some(WAIT)).unwrap();
            let head = format!(
                "POST /{path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
            );
            // The server may have heard enough before it has all.
            let _ = stream.write_all(&[head.as_bytes(), &vec![b'x'; length]].concat());
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            let answer = String::from_utf8_lossy(&answer);
            let is_whole = answer.ends_with("answer") || answer.ends_with("answer\r\n0\r\n\r\n");
            assert!(answer.starts_with("HTTP/1.1 200 ") && is_whole, "{path} {length}: {answer}");
        }
    }
}
