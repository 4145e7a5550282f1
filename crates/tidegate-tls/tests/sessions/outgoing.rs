//! The client's session against the server's: handshakes, any amount, resumption, whom to believe, the end.

use crate::peer::{Authority, terms, tickets};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use tidegate_io::socket::{Received, Stream};
use tidegate_tls::session::BUFFER_MIN;
use tidegate_tls::{
    CLIENT_BUFFER, Certificate, ClientPolicy, ClientSession, ClientSessionError, Connector, ConnectorOptions,
    Hello, Pair, Session, SiteConfig, Slot, Terms, Trust, TrustedRoots, Versions,
};

struct Both {
    client: ClientSession,
    socket: Stream,
    server: Session,
    stream: Stream,
    site: Arc<SiteConfig>,
    buffer: Vec<u8>,
    /// Bytes that the client has room for at once.
    room: usize,
    at_server: Vec<u8>,
    at_client: Vec<u8>,
    is_client_told: bool,
}

impl Both {
    fn new(connector: &Connector, name: &str, site: &Arc<SiteConfig>) -> Both {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        Both {
            client: ClientSession::new(connector, Connector::name(name).unwrap()).unwrap(),
            socket: Stream::new(ours.into()),
            server: Session::new(),
            stream: Stream::new(theirs.into()),
            site: site.clone(),
            buffer: vec![0; BUFFER_MIN.max(CLIENT_BUFFER)],
            room: CLIENT_BUFFER,
            at_server: Vec::new(),
            at_client: Vec::new(),
            is_client_told: false,
        }
    }

    fn turn(&mut self) -> Result<(), ClientSessionError> {
        let Both { client, socket, server, stream, site, buffer, room, .. } = self;
        client.advance(|bytes| socket.send(bytes, false))?;
        let mut choose = |_: &Hello| Some(site.clone());
        while let Ok(Received::Bytes { count, .. }) = server.receive(stream, buffer, &mut choose) {
            self.at_server.extend_from_slice(&buffer[..count]);
        }
        let _ = server.flush(stream);
        loop {
            match client.receive(&mut buffer[..*room], |place| socket.recv(place))? {
                Received::Bytes { count, .. } => self.at_client.extend_from_slice(&buffer[..count]),
                Received::End => {
                    self.is_client_told = true;
                    break;
                }
                Received::WouldBlock => break,
            }
        }
        client.advance(|bytes| socket.send(bytes, false))
    }

    fn settle(&mut self) -> Result<(), ClientSessionError> {
        (0..6).try_for_each(|_| self.turn())
    }
}

fn site(authority: &Authority) -> Arc<SiteConfig> {
    SiteConfig::new(&terms("a", vec![authority.slot(&["a.test"])]), &tickets()).unwrap()
}

fn trust(authority: &Authority) -> Trust {
    Trust::Roots(TrustedRoots::new("ca.pem", authority.pem.as_bytes()).unwrap())
}

#[test]
fn any_amount_arrives_whole_whatever_the_room() {
    let authority = Authority::new("ca");
    let site = site(&authority);
    let connector = Connector::new(&ConnectorOptions::new(trust(&authority))).unwrap();
    for room in [1000, CLIENT_BUFFER] {
        let mut both = Both::new(&connector, "a.test", &site);
        both.room = room;
        assert!(both.client.is_handshaking() && both.client.agreed().is_none());
        both.settle().unwrap();
        let agreed = both.client.agreed().unwrap();
        assert_eq!((agreed.version, agreed.suite), ("TLSv1.3", "TLS_AES_256_GCM_SHA384"));
        assert_eq!(both.client.protocol(), Some(&b"http/1.1"[..]));
        for length in [1, 16_384, 16_385, 300_000] {
            let data: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            both.at_client.clear();
            both.at_server.clear();
            let (mut to, mut from) = (0, 0);
            while to < length || from < length {
                to += both.client.send(&data[to..], |bytes| both.socket.send(bytes, false)).unwrap();
                from += both.server.send(&both.stream, &data[from..], false).unwrap();
                both.turn().unwrap();
            }
            both.settle().unwrap();
            assert!(both.at_server == data && both.at_client == data, "{length} at {room}");
        }
        both.server.finish_sending(&both.stream).unwrap();
        both.settle().unwrap();
        assert!(both.is_client_told);
        both.client.finish_sending(|bytes| both.socket.send(bytes, false)).unwrap();
        assert!(!both.client.has_pending());
    }
}

#[test]
fn sessions_are_resumed_where_that_is_wanted() {
    let authority = Authority::new("ca");
    let site = site(&authority);
    for resumes in [true, false] {
        let options = ConnectorOptions { resumes, ..ConnectorOptions::new(trust(&authority)) };
        let connector = Connector::new(&options).unwrap();
        for visit in 0..3 {
            let mut both = Both::new(&connector, "a.test", &site);
            both.settle().unwrap();
            assert_eq!(both.client.agreed().unwrap().is_resumed, resumes && visit > 0, "{visit}");
        }
        // Each has brought two tickets and used one.
        let mut many: Vec<Both> = (0..4).map(|_| Both::new(&connector, "a.test", &site)).collect();
        let mut resumed = 0;
        for both in &mut many {
            both.turn().unwrap();
        }
        for both in &mut many {
            both.settle().unwrap();
            resumed += usize::from(both.client.agreed().unwrap().is_resumed);
        }
        assert_eq!(resumed, if resumes { 4 } else { 0 });
    }
}

