//! Logs that go to a daemon: syslog by its socket, UDP and TCP, the journal, what becomes of lines while the daemon is
//! away, and rsyslog as people have it.

mod running;

use running::{Folder, Server, WAIT, wait_for};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::io::{IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};
use tidegate_http::HttpDate;

fn bind(path: &Path) -> UnixDatagram {
    let socket = UnixDatagram::bind(path).unwrap();
    socket.set_read_timeout(Some(WAIT)).unwrap();
    // Server processes may be another user's.
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    socket
}

/// The next datagram that holds `text`.
fn datagram(text: &str, mut receive: impl FnMut(&mut [u8]) -> std::io::Result<usize>) -> String {
    let mut buffer = vec![0; 70_000];
    loop {
        let count = receive(&mut buffer).unwrap_or_else(|error| panic!("no message with `{text}`: {error}"));
        let message = String::from_utf8(buffer[..count].to_vec()).unwrap();
        if message.contains(text) {
            return message;
        }
    }
}

/// The next message of a stream with counts that holds `text`.
fn counted(stream: &mut TcpStream, text: &str) -> String {
    stream.set_read_timeout(Some(WAIT)).unwrap();
    loop {
        let mut count = 0;
        loop {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            match byte[0] {
                b' ' => break,
                digit => {
                    count =
                        count * 10 + usize::from(digit.checked_sub(b'0').filter(|digit| *digit < 10).unwrap())
                }
            }
        }
        let mut message = vec![0; count];
        stream.read_exact(&mut message).unwrap();
        let message = String::from_utf8(message).unwrap();
        if message.contains(text) {
            return message;
        }
    }
}

#[test]
fn syslog_by_its_socket_as_it_comes_and_goes() {
    let folder = Folder::new("dev-log");
    let path = folder.path("log");
    let text = "workers 1\nlisten \"127.0.0.1:0\"\nuser \"www-data\"\nerror-log \"syslog:log\" facility=auth level=info\n\
        access-log \"syslog:log\" format=\"{method} {target} {status}\" facility=local7 tag=\"web\"\n\
        site { respond 200 \"x\"; route \"/files/*\" { root \".\" } }\n";
    let text = if rustix::process::geteuid().is_root() {
        text.to_owned()
    } else {
        text.replace("user \"www-data\"\n", "")
    };
    // Nobody is there yet: the server starts, and lines wait.
    let server = Server::with_config(&folder, &text);
    assert_eq!(server.body("/first"), "x");
    let daemon = bind(&path);
    let message = datagram("/first", |buffer| daemon.recv(buffer));
    // local7 is 23, informational 6.
    assert!(message.starts_with("<190>web[") && message.ends_with("]: GET /first 200"), "{message}");
    // What a server process has to say.
    running::get(&server.address, "/files/missing").unwrap_err();
    let message = datagram("GET /files/missing at", |buffer| daemon.recv(buffer));
    assert!(message.starts_with("<38>tidegate["), "{message}");
    // It is replaced.
    drop(daemon);
    std::fs::remove_file(&path).unwrap();
    let daemon = bind(&path);
    assert_eq!(server.body("/second"), "x");
    assert!(datagram("/second", |buffer| daemon.recv(buffer)).ends_with("GET /second 200"));
    // It is away while there is something to say.
    drop(daemon);
    std::fs::remove_file(&path).unwrap();
    for number in 0..100 {
        server.body(&format!("/away-{number}-"));
    }
    let daemon = bind(&path);
    for number in 0..100 {
        datagram(&format!("/away-{number}-"), |buffer| daemon.recv(buffer));
    }
    // A reload changes where lines go.
    let other = folder.path("other");
    let elsewhere = bind(&other);
    folder.write(
        "tidegate.kdl",
        &text.replace("syslog:log", "syslog:other").replace("facility=auth", "protocol=rfc5424"),
    );
    assert_eq!(server.tell(&["reload"]).code, Some(0));
    assert_eq!(server.body("/third"), "x");
    assert!(datagram("/third", |buffer| elsewhere.recv(buffer)).starts_with("<190>web["));
    running::get(&server.address, "/files/missing").unwrap_err();
    let message = datagram("GET /files/missing at", |buffer| elsewhere.recv(buffer));
    assert!(message.starts_with("<30>1 20") && message.contains(" - - "), "{message}");
}

