//! A directory for tests, in this process: one that answers, and ones that do whatever a broken one could.
//!
//! It knows `user0`, `user1` and so on, each with the password `pw` and the same number, in `dc=a`; names are the same in any case, and with
//! a full-width u.

use rasn_ldap::{
    AuthenticationChoice, BindResponse, Filter, LdapMessage, LdapResult, PartialAttribute, ProtocolOp,
    ResultCode, SearchResultDone, SearchResultEntry,
};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;
use tidegate_config::settings::{self, DirectorySecurity, DirectoryServer, Origin};

/// What a directory does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// What it should.
    Sound,
    /// It takes connections and says nothing.
    Silent,
    /// It closes every connection.
    Closing,
    /// It reads a request and closes.
    Hasty,
    /// It sends these bytes again and again, whatever it is asked.
    Babbling(&'static [u8]),
    /// It sends a byte of an answer now and then.
    Trickling,
    /// It finds entries without end.
    Endless,
    /// It finds one entry that is larger than any.
    Vast,
    /// It finds users, and takes for ever over their passwords.
    Slow,
    /// It answers something else than was asked.
    Confused,
    /// It answers every question with this.
    Refusing(ResultCode),
    /// It says that it begins and ends with each answer.
    Brief,
    /// It finds these groups, whose names are `g0` and so on, wherever groups of a user are searched for; of those in `ou=evil` it finds that
    /// they belong to `cn=top,ou=groups,dc=a`, whose name is `g0`.
    Grouping(&'static [&'static str]),
}

/// A directory.
pub struct Fake {
    pub port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    manner: Mutex<Option<Manner>>,
    connections: AtomicU64,
    open: AtomicU64,
    binds: AtomicU64,
    searches: AtomicU64,
    /// Whether binds are held up.
    held: Mutex<bool>,
    released: Condvar,
}

