//! Requests, as many as asked, for `cargo xtask bench instructions`: from the bytes of a request on a socket to
//! the bytes of its answer, for a cached file or by an application that answers from the same thread. Or events, as many
//! as asked: from the bytes of the application to those of the client, on a stream of HTTP/2. Or a cached file over
//! HTTP/2, asked for 32 times at once. Or what a cache has stored of an application.
//!
//! `requests cached|logged|browser|unchanged|h2|fastcgi|proxy|stored|stored-64k|event|event-beside N`

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tidegate_config::settings::{AccessFormat, AccessLog, LogTarget};
use tidegate_core::solo::Solo;
use tidegate_http::FieldLines;
use tidegate_io::socket::Stream;
use tidegate_modules::solo::solo;
use tidegate_wire::h2;

const PLAIN: &str = "GET /small.bin HTTP/1.1\r\nHost: localhost\r\n\r\n";
const BROWSER: &str = "GET /small.bin HTTP/1.1\r\nHost: localhost\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
    Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\nAccept-Language: en-US,en;q=0.5\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\nConnection: keep-alive\r\n\
    Referer: http://localhost/\r\nSec-Fetch-Mode: no-cors\r\n\r\n";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, what, count] = arguments.as_slice() else {
        return Err("see the head of this example for what there is".into());
    };
    let count: u64 = count.parse()?;
    let folder = std::env::temp_dir().join(format!("tidegate-instructions-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let result = match what.as_str() {
        "fastcgi" | "proxy" => run_application(&folder, what, count),
        "stored" => run_stored(&folder, 1 << 10, count),
        "stored-64k" => run_stored(&folder, 64 << 10, count),
        "h2" => run_streams(&folder, count),
        "event" => run_events(&folder, 0, count),
        "event-beside" => run_events(&folder, 90, count),
        _ => run(&folder, what, count),
    };
    std::fs::remove_dir_all(&folder)?;
    result
}

fn run(folder: &Path, what: &str, count: u64) -> Result<(), Box<dyn std::error::Error>> {
    std::fs::write(folder.join("small.bin"), [7; 1024])?;
    let mut settings = tidegate_config::from_folder(folder, &[]).map_err(|_| "the folder's settings")?;
    settings.file_cache.max_age = Duration::from_secs(3600); // however slow the counting is
    if what == "logged" {
        settings.access_log = Some(AccessLog {
            target: LogTarget::File("/dev/null".into()),
            format: AccessFormat::Combined,
            only_errors: false,
        });
    }
    let (mut client, server) = UnixStream::pair()?;
    server.set_nonblocking(true)?;
    let mut solo = solo(&Arc::new(settings), Stream::new(server.into()))?;
    let mut buffer = [0; 4096];
    let mut exchange = |request: &str| -> std::io::Result<usize> {
        client.write_all(request.as_bytes())?;
        solo.on_readable()?;
        client.read(&mut buffer)
    };
    // Twice: the first look-up begins to watch the folder, and may find it changed.
    for _ in 0..2 {
        assert!(exchange(PLAIN)? > 1024, "the file is served");
    }
    let request = match what {
        "browser" => BROWSER.to_owned(),
        "unchanged" => {
            PLAIN.replace("\r\n\r\n", "\r\nIf-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT\r\n\r\n")
        }
        _ => PLAIN.to_owned(),
    };
    for _ in 0..count {
        exchange(&request)?;
    }
    Ok(())
}

