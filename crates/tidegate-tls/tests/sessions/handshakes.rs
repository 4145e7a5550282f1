//! What a handshake agrees upon, and how it fails.

use crate::peer::{
    Authority, Both, client_config, client_config_preferring, client_config_with, terms, tickets,
};
use rustls::ClientConfig;
use std::sync::Arc;
use tidegate_io::clock::monotonic_ns;
use tidegate_tls::{
    Challenges, ClientAuthorities, ClientPolicy, Resumption, SessionError, SiteConfig, Slot, TermsError,
    Versions,
};

pub fn only(
    versions: &[&'static rustls::SupportedProtocolVersion],
    authority: &Authority,
) -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let base = client_config(authority);
    let mut roots = rustls::RootCertStore::empty();
    use rustls::pki_types::pem::PemObject;
    roots.add(rustls::pki_types::CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = base.alpn_protocols;
    Arc::new(config)
}

#[test]
fn modern_clients_get_modern_terms() {
    let authority = Authority::new("ca");
    let site = SiteConfig::new(&terms("a", vec![authority.slot(&["a.test"])]), &tickets()).unwrap();
    let mut both = Both::new(&Arc::new(client_config(&authority)), "a.test", &[("a.test", site)]);
    both.say(b"hello");
    both.settle().unwrap();
    assert_eq!(both.at_server, b"hello");
    let handshake = both.session.handshake().unwrap();
    assert_eq!(handshake.version, "TLSv1.3");
    assert_eq!(handshake.group, "X25519MLKEM768");
    assert!(handshake.suite.starts_with("TLS_AES_"), "{}", handshake.suite);
    assert_eq!(handshake.server_name.as_deref(), Some("a.test"));
    assert_eq!(handshake.protocol, Some(&b"http/1.1"[..]));
    assert_eq!(handshake.resumption, Resumption::Full);
    assert_eq!(handshake.client, None);
}

#[test]
fn versions_are_kept_to() {
    let authority = Authority::new("ca");
    let slot = authority.slot(&["a.test"]);
    let (v12, v13): (&'static _, &'static _) = (&rustls::version::TLS12, &rustls::version::TLS13);
    for (tls12, tls13, client, expected) in [
        (true, true, v12, Some("TLSv1.2")),
        (true, false, v12, Some("TLSv1.2")),
        (false, true, v13, Some("TLSv1.3")),
        (false, true, v12, None),
        (true, false, v13, None),
    ] {
        let mut terms = terms("a", vec![slot.clone()]);
        terms.versions = Versions { tls12, tls13 };
        let site = SiteConfig::new(&terms, &tickets()).unwrap();
        let mut both = Both::new(&only(&[client], &authority), "a.test", &[("a.test", site)]);
        let outcome = both.settle();
        assert_eq!(both.session.handshake().map(|handshake| handshake.version), expected);
        if expected.is_none() {
            assert!(matches!(outcome, Err(SessionError::NothingInCommon("version"))), "{outcome:?}");
        }
    }
    let mut terms = terms("a", vec![slot]);
    terms.versions = Versions { tls12: false, tls13: false };
    assert_eq!(SiteConfig::new(&terms, &tickets()).unwrap_err(), TermsError::NoVersion);
}

#[test]
fn failures_name_who_is_at_fault() {
    let authority = Authority::new("ca");
    let stranger = Authority::new("stranger");
    let site = SiteConfig::new(&terms("a", vec![authority.slot(&["a.test"])]), &tickets()).unwrap();
    let config = Arc::new(client_config(&authority));

    let mut both = Both::new(&config, "b.test", &[("a.test", site.clone())]);
    assert!(matches!(both.settle(), Err(SessionError::UnknownName)));
    let alert = both.turn_client().unwrap_err();
    assert!(
        alert.to_string().contains("UnrecognisedName") || alert.to_string().contains("UnrecognizedName"),
        "{alert}"
    );

    let mut both = Both::new(&Arc::new(client_config(&stranger)), "a.test", &[("a.test", site.clone())]);
    let mut outcome = both.settle();
    if outcome.is_ok() {
        outcome = both.settle();
    }
    assert!(matches!(outcome, Err(SessionError::Refused(_))), "{outcome:?}");

    let empty = SiteConfig::new(&terms("a", vec![Slot::empty()]), &tickets()).unwrap();
    let mut both = Both::new(&config, "a.test", &[("a.test", empty)]);
    assert!(matches!(both.settle(), Err(SessionError::NoCertificate)));

    let mut h2only = client_config(&authority);
    h2only.alpn_protocols = vec![b"spdy/1".to_vec()];
    let mut both = Both::new(&Arc::new(h2only), "a.test", &[("a.test", site.clone())]);
    assert!(matches!(both.settle(), Err(SessionError::NothingInCommon("protocol"))));

    for (bytes, is_plain) in
        [(&b"GET / HTTP/1.1\r\n\r\n"[..], true), (b"\x16\x03\x01\x00\x04\x02\0\0\0", false)]
    {
        let mut both = Both::new(&config, "a.test", &[("*", site.clone())]);
        std::io::Write::write_all(&mut both.socket, bytes).unwrap();
        match both.turn_server() {
            Err(SessionError::NotTls) => assert!(is_plain && both.session.take_received() == bytes),
            Err(SessionError::Misbehaved(_)) => assert!(!is_plain),
            other => panic!("{other:?}"),
        }
    }
    let mut both = Both::new(&config, "a.test", &[("a.test", site)]);
    both.socket.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(matches!(both.turn_server(), Err(SessionError::Left)));
}

#[test]
fn clients_are_asked_for_certificates() {
    let authority = Authority::new("ca");
    let vouches = Authority::new("clients");
    let slot = authority.slot(&["a.test"]);
    let authorities = ClientAuthorities::new("clients.pem", vouches.pem.as_bytes()).unwrap();
    let with = |clients| {
        SiteConfig::new(&tidegate_tls::Terms { clients, ..terms("a", vec![slot.clone()]) }, &tickets())
    };
    let required = with(ClientPolicy::Required(authorities.clone())).unwrap();
    let optional = with(ClientPolicy::Optional(authorities)).unwrap();
    let known = Arc::new(client_config_with(&authority, &vouches.sign(&["alice"])));
    let foreign = Arc::new(client_config_with(&authority, &authority.sign(&["mallory"])));
    let nobody = Arc::new(client_config(&authority));

    for (site, config, expected) in [
        (&required, &known, Some(Some("CN=alice"))),
        (&required, &foreign, None),
        (&required, &nobody, None),
        (&optional, &known, Some(Some("CN=alice"))),
        (&optional, &foreign, None),
        (&optional, &nobody, Some(None)),
    ] {
        let mut both = Both::new(config, "a.test", &[("a.test", site.clone())]);
        let outcome = both.settle();
        let handshake = both.session.handshake();
        let subject =
            handshake.map(|handshake| handshake.client.as_ref().map(|client| client.subject.as_str()));
        assert_eq!(subject, expected);
        match (handshake.and_then(|handshake| handshake.client.as_ref()), expected) {
            (Some(client), _) => {
                assert!(client.issuer.contains("clients") && client.fingerprint.len() == 64, "{client:?}");
                assert!(!client.serial.is_empty());
            }
            (None, Some(_)) => {}
            (None, None) => {
                assert!(matches!(outcome, Err(SessionError::ClientCertificate(_))), "{outcome:?}")
            }
        }
    }
}

/// One connection; how it was resumed.
fn visit(
    config: &Arc<ClientConfig>,
    name: &'static str,
    sites: &[(&'static str, Arc<SiteConfig>)],
) -> Resumption {
    let mut both = Both::new(config, name, sites);
    both.say(b"x");
    both.settle().unwrap();
    both.session.handshake().unwrap().resumption
}

#[test]
fn sessions_resume_in_their_own_site_alone() {
    let authority = Authority::new("ca");
    let vouches = ClientAuthorities::new("ca.pem", authority.pem.as_bytes()).unwrap();
    let slot = authority.slot(&["a.test", "b.test"]);
    let tickets = tickets();
    let a = SiteConfig::new(&terms("a", vec![slot.clone()]), &tickets).unwrap();
    let b = SiteConfig::new(&terms("b", vec![slot.clone()]), &tickets).unwrap();
    for versions in [&[&rustls::version::TLS13][..], &[&rustls::version::TLS12]] {
        let config = only(versions, &authority);
        let sites = [("a.test", a.clone()), ("b.test", b.clone())];
        assert_eq!(visit(&config, "a.test", &sites), Resumption::Full);
        assert_eq!(visit(&config, "a.test", &sites), Resumption::Resumed);
        assert_eq!(visit(&config, "b.test", &sites), Resumption::Full);
        // The same name, answered by another site: as after a reload that moved it.
        assert_eq!(visit(&config, "a.test", &[("a.test", b.clone())]), Resumption::Refused);
        // The same site once it wants to know its clients (FAULTS 53).
        visit(&config, "a.test", &sites);
        let strict = tidegate_tls::Terms {
            clients: ClientPolicy::Optional(vouches.clone()),
            ..terms("a", vec![slot.clone()])
        };
        let strict = SiteConfig::new(&strict, &tickets).unwrap();
        assert_eq!(visit(&config, "a.test", &[("a.test", strict)]), Resumption::Refused);
        // Another worker, another process with the same keys.
        visit(&config, "a.test", &sites);
        let elsewhere = crate::peer::tickets();
        elsewhere.replace(&tickets.to_bytes()).unwrap();
        let same = SiteConfig::new(&terms("a", vec![slot.clone()]), &elsewhere).unwrap();
        assert_eq!(visit(&config, "a.test", &[("a.test", same)]), Resumption::Resumed);
    }
}

/// FAULTS 64: a restart has forgotten the session, and the client's early data comes all the same.
#[test]
fn early_data_that_is_rejected_is_skipped_up_to_what_is_advertised() {
    const ADVERTISED: usize = 16 << 10;
    let authority = Authority::new("ca");
    let mut early = terms("a", vec![authority.slot(&["a.test"])]);
    early.takes_early_data = true;
    // With another group of the key exchange first the hello is sent again; what came with the first is skipped.
    for asks_again in [false, true] {
        for (length, fragment) in
            [(5, None), (6000, None), (ADVERTISED, None), (ADVERTISED, Some(4101)), (ADVERTISED, Some(1200))]
        {
            for piece in [usize::MAX, 1000] {
                let old = SiteConfig::new(&early, &tickets()).unwrap();
                let new = SiteConfig::new(&early, &tickets()).unwrap();
                let mut config = match asks_again {
                    false => client_config(&authority),
                    true => {
                        client_config_preferring(&authority, rustls::crypto::aws_lc_rs::kx_group::MLKEM768)
                    }
                };
                config.enable_early_data = true;
                config.max_fragment_size = fragment;
                config.resumption = rustls::client::Resumption::store(Arc::new(Tickets::default()));
                let config = Arc::new(config);
                assert_eq!(visit(&config, "a.test", &[("a.test", old)]), Resumption::Full);
                let mut both = Both::new(&config, "a.test", &[("a.test", new)]);
                let content = vec![b'e'; length];
                std::io::Write::write_all(&mut both.client.early_data().unwrap(), &content).unwrap();
                let mut flight = Vec::new();
                while both.client.wants_write() {
                    both.client.write_tls(&mut flight).unwrap();
                }
                for piece in flight.chunks(piece) {
                    std::io::Write::write_all(&mut both.socket, piece).unwrap();
                    both.turn_server().unwrap_or_else(|error| panic!("{length} {fragment:?}: {error}"));
                }
                both.settle().unwrap_or_else(|error| panic!("{length} {fragment:?}: {error}"));
                assert!(!both.client.is_early_data_accepted());
                let has_asked =
                    both.client.handshake_kind() == Some(rustls::HandshakeKind::FullWithHelloRetryRequest);
                assert_eq!(has_asked, asks_again);
                assert_eq!(both.at_server, b"");
                both.say(b"again");
                both.settle().unwrap();
                assert_eq!(both.at_server, b"again", "{length} {fragment:?} {asks_again}");
            }
        }
    }
}

/// Tickets without the group that a server has chosen, so that the wrong one is offered again.
#[derive(Debug, Default)]
struct Tickets(std::sync::Mutex<Vec<rustls::client::Tls13ClientSessionValue>>);

impl rustls::client::ClientSessionStore for Tickets {
    fn set_kx_hint(&self, _: rustls::pki_types::ServerName<'static>, _: rustls::NamedGroup) {}
    fn kx_hint(&self, _: &rustls::pki_types::ServerName<'_>) -> Option<rustls::NamedGroup> {
        None
    }
    fn set_tls12_session(
        &self,
        _: rustls::pki_types::ServerName<'static>,
        _: rustls::client::Tls12ClientSessionValue,
    ) {
    }
    fn tls12_session(
        &self,
        _: &rustls::pki_types::ServerName<'_>,
    ) -> Option<rustls::client::Tls12ClientSessionValue> {
        None
    }
    fn remove_tls12_session(&self, _: &rustls::pki_types::ServerName<'static>) {}
    fn insert_tls13_ticket(
        &self,
        _: rustls::pki_types::ServerName<'static>,
        value: rustls::client::Tls13ClientSessionValue,
    ) {
        self.0.lock().unwrap().push(value);
    }
    fn take_tls13_ticket(
        &self,
        _: &rustls::pki_types::ServerName<'static>,
    ) -> Option<rustls::client::Tls13ClientSessionValue> {
        self.0.lock().unwrap().pop()
    }
}

#[test]
fn early_data_is_marked_and_answered_and_never_taken_twice() {
    let authority = Authority::new("ca");
    let mut early = terms("a", vec![authority.slot(&["a.test"])]);
    early.takes_early_data = true;
    let vouches = ClientAuthorities::new("ca.pem", authority.pem.as_bytes()).unwrap();
    let site = SiteConfig::new(&early, &tickets()).unwrap();
    let mut config = client_config(&authority);
    config.enable_early_data = true;
    let config = Arc::new(config);
    assert_eq!(visit(&config, "a.test", &[("a.test", site.clone())]), Resumption::Full);

    let mut both = Both::new(&config, "a.test", &[("a.test", site.clone())]);
    std::io::Write::write_all(&mut both.client.early_data().unwrap(), b"GET /").unwrap();
    let mut first_flight = Vec::new();
    both.client.write_tls(&mut first_flight).unwrap();
    std::io::Write::write_all(&mut both.socket, &first_flight).unwrap();
    both.turn_server().unwrap();
    assert_eq!(both.at_server, b"GET /");
    assert!(both.session.is_early());
    assert_eq!(both.session.send(&both.stream, b"200", false).unwrap(), 3);
    both.settle().unwrap();
    assert!(both.client.is_early_data_accepted());
    assert_eq!(both.at_client, b"200");
    both.say(b"more");
    both.settle().unwrap();
    assert_eq!(both.at_server, b"GET /more");
    assert!(!both.session.is_early());

    // The same bytes once more: the session has been used up, so the early data is not read.
    let mut again = Both::new(&config, "a.test", &[("a.test", site)]);
    std::io::Write::write_all(&mut again.socket, &first_flight).unwrap();
    again.turn_server().unwrap();
    assert_eq!(again.at_server, b"");

    early.clients = ClientPolicy::Optional(vouches);
    assert_eq!(SiteConfig::new(&early, &tickets()).unwrap_err(), TermsError::EarlyClients);
}

#[test]
fn challenges_have_a_certificate_of_their_own() {
    let authority = Authority::new("ca");
    let challenges = Challenges::default();
    challenges.set("A.test", &authority.sign(&["a.test"])).unwrap();
    let site = SiteConfig::of_challenge(challenges.find("a.test").unwrap());
    let mut config = client_config(&authority);
    config.alpn_protocols = vec![b"acme-tls/1".to_vec()];
    let mut both = Both::new(&Arc::new(config), "a.test", &[("a.test", site)]);
    both.settle().unwrap();
    assert_eq!(both.session.handshake().unwrap().protocol, Some(&b"acme-tls/1"[..]));
    challenges.remove("a.test");
    assert!(challenges.find("a.test").is_none());
}

#[test]
fn tickets_are_made_on_the_machines_own_clock() {
    let keys = tickets();
    keys.rotate_if_due();
    assert!(keys.to_bytes().len() >= 56 && monotonic_ns() > 0);
}

#[test]
fn the_cheaper_cipher_is_used_but_for_clients_without_hardware_for_aes() {
    let authority = Authority::new("ca");
    for (first, expected) in [
        ("AES_256", "TLS_AES_128_GCM_SHA256"),
        ("AES_128", "TLS_AES_128_GCM_SHA256"),
        ("CHACHA20", "TLS_CHACHA20_POLY1305_SHA256"),
    ] {
        let mut provider = rustls::crypto::aws_lc_rs::default_provider();
        provider.cipher_suites.sort_by_key(|suite| !suite.suite().as_str().unwrap().contains(first));
        let mut roots = rustls::RootCertStore::empty();
        let pem = authority.pem.as_bytes();
        roots.add(rustls::pki_types::pem::PemObject::from_pem_slice(pem).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let site = SiteConfig::new(&terms("a", vec![authority.slot(&["a.test"])]), &tickets()).unwrap();
        let mut both = Both::new(&Arc::new(config), "a.test", &[("a.test", site)]);
        both.settle().unwrap();
        assert_eq!(both.session.handshake().unwrap().suite, expected, "{first} first");
    }
}