#[test]
fn rfc_5424_over_udp() {
    let folder = Folder::new("udp");
    let daemon = UdpSocket::bind("127.0.0.1:0").unwrap();
    daemon.set_read_timeout(Some(WAIT)).unwrap();
    let address = daemon.local_addr().unwrap();
    let text = format!(
        "listen \"127.0.0.1:0\"\naccess-log \"syslog:udp://{address}\" format=\"{{method}} {{target}}\" facility=local0\n\
         site {{ respond 200 \"x\" }}\n"
    );
    let server = Server::with_config(&folder, &text);
    server.body("/a");
    let message = datagram("/a", |buffer| daemon.recv(buffer));
    let words: Vec<&str> = message.split(' ').collect();
    assert_eq!(
        (words[0], words[3], &words[5..]),
        ("<134>1", "tidegate", &["access", "-", "GET", "/a"][..]),
        "{message}"
    );
    assert!(words[1].ends_with('Z') && words[1].len() == 24 && !words[2].is_empty(), "{message}");
}

#[test]
fn counted_messages_over_tcp() {
    let folder = Folder::new("tcp");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let text = format!(
        "workers 1\nlisten \"127.0.0.1:0\"\naccess-log \"syslog:tcp://{address}\" format=\"{{method}} {{target}}\"\n\
         site {{ respond 200 \"x\" }}\n"
    );
    let mut server = Server::with_config(&folder, &text);
    server.body("/a");
    let mut stream = tidegate_testkit::accept(&listener, "the server");
    assert!(counted(&mut stream, "/a").ends_with(" access - GET /a"));
    for number in 0..300 {
        server.body(&format!("/b-{number}-"));
    }
    for number in 0..300 {
        counted(&mut stream, &format!("/b-{number}-"));
    }
    // The daemon restarts: lines go to the new connection.
    drop(stream);
    server.body("/c");
    let mut stream = tidegate_testkit::accept(&listener, "the server again");
    counted(&mut stream, "/c");
    // It is away, and refuses.
    drop((stream, listener));
    for number in 0..10 {
        server.body(&format!("/d-{number}-"));
    }
    server.line("cannot be written (Connection refused");
    let listener = TcpListener::bind(address).unwrap();
    let mut stream = tidegate_testkit::accept(&listener, "the server at last");
    for number in 0..10 {
        counted(&mut stream, &format!("/d-{number}-"));
    }
    drop(server);
}

/// The clock, as RFC 5424 messages have it.
fn now() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seconds = HttpDate(now.as_secs().try_into().unwrap()).rfc3339();
    format!("{}.{:03}Z", std::str::from_utf8(&seconds[..19]).unwrap(), now.subsec_millis())
}

/// Lines that wait for a daemon tell when they were made, and not when it has come back.
#[test]
fn lines_that_wait_keep_their_time() {
    let folder = Folder::new("late");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let text = format!(
        "workers 1\nlisten \"127.0.0.1:0\"\naccess-log \"syslog:tcp://{address}\" format=\"{{method}} {{target}}\"\n\
         site {{ respond 200 \"x\" }}\n"
    );
    // Long enough before for a clock that goes in steps of some milliseconds.
    let before = now();
    let mut server = Server::with_config(&folder, &text);
    server.body("/held");
    // Its line is there when the next request is served.
    server.body("/next");
    let after = now();
    server.line("cannot be written (Connection refused");
    wait_for(|| (now() > after).then_some(()), "the clock to go on");
    let listener = TcpListener::bind(address).unwrap();
    let mut stream = tidegate_testkit::accept(&listener, "the server at last");
    let message = counted(&mut stream, "/held");
    let time = message.split(' ').nth(1).unwrap();
    assert!(*before <= *time && *time <= *after, "{before} {after}: {message}");
}

/// One entry of the journal's protocol: a datagram, or sealed memory that comes with an empty one.
fn entry(journal: &UnixDatagram, text: &str) -> String {
    let mut buffer = vec![0; 300_000];
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received =
            recvmsg(journal, &mut [IoSliceMut::new(&mut buffer)], &mut control, RecvFlags::empty()).unwrap();
        let mut entry = buffer[..received.bytes].to_vec();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                for descriptor in descriptors {
                    let mut file = std::fs::File::from(descriptor);
                    std::io::Seek::rewind(&mut file).unwrap();
                    file.read_to_end(&mut entry).unwrap();
                }
            }
        }
        let entry = String::from_utf8(entry).unwrap();
        if entry.contains(text) {
            return entry;
        }
    }
}