impl Fake {
    pub fn new(manner: Manner) -> Fake {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared { manner: Mutex::new(Some(manner)), ..Shared::default() });
        let own = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, shared) = (stream.unwrap(), own.clone());
                let Some(manner) = *shared.manner.lock().unwrap() else { return };
                shared.connections.fetch_add(1, SeqCst);
                shared.open.fetch_add(1, SeqCst);
                thread::spawn(move || {
                    let _ = stream.set_nodelay(true);
                    let _ = shared.serve(stream, manner);
                    shared.open.fetch_sub(1, SeqCst);
                });
            }
        });
        Fake { port, shared }
    }

    pub fn set(&self, manner: Manner) {
        *self.shared.manner.lock().unwrap() = Some(manner);
    }

    pub fn connections(&self) -> u64 {
        self.shared.connections.load(SeqCst)
    }

    pub fn open(&self) -> u64 {
        self.shared.open.load(SeqCst)
    }

    pub fn binds(&self) -> u64 {
        self.shared.binds.load(SeqCst)
    }

    pub fn searches(&self) -> u64 {
        self.shared.searches.load(SeqCst)
    }

    /// Holds up binds, or lets them go on.
    pub fn hold(&self, is_held: bool) {
        *self.shared.held.lock().unwrap() = is_held;
        self.shared.released.notify_all();
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        *self.shared.manner.lock().unwrap() = None;
        self.hold(false);
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

/// The settings of a directory with these servers.
pub fn settings(servers: &[&Fake]) -> settings::Directory {
    let server = |fake: &&Fake| DirectoryServer {
        url: format!("ldap://127.0.0.1:{}", fake.port),
        host: "127.0.0.1".into(),
        port: fake.port,
        security: DirectorySecurity::None,
    };
    settings::Directory {
        servers: servers.iter().map(server).collect(),
        base: "dc=a".into(),
        filter: settings::Filter::parse("(uid={user})").unwrap(),
        name: "uid".into(),
        bind: None,
        groups: None,
        timeout: Duration::from_millis(300),
        connections: 4,
        origin: Origin::default(),
    }
}

fn encoded(id: u32, operation: ProtocolOp) -> Vec<u8> {
    rasn::ber::encode(&LdapMessage::new(id, operation)).unwrap()
}

fn done(id: u32, code: ResultCode) -> Vec<u8> {
    let result = LdapResult::new(code, "".into(), "".into());
    encoded(id, ProtocolOp::SearchResDone(SearchResultDone(result)))
}

fn bound(id: u32, code: ResultCode) -> Vec<u8> {
    encoded(id, ProtocolOp::BindResponse(BindResponse::new(code, "".into(), "".into(), None, None)))
}

fn attribute(name: &str, value: Vec<u8>) -> PartialAttribute {
    PartialAttribute::new(name.into(), rasn::types::SetOf::from(vec![value.into()]))
}

fn groups(id: u32, dns: &[&str]) -> Vec<u8> {
    let group = |(at, dn): (usize, &&str)| {
        let attributes = vec![attribute("cn", format!("g{at}").into())];
        let entry = SearchResultEntry::new((*dn).to_owned().into(), attributes);
        encoded(id, ProtocolOp::SearchResEntry(entry))
    };
    let found = dns.iter().enumerate().flat_map(group);
    found.chain(done(id, ResultCode::Success)).collect()
}

fn entry(id: u32, name: &str, padding: usize) -> Vec<u8> {
    let attributes = vec![attribute("uid", name.into()), attribute("note", vec![b'x'; padding])];
    encoded(
        id,
        ProtocolOp::SearchResEntry(SearchResultEntry::new(format!("uid={name},dc=a").into(), attributes)),
    )
}

impl Shared {
    fn serve(&self, mut stream: TcpStream, manner: Manner) -> std::io::Result<()> {
        let mut input = Vec::new();
        loop {
            match manner {
                Manner::Closing => return Ok(()),
                Manner::Babbling(bytes) => {
                    stream.write_all(bytes)?;
                    continue;
                }
                _ => {}
            }
            let mut buffer = [0; 4096];
            let message: LdapMessage = loop {
                if let Ok(Some(length)) = super::directory::message_length(&input) {
                    let message = rasn::ber::decode(&input[..length]).unwrap();
                    input.drain(..length);
                    break message;
                }
                match stream.read(&mut buffer)? {
                    0 => return Ok(()),
                    count => input.extend_from_slice(&buffer[..count]),
                }
            };
            let id = message.message_id;
            let answer = match (manner, message.protocol_op) {
                (_, ProtocolOp::UnbindRequest(_)) => return Ok(()),
                (Manner::Silent, _) => continue,
                (Manner::Hasty, _) => return Ok(()),
                (Manner::Trickling, _) => {
                    for byte in [&[0x30, 0x84, 0, 1, 0, 0][..], &[0; 60_000]].concat() {
                        stream.write_all(&[byte])?;
                        thread::park_timeout(Duration::from_millis(5));
                    }
                    return Ok(());
                }
                (Manner::Endless, ProtocolOp::SearchRequest(_)) => loop {
                    stream.write_all(&entry(id, "user1", 0))?;
                },
                (Manner::Vast, ProtocolOp::SearchRequest(_)) => entry(id, "user1", 2 << 20),
                (Manner::Confused, ProtocolOp::SearchRequest(_)) => bound(id, ResultCode::Success),
                (Manner::Confused, _) => bound(id + 1, ResultCode::Success),
                (Manner::Refusing(code), ProtocolOp::SearchRequest(_)) => done(id, code),
                (Manner::Refusing(code), _) => bound(id, code),
                (_, ProtocolOp::SearchRequest(request)) => {
                    self.searches.fetch_add(1, SeqCst);
                    let Filter::EqualityMatch(asked) = request.filter else { panic!("another filter") };
                    if let (Manner::Grouping(dns), "member") = (manner, asked.attribute_desc.0.as_str()) {
                        let of = String::from_utf8_lossy(&asked.assertion_value);
                        let dns = match (of.starts_with("uid="), of.contains("ou=evil")) {
                            (true, _) => dns,
                            (false, true) => &["cn=top,ou=groups,dc=a"],
                            (false, false) => &[][..],
                        };
                        stream.write_all(&groups(id, dns))?;
                        continue;
                    }
                    let name = String::from_utf8_lossy(&asked.assertion_value)
                        .to_lowercase()
                        .replace('\u{ff55}', "u");
                    match name.strip_prefix("user").and_then(|number| number.parse::<u32>().ok()) {
                        Some(_) => [entry(id, &name, 0), done(id, ResultCode::Success)].concat(),
                        None => done(id, ResultCode::Success),
                    }
                }
                (Manner::Slow, ProtocolOp::BindRequest(_)) => continue,
                (_, ProtocolOp::BindRequest(request)) => {
                    self.binds.fetch_add(1, SeqCst);
                    let held = self.held.lock().unwrap();
                    drop(self.released.wait_while(held, |held| *held).unwrap());
                    let AuthenticationChoice::Simple(password) = request.authentication else {
                        panic!("another way to log in")
                    };
                    let number =
                        request.name.strip_prefix("uid=user").and_then(|rest| rest.split(',').next());
                    let expected = number.map(|number| format!("pw{number}"));
                    match expected.is_some_and(|expected| expected.as_bytes() == &*password) {
                        true => bound(id, ResultCode::Success),
                        false => bound(id, ResultCode::InvalidCredentials),
                    }
                }
                (_, other) => panic!("{other:?}"),
            };
            stream.write_all(&answer)?;
            if manner == Manner::Brief {
                return Ok(());
            }
        }
    }
}