#[test]
fn options_are_kept_to() {
    let authority = Authority::new("ca");
    let site = site(&authority);
    for (tls12, tls13, hybrid, version, group) in [
        (true, true, true, "TLSv1.3", "X25519MLKEM768"),
        (true, true, false, "TLSv1.3", "X25519"),
        (true, false, true, "TLSv1.2", "X25519"),
    ] {
        let options = ConnectorOptions { tls12, tls13, hybrid, ..ConnectorOptions::new(Trust::Anybody) };
        let mut both = Both::new(&Connector::new(&options).unwrap(), "b.test", &site);
        both.settle().unwrap();
        let agreed = both.client.agreed().unwrap();
        assert_eq!((agreed.version, agreed.group), (version, group));
    }
    let options = ConnectorOptions { tls12: false, tls13: false, ..ConnectorOptions::new(Trust::Anybody) };
    assert!(Connector::new(&options).is_err());
}

#[test]
fn servers_are_believed_for_good_reason_alone() {
    let (authority, other) = (Authority::new("ca"), Authority::new("other"));
    let site = site(&authority);
    for (trust, name, expected) in [
        (trust(&authority), "a.test", None),
        (trust(&authority), "b.test", Some("not valid for name")),
        (trust(&authority), "127.0.0.1", Some("not valid for name")),
        (trust(&other), "a.test", Some("none of those who are trusted has signed it")),
        (Trust::Anybody, "b.test", None),
        (Trust::Anybody, "127.0.0.1", None),
    ] {
        let connector = Connector::new(&ConnectorOptions::new(trust)).unwrap();
        let outcome = Both::new(&connector, name, &site).settle();
        match expected {
            None => outcome.unwrap(),
            Some(part) => {
                let error = outcome.unwrap_err();
                assert!(matches!(error, ClientSessionError::Untrusted(_)), "{error}");
                assert!(error.to_string().contains(part), "{error}");
            }
        }
    }
    assert!(Connector::name("[::1]").is_ok());
    assert!(Connector::name("a b").is_err());
    assert!(TrustedRoots::new("x.pem", b"nothing").is_err());
}

#[test]
fn a_certificate_that_is_named_itself_is_believed_for_its_name() {
    for (is_authority, year, name, expected) in [
        (false, 2090, "a.test", None),
        // As `openssl req -x509` makes it.
        (true, 2090, "a.test", None),
        (true, 2090, "b.test", Some("not valid for name")),
        (true, 2020, "a.test", Some("expired")),
    ] {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        if is_authority {
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        }
        let pem = params.self_signed(&key).unwrap().pem();
        let pair = Pair {
            certificate_name: "own.pem".into(),
            key_name: "own.key".into(),
            certificate: pem.clone().into_bytes(),
            key: key.serialize_pem().into_bytes(),
        };
        let slot = Slot::new(Certificate::new(&pair).unwrap());
        let site = SiteConfig::new(&terms("a", vec![slot]), &tickets()).unwrap();
        let trust = Trust::Roots(TrustedRoots::new("own.pem", pem.as_bytes()).unwrap());
        let connector = Connector::new(&ConnectorOptions::new(trust)).unwrap();
        let outcome = Both::new(&connector, name, &site).settle();
        match expected {
            None => outcome.unwrap(),
            Some(part) => {
                let error = outcome.unwrap_err().to_string();
                assert!(error.contains("is not trusted") && error.contains(part), "{error}");
            }
        }
    }
}

#[test]
fn a_client_shows_who_it_is() {
    let authority = Authority::new("ca");
    let known = tidegate_tls::ClientAuthorities::new("ca.pem", authority.pem.as_bytes()).unwrap();
    let terms = Terms {
        clients: ClientPolicy::Required(known),
        versions: Versions { tls12: true, tls13: false },
        ..terms("a", vec![authority.slot(&["a.test"])])
    };
    let site = SiteConfig::new(&terms, &tickets()).unwrap();
    let connect = |identity: Option<Pair>| {
        let identity = identity.map(|pair| Slot::new(Certificate::new(&pair).unwrap()));
        let options = ConnectorOptions { identity, ..ConnectorOptions::new(trust(&authority)) };
        let mut both = Both::new(&Connector::new(&options).unwrap(), "a.test", &site);
        (both.settle(), both.server.handshake().and_then(|agreed| agreed.client.clone()))
    };
    assert!(matches!(connect(None).0, Err(ClientSessionError::Refused(_))));
    let (outcome, client) = connect(Some(authority.sign(&["gateway"])));
    outcome.unwrap();
    assert_eq!(client.unwrap().subject, "CN=gateway");
}

#[test]
fn what_is_no_tls_is_said() {
    let connector = Connector::new(&ConnectorOptions::new(Trust::Anybody)).unwrap();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let socket = Stream::new(ours.into());
    let mut client = ClientSession::new(&connector, Connector::name("a.test").unwrap()).unwrap();
    client.advance(|bytes| socket.send(bytes, false)).unwrap();
    theirs.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    let error = client.receive(&mut [0; 100], |place| socket.recv(place)).unwrap_err();
    assert!(matches!(error, ClientSessionError::NotTls), "{error}");

    let mut client = ClientSession::new(&connector, Connector::name("a.test").unwrap()).unwrap();
    client.advance(|bytes| socket.send(bytes, false)).unwrap();
    assert_eq!(client.send(b"too early", |bytes| socket.send(bytes, false)).unwrap(), 0);
    let mut hello = [0; 5];
    theirs.read_exact(&mut hello).unwrap();
    drop(theirs);
    let error = client.receive(&mut [0; 100], |place| socket.recv(place)).unwrap_err();
    assert!(matches!(error, ClientSessionError::Left | ClientSessionError::Socket(_)), "{error}");
}