#[test]
fn the_journal_gets_fields() {
    let folder = Folder::new("journal");
    let journal = bind(&folder.path("journal"));
    let text = "listen \"127.0.0.1:0\"\nrequest-id\nlimits { target-size \"512KiB\"; head-size \"1MiB\" }\n\
        error-log \"journald:journal\"\naccess-log \"journald:journal\" format=common tag=\"web\"\n\
        site { root \".\"; route \"/a*\" { respond 200 \"x\" } }\n";
    let server = Server::with_config(&folder, text);
    running::get(&server.address, "/missing").unwrap_err();
    let said = entry(&journal, "GET /missing at");
    assert!(said.starts_with("MESSAGE=404 for 127.0.0.1") && said.contains("\nPRIORITY=6\n"), "{said}");
    server.body("/a%0a?x=1");
    let said = entry(&journal, "/a%0a");
    let lines: Vec<&str> = said.lines().collect();
    for line in [
        "PRIORITY=6",
        "SYSLOG_FACILITY=3",
        "SYSLOG_IDENTIFIER=web",
        "CLIENT=127.0.0.1",
        "ROUTE=/a*",
        "METHOD=GET",
        "TARGET=/a%0a?x=1",
        "SCHEME=http",
        "STATUS=200",
        "BYTES=1",
    ] {
        assert!(lines.contains(&line), "{line}: {said}");
    }
    assert!(lines[0].starts_with("MESSAGE=127.0.0.1 - - ["), "{said}");
    assert!(lines.iter().any(|line| line.starts_with("REQUEST_ID=") && line.len() == 43), "{said}");
    assert!(lines.iter().all(|line| line.contains('=')), "{said}");
    // Larger than a datagram may be.
    let long = format!("/a{}", "b".repeat(400_000));
    server.body(&long);
    let said = entry(&journal, "/abbb");
    assert!(said.contains(&format!("\nTARGET={long}\n")) && said.contains("STATUS=200"));
}

struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What people have: rsyslog takes what `/dev/log` takes, and RFC 5424 over TCP.
#[test]
fn rsyslog_reads_it() {
    let Ok(version) = Command::new("rsyslogd").arg("-v").output() else {
        eprintln!("SKIPPED: rsyslogd is not installed (`cargo xtask tools` installs it)");
        return;
    };
    assert!(version.status.success());
    let folder = Folder::new("rsyslog");
    let (socket, out) = (folder.path("log"), folder.path("out"));
    let probe = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = probe.local_addr().unwrap().port();
    drop(probe);
    let conf = folder.write(
        "rsyslog.conf",
        &format!(
            "module(load=\"imuxsock\" SysSock.Use=\"off\")\nmodule(load=\"imtcp\")\n\
             input(type=\"imuxsock\" Socket=\"{}\")\ninput(type=\"imtcp\" port=\"{port}\" address=\"127.0.0.1\")\n\
             template(name=\"t\" type=\"string\" string=\"%syslogfacility-text%.%syslogseverity-text% %programname% %msgid%|%msg%\\n\")\n\
             action(type=\"omfile\" file=\"{}\" template=\"t\")\n",
            socket.display(),
            out.display()
        ),
    );
    let mut daemon = Command::new("rsyslogd");
    daemon.args(["-n", "-f", &conf, "-i"]).arg(folder.path("pid"));
    let daemon = daemon.stdout(Stdio::null()).stderr(Stdio::null()).spawn().map(Daemon).unwrap();
    let text = format!(
        "listen \"127.0.0.1:0\"\nerror-log \"syslog:log\" facility=local3\n\
         access-log \"syslog:tcp://127.0.0.1:{port}\" format=\"{{method}} {{target}} {{status}}\" facility=local7 tag=\"web\"\n\
         site {{ root \".\"; route \"/a\" {{ respond 200 \"x\" }} }}\nsite \"b.test\" {{ access-log \"syslog:log\" tag=\"b\"; respond 200 \"x\" }}\n"
    );
    let server = Server::with_config(&folder, &text);
    server.body("/a");
    let written = || std::fs::read_to_string(&out).unwrap_or_default();
    wait_for(|| written().contains("local7.info web access|GET /a 200\n").then_some(()), "the access line");
    running::get(&server.address, "/missing").unwrap_err();
    wait_for(
        || written().contains("local3.info tidegate -| 404 for 127.0.0.1").then_some(()),
        "the error log",
    );
    drop((server, daemon));
}
