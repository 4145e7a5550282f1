//! TLS over the processes that an operator has: sessions resume on every worker of every process, after one was
//! killed, after a reload and after an upgrade, and never at another site.

mod running;

use rcgen::{CertificateParams, KeyPair};
use running::{Folder, Server, WAIT, wait_for};
use rustix::process::{Signal, kill_process};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;
use tidegate_io::socket::Received;
use tidegate_testkit::InTime;
use tidegate_tls::{Agreed, ClientSession, Connector, ConnectorOptions, Trust};

/// A visitor whose sessions are remembered.
struct Visitor {
    connector: Arc<Connector>,
    address: String,
}

impl Visitor {
    fn new(address: &str, tls13: bool) -> Visitor {
        let options = ConnectorOptions { tls12: !tls13, tls13, ..ConnectorOptions::new(Trust::Anybody) };
        Visitor { connector: Connector::new(&options).unwrap(), address: address.to_owned() }
    }

    /// One connection with one request to a site.
    fn visit(&self, name: &str) -> io::Result<(Agreed, String)> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(WAIT))?;
        let mut session = ClientSession::new(&self.connector, Connector::name(name).unwrap())?;
        let mut answer = Vec::new();
        let mut buffer = [0; 4096];
        let mut is_asked = false;
        loop {
            session.advance(|bytes| stream.write(bytes))?;
            if !session.is_handshaking() && !is_asked {
                is_asked = true;
                let request = format!("GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n");
                session.send(request.as_bytes(), |bytes| stream.write(bytes))?;
            }
            let received = session.receive(&mut buffer, |place| match stream.read(place)? {
                0 => Ok(Received::End),
                count => Ok(Received::Bytes { count, drained: true }),
            })?;
            match received {
                Received::Bytes { count, .. } => answer.extend_from_slice(&buffer[..count]),
                _ => break,
            }
        }
        let agreed = session.agreed().ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok((agreed, String::from_utf8_lossy(&answer).into_owned()))
    }

    /// Whether all of several visits were resumed.
    fn comes_back(&self, name: &str) -> bool {
        // The kernel spreads connections over the workers of all processes.
        (0..12).all(|_| {
            let (agreed, answer) = self.visit(name).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
            agreed.is_resumed
        })
    }
}

fn make_certificate(folder: &Folder) {
    let key = KeyPair::generate().unwrap();
    let names = vec!["a.test".to_owned(), "b.test".to_owned(), "c.test".to_owned()];
    let certificate = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    folder.write("site.pem", &certificate.pem());
    folder.write("site.key", &key.serialize_pem());
}

#[test]
fn sessions_resume_in_every_process_after_a_kill_a_reload_and_an_upgrade() {
    let folder = Folder::new("resumption");
    make_certificate(&folder);
    folder.write("ca.pem", &std::fs::read_to_string(folder.path("site.pem")).unwrap());
    let text = "workers 2\nprocesses 2\ndrain-timeout \"5s\"\nlisten \"127.0.0.1:0\"\n\
        listen \"127.0.0.1:0\" { tls certificate=\"site.pem\" key=\"site.key\" }\n\
        site \"a.test\" { respond 200 }\n\
        site \"b.test\" { respond 200 }\n\
        site \"c.test\" { respond 200; tls { client-certificates \"ca.pem\" mode=optional } }\n";
    let mut server = Server::with_config(&folder, text);
    let line = server.line("listening on https://");
    let address = line.rsplit("https://").next().unwrap().to_owned();
    let visitors = [Visitor::new(&address, true), Visitor::new(&address, false)];
    let mut full = 0;
    for visitor in &visitors {
        for name in ["a.test", "b.test", "c.test"] {
            assert!(!visitor.visit(name).unwrap().0.is_resumed, "a first visit to {name}");
            full += 1;
            assert!(visitor.comes_back(name), "{name}");
        }
    }
    let handshakes = server.status()["stats"]["tls_handshakes"].clone();
    assert_eq!((handshakes["full"].as_u64(), handshakes["resumed"].as_u64()), (Some(full), Some(full * 12)));
    assert_eq!(handshakes["refused"], 0);

    let killed = server.processes()[0];
    kill_process(killed, Signal::KILL).unwrap();
    wait_for(
        || (!server.processes().contains(&killed) && server.processes().len() == 2).then_some(()),
        "the next",
    );
    assert!(visitors.iter().all(|visitor| visitor.comes_back("a.test")), "after a kill");

    folder.write(
        "tidegate.kdl",
        &text.replace("site \"b.test\" { respond 200 }", "site \"b.test\" { respond 204 }"),
    );
    assert_eq!(server.tell(&["reload"]).code, Some(0));
    assert!(visitors.iter().all(|visitor| visitor.comes_back("a.test")), "after a reload");

    assert_eq!(server.tell(&["upgrade"]).code, Some(0));
    assert!(visitors.iter().all(|visitor| visitor.comes_back("a.test")), "after an upgrade");
}