/// A cached file over HTTP/2, on 32 streams at a time. What the client does costs next to nothing: its requests are
/// four bytes each, and it reads past the answers.
fn run_streams(folder: &Path, count: u64) -> Result<(), Box<dyn std::error::Error>> {
    const AT_ONCE: u32 = 32;
    // GET, http, and what comes second is the path and the authority of the table.
    const FIRST: &[u8] = b"\x82\x86\x41\x09localhost\x44\x0a/small.bin";
    const AGAIN: &[u8] = b"\x82\x86\xbe\xbf";
    std::fs::write(folder.join("small.bin"), [7; 1024])?;
    let text = format!(
        "listen \"127.0.0.1:1\" {{ h2c }}\naccess-log off\nsite {{ root \"{}\" }}\n",
        folder.display()
    );
    let loaded = tidegate_config::load_str("bench", &text, folder, &tidegate_config::ProcessEnvironment);
    let rendered = loaded.render(false);
    let mut settings = loaded.settings.ok_or(rendered)?;
    settings.file_cache.max_age = Duration::from_secs(3600);
    let (mut client, server) = UnixStream::pair()?;
    server.set_nonblocking(true)?;
    let mut solo = solo(&Arc::new(settings), Stream::new(server.into()))?;
    let mut out = h2::PREFACE.to_vec();
    let window = (1u32 << 31) - 1;
    let settings = [&[0, 4][..], &window.to_be_bytes()].concat(); // INITIAL_WINDOW_SIZE
    h2::push_frame(&mut out, h2::FrameKind::SETTINGS, 0, 0, &settings);
    h2::push_frame(&mut out, h2::FrameKind::WINDOW_UPDATE, 0, 0, &(window - 65_535).to_be_bytes());
    h2::push_frame(&mut out, h2::FrameKind::SETTINGS, h2::flag::ACK, 0, &[]);
    let mut buffer = vec![0; 256 << 10];
    let mut id = 1;
    let mut block = FIRST;
    for round in 0..2 + count / u64::from(AT_ONCE) {
        // The first look-up begins to watch the folder; the cache holds the file from the second on.
        for _ in 0..if round < 2 { 1 } else { AT_ONCE } {
            let flags = h2::flag::END_STREAM | h2::flag::END_HEADERS;
            h2::push_frame(&mut out, h2::FrameKind::HEADERS, flags, id, block);
            (id, block) = (id + 2, AGAIN);
        }
        client.write_all(&out)?;
        out.clear();
        solo.on_readable()?;
        let read = client.read(&mut buffer)?;
        assert!(round < 2 || read > 1024 * AT_ONCE as usize, "{AT_ONCE} files are served: {read}");
    }
    Ok(())
}

/// A client, and who serves it by these settings.
fn serving(folder: &Path, text: &str) -> Result<(UnixStream, Solo), Box<dyn std::error::Error>> {
    let loaded = tidegate_config::load_str("bench", text, folder, &tidegate_config::ProcessEnvironment);
    let rendered = loaded.render(false);
    let settings = loaded.settings.ok_or(rendered)?;
    let (client, server) = UnixStream::pair()?;
    server.set_nonblocking(true)?;
    Ok((client, solo(&Arc::new(settings), Stream::new(server.into()))?))
}

/// The same, answered by an application on a unix socket whose connection is kept.
fn run_application(folder: &Path, what: &str, count: u64) -> Result<(), Box<dyn std::error::Error>> {
    let socket = folder.join("application.sock");
    let listener = UnixListener::bind(&socket)?;
    let (action, answer) = match what {
        "fastcgi" => (format!("fastcgi \"unix:{}\" {{ mount \"/\" }}", socket.display()), fastcgi_answer()),
        _ => (
            format!("proxy \"unix:{}\"", socket.display()),
            [
                &b"HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nServer: application\r\n\
                Content-Type: application/octet-stream\r\nContent-Length: 1024\r\n\r\n"[..],
                &[7; 1024],
            ]
            .concat(),
        ),
    };
    let text = format!("listen \"127.0.0.1:1\"\naccess-log off\nsite {{ {action} }}\n");
    let (mut client, mut solo) = serving(folder, &text)?;
    let mut buffer = [0; 4096];
    let mut application = None;
    for _ in 0..count + 2 {
        client.write_all(PLAIN.as_bytes())?;
        solo.turn();
        let application = match &mut application {
            Some(application) => application,
            None => application.insert(listener.accept()?.0),
        };
        assert!(application.read(&mut buffer)? > 64, "the request is passed on");
        application.write_all(&answer)?;
        while solo.is_answering() {
            solo.wait(Duration::from_secs(10))?;
        }
        assert!(client.read(&mut buffer)? > 1024, "the answer is passed on");
    }
    Ok(())
}

/// What an application has answered once, out of the memory of a cache.
fn run_stored(folder: &Path, size: usize, count: u64) -> Result<(), Box<dyn std::error::Error>> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=86400\r\nETag: \"1\"\r\n\
         Content-Type: application/octet-stream\r\nContent-Length: {size}\r\n\r\n"
    );
    let socket = folder.join("application.sock");
    let listener = UnixListener::bind(&socket)?;
    let text = format!(
        "listen \"127.0.0.1:1\"\naccess-log off\ncache \"main\" {{ memory \"8MiB\" }}\n\
         site {{ cache \"main\"; proxy \"unix:{}\" }}\n",
        socket.display()
    );
    let (client, mut solo) = serving(folder, &text)?;
    let mut buffer = vec![0; 128 << 10];
    (&client).write_all(PLAIN.as_bytes())?;
    solo.turn();
    solo.wait(Duration::ZERO)?; // the fetch is a task of its own
    let mut application = listener.accept()?.0;
    assert!(application.read(&mut buffer)? > 64, "the request is passed on");
    application.write_all(&[head.as_bytes(), &vec![7; size]].concat())?;
    while solo.is_answering() {
        solo.wait(Duration::from_secs(10))?;
    }
    let mut answer = || {
        let mut len = 0;
        // The head is shorter than its content, and comes with it.
        while len <= size {
            len += (&client).read(&mut buffer)?;
        }
        Ok::<_, std::io::Error>(())
    };
    answer()?;
    for _ in 0..count {
        (&client).write_all(PLAIN.as_bytes())?;
        solo.on_readable()?;
        answer()?;
    }
    Ok(())
}

