//! TLS over the processes that an operator has: sessions resume on every worker of every process, after one was
//! killed, after a reload and after an upgrade, and never at another site.

mod running;

use rcgen::{CertificateParams, KeyPair};
use running::{Folder, Server, WAIT, wait_for};
use rustix::process::{Signal, kill_process};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use tidegate_io::socket::Received;
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