/// FAULTS 53: what a client has shown one site, or need not have shown, is worth nothing at another, nor at the
/// same one under other rules.
#[test]
fn a_session_is_worth_nothing_under_other_rules() {
    let folder = Folder::new("rules");
    make_certificate(&folder);
    folder.write("ca.pem", &std::fs::read_to_string(folder.path("site.pem")).unwrap());
    let text = "workers 1\nlisten \"127.0.0.1:0\"\n\
        listen \"127.0.0.1:0\" { tls certificate=\"site.pem\" key=\"site.key\" }\n\
        site \"a.test\" { respond 200 }\n";
    let mut server = Server::with_config(&folder, text);
    let line = server.line("listening on https://");
    let address = line.rsplit("https://").next().unwrap().to_owned();
    let visitors = [Visitor::new(&address, true), Visitor::new(&address, false)];
    for visitor in &visitors {
        visitor.visit("a.test").unwrap();
        assert!(visitor.comes_back("a.test"));
    }
    let stricter = "respond 200; tls { client-certificates \"ca.pem\" }";
    folder.write("tidegate.kdl", &text.replace("respond 200", stricter));
    assert_eq!(server.tell(&["reload"]).code, Some(0));
    for visitor in &visitors {
        // The ticket is refused, and who then shows no certificate is refused as well.
        let outcome = visitor.visit("a.test");
        assert!(outcome.as_ref().map_or(true, |(_, answer)| answer.is_empty()), "{outcome:?}");
    }
    let status = server.status();
    assert_eq!(status["stats"]["tls_errors"]["client_certificate"], 2, "{status}");
}

/// A connection to a site that stays open.
struct Line {
    stream: TcpStream,
    session: ClientSession,
    heard: Vec<u8>,
}

impl Line {
    fn open(address: &str, name: &str) -> Line {
        let visitor = Visitor::new(address, true);
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(WAIT)).unwrap();
        stream.set_nodelay(true).unwrap();
        let session = ClientSession::new(&visitor.connector, Connector::name(name).unwrap()).unwrap();
        let mut line = Line { stream, session, heard: Vec::new() };
        while line.session.is_handshaking() {
            line.session.advance(|bytes| line.stream.write(bytes)).unwrap();
            if line.session.is_handshaking() {
                line.receive();
            }
        }
        line
    }

    /// Whether there may be more.
    fn receive(&mut self) -> bool {
        let mut buffer = [0; 4096];
        let read = |place: &mut [u8]| match self.stream.read(place)? {
            0 => Ok(Received::End),
            count => Ok(Received::Bytes { count, drained: true }),
        };
        match self.session.receive(&mut buffer, read).expect("an answer in time") {
            Received::Bytes { count, .. } => self.heard.extend_from_slice(&buffer[..count]),
            _ => return false,
        }
        true
    }

    fn say(&mut self, text: &str) {
        let sent = self.session.send(text.as_bytes(), |bytes| self.stream.write(bytes)).unwrap();
        assert_eq!(sent, text.len());
    }

    /// Waits for exactly this.
    fn hear(&mut self, text: &str) {
        while self.heard.len() < text.len() {
            assert!(self.receive(), "it ended after {:?}", String::from_utf8_lossy(&self.heard));
        }
        assert_eq!(String::from_utf8_lossy(&self.heard), text);
        self.heard.clear();
    }
}