/// Events of 1 KiB on a stream of HTTP/2, beside so many other streams on which nothing happens.
fn run_events(folder: &Path, idle: usize, count: u64) -> Result<(), Box<dyn std::error::Error>> {
    let socket = folder.join("application.sock");
    let listener = UnixListener::bind(&socket)?;
    let text = format!(
        "listen \"127.0.0.1:1\" {{ h2c }}\naccess-log off\nsite {{ proxy \"unix:{}\" }}\n",
        socket.display()
    );
    let (client, mut solo) = serving(folder, &text)?;
    let mut client = EventClient::new(client)?;
    let mut applications = Vec::new();
    let mut buffer = [0; 4096];
    for _ in 0..=idle {
        client.ask()?;
        solo.turn();
        let mut application = listener.accept()?.0;
        assert!(application.read(&mut buffer)? > 64, "the request is passed on");
        application.write_all(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
        )?;
        applications.push(application);
        client.receive(&mut solo, 0)?;
    }
    let busy = applications.last_mut().ok_or("there is one")?;
    let event = [&b"400\r\n"[..], &[b'x'; 1024], b"\r\n"].concat();
    for _ in 0..count + 2 {
        busy.write_all(&event)?;
        client.receive(&mut solo, 1024)?;
    }
    Ok(())
}

/// A client of HTTP/2 that takes events.
struct EventClient {
    stream: UnixStream,
    wire: h2::Connection,
    section: h2::Section,
    out: Vec<u8>,
    input: Vec<u8>,
}

impl EventClient {
    fn new(stream: UnixStream) -> std::io::Result<EventClient> {
        stream.set_nonblocking(true)?;
        let mut out = Vec::new();
        let wire = h2::Connection::client(h2::Limits::default(), &mut out);
        Ok(EventClient { stream, wire, section: h2::Section::new(), out, input: Vec::new() })
    }

    fn ask(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        let parts = h2::RequestParts {
            method: "GET",
            scheme: "http",
            authority: "localhost",
            target: "/events",
            protocol: None,
            fields: h2::FieldSource::Lines(&FieldLines::new()),
            content_length: None,
        };
        self.wire.send_request(&parts, true, &mut self.out)?;
        self.flush()
    }

    fn flush(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        self.stream.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// Runs the server until a head, or so many bytes of content, have come.
    fn receive(&mut self, solo: &mut Solo, wanted: usize) -> Result<(), Box<dyn std::error::Error>> {
        let (mut has_head, mut content) = (false, 0);
        let mut buffer = [0; 4096];
        while content < wanted || (wanted == 0 && !has_head) {
            solo.wait(Duration::from_secs(10))?;
            match self.stream.read(&mut buffer) {
                Ok(count) => self.input.extend_from_slice(buffer.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error.into()),
            }
            let mut at = 0;
            loop {
                let input = self.input.get(at..).unwrap_or_default();
                let read = self.wire.read(input, 0, &mut self.section, &mut self.out)?;
                at += read.consumed;
                match read.event {
                    None => break,
                    Some(h2::Event::Response { .. }) => has_head = true,
                    Some(h2::Event::Data { stream, data, .. }) => {
                        content += data.len();
                        self.wire.release(stream, data.len(), &mut self.out);
                    }
                    Some(other) => return Err(format!("{other:?}").into()),
                }
            }
            self.input.drain(..at);
            if !self.out.is_empty() {
                self.flush()?;
                solo.turn();
            }
        }
        Ok(())
    }
}

/// 1 KiB in one record, and the end.
fn fastcgi_answer() -> Vec<u8> {
    let content =
        [&b"Content-Type: application/octet-stream\r\nContent-Length: 1024\r\n\r\n"[..], &[7; 1024]];
    let content = content.concat();
    let [high, low] = (content.len() as u16).to_be_bytes();
    let mut answer = vec![1, 6, 0, 1, high, low, 0, 0];
    answer.extend(content);
    answer.extend([1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    answer
}