/// Switches protocols, and answers each line with the same line, until the other side has closed.
fn echo(listener: std::net::TcpListener) -> std::thread::JoinHandle<usize> {
    use std::io::BufRead;
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        let mut lines = io::BufReader::new(stream.try_clone().unwrap());
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            lines.read_line(&mut line).unwrap();
        }
        let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        stream.write_all(switch.as_bytes()).unwrap();
        let mut count = 0;
        loop {
            line.clear();
            if lines.read_line(&mut line).unwrap() == 0 {
                return count;
            }
            stream.write_all(line.as_bytes()).unwrap();
            count += 1;
        }
    })
}

/// What is said either way arrives, before, during and after it; the connection may live for `drain-timeout`.
#[test]
fn a_websocket_over_tls_loses_nothing_in_an_upgrade() {
    let folder = Folder::new("upgrade-socket");
    make_certificate(&folder);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let text = format!(
        "workers 2\nprocesses 2\ndrain-timeout \"60s\"\nlisten \"127.0.0.1:0\"\n\
        listen \"127.0.0.1:0\" {{ tls certificate=\"site.pem\" key=\"site.key\" }}\n\
        site \"a.test\" {{ respond 200 \"old\"; route \"/socket\" {{ proxy \"http://{}\" }} }}\n",
        listener.local_addr().unwrap()
    );
    let backend = echo(listener);
    let mut server = Server::with_config(&folder, &text);
    let address = server.line("listening on https://").rsplit("https://").next().unwrap().to_owned();
    let before = server.processes();
    let mut line = Line::open(&address, "a.test");
    line.say(
        "GET /socket HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    while !line.heard.ends_with(b"\r\n\r\n") {
        assert!(line.receive());
    }
    assert!(line.heard.starts_with(b"HTTP/1.1 101 "), "{:?}", String::from_utf8_lossy(&line.heard));
    line.heard.clear();

    folder.write("tidegate.kdl", &text.replace("old", "new"));
    let control = server.control.clone().unwrap();
    let (is_over, mut said) = (std::sync::atomic::AtomicBool::new(false), 0);
    std::thread::scope(|scope| {
        let upgrade = scope.spawn(|| {
            let outcome = running::run(&folder, &["upgrade", "--control", &control]);
            is_over.store(true, std::sync::atomic::Ordering::SeqCst);
            outcome
        });
        // Before, during and after it.
        let mut left = 200;
        while left > 0 {
            left -= usize::from(is_over.load(std::sync::atomic::Ordering::SeqCst));
            let text = format!("line {said} {}\n", "x".repeat(said % 3000));
            line.say(&text);
            line.hear(&text);
            said += 1;
        }
        assert_eq!(upgrade.join().unwrap().code, Some(0));
    });
    assert!(said > 200);
    // Others are served by the new processes; the old master is there for this one alone.
    let (_, answer) = Visitor::new(&address, true).visit("a.test").unwrap();
    assert!(answer.ends_with("new"), "{answer}");
    assert!(server.processes().iter().all(|process| !before.contains(process)));
    assert!(server.child.try_wait().unwrap().is_none());
    line.say("last\n");
    line.hear("last\n");
    drop(line);
    assert_eq!(running::join(backend, "the application to end"), said + 1);
    assert!(server.wait().success());
}

/// A client that was given an address names no site: the address that it has connected to is what it means, also where
/// the site has a name beside it.
#[test]
fn who_connects_to_an_address_is_shown_the_certificate_of_that_address() {
    let folder = Folder::new("addresses");
    let text = "workers 1\nlisten \"127.0.0.1:0\"\nlisten \"127.0.0.1:0\" { tls }\nlisten \"127.0.0.2:0\" { tls }\n\
        listen \"[::1]:0\" { tls }\nacme { storage \"acme\" }\n\
        site \"first.internal\" { respond 200 \"first\" }\n\
        site \"localhost\" \"127.0.0.1\" \"::1\" \"127.0.0.2\" { respond 200 \"addresses\" }\n";
    let mut server = Server::with_config(&folder, text);
    let urls = [(); 3].map(|()| {
        let line = server.line("listening on https://");
        format!("https://{}/", line.rsplit("https://").next().unwrap())
    });
    for url in urls {
        let fetch = || {
            let root = folder.path("acme/local/root.pem");
            Command::new("curl").arg("-sS").arg("--cacert").arg(root).arg(&url).output_in_time()
        };
        // Its certificate may be on its way.
        let output = wait_for(|| Some(fetch()).filter(|output| output.status.success()), &url);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "addresses", "{url}");
    }
}

/// What is to be known of a certificate, and of a key that everybody may read, is in the log once, at the start, where the log is a
/// file: a reload says what is new.
#[test]
fn findings_are_in_the_log_and_not_twice() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("findings");
    make_certificate(&folder);
    std::fs::set_permissions(folder.path("site.key"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let text = "workers 1\nerror-log \"error.log\"\nlisten \"127.0.0.1:0\"\nlisten \"127.0.0.1:0\" { tls }\n\
                pool \"app\" { command \"sleep\" \"1000\"; processes min=0 }\n\
                site \"a.test\" { respond 200; route \"/x\" { scgi \"app\"; root \".\" }\n\
                tls { certificate \"site.pem\" key=\"site.key\" } }\n";
    let server = Server::with_config(&folder, text);
    let count = |what: &str| std::fs::read_to_string(folder.path("error.log")).unwrap().matches(what).count();
    let found = ["it is signed by itself", "may be read by everybody"];
    let has = |times: usize| (found.map(count) == [times; 2]).then_some(());
    wait_for(|| has(1), "a line for each at the start");
    assert_eq!(server.tell(&["reload"]).code, Some(0));
    wait_for(|| (count("revision 2 is in force") == 1).then_some(()), "the end of the reload");
    assert_eq!((found.map(count), count("2 warnings as before")), ([1, 1], 1));
}

/// Landlock knows no right to change modes: an application with the server's user can open a key to everybody that it can
/// neither read nor replace. That is said at once, such a key is not taken up, and what was read before serves on.
#[test]
fn a_key_that_somebody_opens_is_said_and_not_taken_up() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("tls-opened");
    let pair = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().self_signed(&key).unwrap();
        folder.write("site.pem", &certificate.pem());
        folder.write("site.key", &key.serialize_pem());
    };
    let mode = |mode: u32| {
        std::fs::set_permissions(folder.path("site.key"), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    pair("one.test");
    mode(0o600);
    let text = "listen \"127.0.0.1:0\" { tls certificate=\"site.pem\" key=\"site.key\" }\nlisten \"127.0.0.1:0\"\n\
                site { respond 200 \"fine\" }\n";
    let mut server = Server::with_config(&folder, text);
    let address =
        server.seen.iter().find_map(|line| Some(line.split_once("listening on https://")?.1.to_owned()));
    assert_eq!(server.tell(&["reload"]).code, Some(0));
    mode(0o644);
    server.line("was its owner's alone and can be read or changed by everybody now");
    let refused = server.tell(&["reload"]);
    assert_eq!(refused.code, Some(1), "{}", refused.stdout);
    assert!(refused.stderr.contains("have a new key made"), "{}", refused.stderr);
    assert!(refused.stderr.contains("stays in force"), "{}", refused.stderr);
    let visitor = Visitor::new(&address.unwrap(), true);
    assert!(visitor.visit("one.test").unwrap().1.ends_with("fine"));
    // A new one that is private is taken up.
    mode(0o600);
    pair("two.test");
    server.line("has changed and is in use");
    assert_eq!(server.tell(&["reload"]).code, Some(0));
}
