//! Pairs that are good, pairs that are not, and how one is chosen and changed.

use crate::peer::{Authority, Both, client_config, terms, tickets};
use rcgen::{KeyPair, PKCS_ED25519, PKCS_RSA_SHA256, RsaKeySize};
use std::sync::Arc;
use tidegate_tls::certificate::KeyKind;
use tidegate_tls::inspect::findings;
use tidegate_tls::{Certificate, CertificateError, Pair, SiteConfig, Slot};

#[test]
fn a_broken_pair_says_which_file_is_at_fault() {
    let authority = Authority::new("ca");
    let good = authority.sign(&["a.test"]);
    let other = authority.sign(&["a.test"]);
    let pair = |certificate: &[u8], key: &[u8]| Pair {
        certificate: certificate.to_vec(),
        key: key.to_vec(),
        ..good.clone()
    };
    for (what, pair, expected) in [
        ("empty", pair(b"", &good.key), "site.pem holds no certificate"),
        ("key twice", pair(&good.key, &good.key), "site.pem holds no certificate"),
        ("no key", pair(&good.certificate, b"x"), "site.key holds no private key"),
        (
            "another's key",
            pair(&good.certificate, &other.key),
            "the private key in site.key does not belong to",
        ),
        (
            "no DER",
            pair(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", &good.key),
            "site.pem holds a certificate that cannot be read",
        ),
        (
            "odd key",
            pair(&good.certificate, b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"),
            "the private key in site.key cannot be used",
        ),
    ] {
        let said = Certificate::new(&pair).unwrap_err().to_string();
        assert!(said.starts_with(expected), "{what}: {said}");
    }
    let missing = Pair::read("/nonexistent/a.pem".as_ref(), "/nonexistent/a.key".as_ref()).unwrap_err();
    assert_eq!(missing.to_string(), "cannot read /nonexistent/a.pem: it does not exist");
    assert!(matches!(missing, CertificateError::Unreadable { .. }));
}

#[test]
fn pairs_travel() {
    let pair = Authority::new("ca").sign(&["a.test"]);
    let bytes = serde_json::to_vec(&pair).unwrap();
    assert!(bytes.len() < 4096);
    assert_eq!(serde_json::from_slice::<Pair>(&bytes).unwrap(), pair);
}

#[test]
fn names_with_stars_stand_for_one_label() {
    let about = Certificate::new(&Authority::new("ca").sign(&["a.test", "*.b.test"])).unwrap().about;
    assert_eq!(about.key, KeyKind::Ecdsa(256));
    for (host, expected) in [
        ("a.test", true),
        ("x.a.test", false),
        ("x.b.test", true),
        ("b.test", false),
        ("x.y.b.test", false),
        (".b.test", false),
    ] {
        assert_eq!(about.covers(host), expected, "{host}");
    }
}

#[test]
fn the_client_and_the_name_decide_which_certificate_is_shown() {
    let authority = Authority::new("ca");
    let rsa = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
    let slot = |pair: &Pair| Slot::new(Certificate::new(pair).unwrap());
    let rsa = authority.sign_with(&["a.test"], &rsa);
    assert_eq!(Certificate::new(&rsa).unwrap().about.key, KeyKind::Rsa(2048));
    let slots = vec![slot(&rsa), authority.slot(&["a.test"]), authority.slot(&["b.test"])];
    let site = SiteConfig::new(&terms("a", slots.clone()), &tickets()).unwrap();
    let shown = |name, rsa_only: bool| {
        let mut config = client_config(&authority);
        if rsa_only {
            let mut provider = rustls::crypto::aws_lc_rs::default_provider();
            provider.cipher_suites.retain(|suite| format!("{suite:?}").contains("ECDHE_RSA"));
            let mut roots = rustls::RootCertStore::empty();
            use rustls::pki_types::pem::PemObject;
            roots
                .add(rustls::pki_types::CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap())
                .unwrap();
            config = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
                .with_protocol_versions(&[&rustls::version::TLS12])
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth();
        }
        let mut both = Both::new(&Arc::new(config), name, &[("*", site.clone())]);
        both.settle().unwrap();
        both.client.peer_certificates().map(|chain| chain[0].to_vec())
    };
    let der = |slot: &Slot| {
        use rustls::pki_types::pem::PemObject;
        let _ = slot;
        let pem = &rsa.certificate;
        rustls::pki_types::CertificateDer::from_pem_slice(pem).unwrap().to_vec()
    };
    assert_ne!(shown("a.test", false), Some(der(&slots[0])));
    assert_ne!(shown("b.test", false), shown("a.test", false));
    assert_eq!(shown("a.test", true), Some(der(&slots[0])));
}

#[test]
fn a_new_certificate_is_used_by_the_next_handshake() {
    let authority = Authority::new("ca");
    let slot = Slot::empty();
    let site = SiteConfig::new(&terms("a", vec![slot.clone()]), &tickets()).unwrap();
    let config = Arc::new(client_config(&authority));
    assert!(Both::new(&config, "a.test", &[("*", site.clone())]).settle().is_err());
    let mut serials = Vec::new();
    for _ in 0..2 {
        let certificate = Certificate::new(&authority.sign(&["a.test"])).unwrap();
        serials.push(certificate.about.serial.clone());
        slot.fill(certificate);
        let mut both = Both::new(&config, "a.test", &[("*", site.clone())]);
        both.settle().unwrap();
        assert!(both.session.handshake().is_some());
        assert_eq!(slot.present().map(|present| present.about.serial.clone()), serials.last().cloned());
    }
    assert_ne!(serials[0], serials[1]);
}

#[test]
fn weak_choices_are_explained() {
    let authority = Authority::new("ca");
    let certificate = Certificate::new(&authority.sign(&["a.test"])).unwrap();
    let (from, to) = (certificate.about.not_before, certificate.about.not_after);
    let day = 86_400;
    let hosts = ["a.test".to_owned()];
    let said = |hosts: &[String], now| {
        findings(&certificate, hosts, now).into_iter().map(|finding| finding.said).collect::<Vec<_>>()
    };
    assert_eq!(said(&hosts, from + day), Vec::<String>::new());
    assert_eq!(
        said(&hosts, to + 3 * day),
        ["it has expired 3 days ago; renew it", "CN=ca in its chain has expired 3 days ago"]
    );
    assert_eq!(said(&hosts, to - 3 * day), ["it expires in 3 days; renew it"]);
    assert_eq!(said(&hosts, from - 60), ["it is not good yet, only in 1 minute; is the clock right?"]);
    let two = ["a.test".to_owned(), "b.test".to_owned(), "*.a.test".to_owned()];
    assert_eq!(
        said(&two, from + day),
        [
            "it is good for a.test, but not for b.test, *.a.test; get one that names them as well, or let another site answer for \
             them"
        ]
    );

    let ed25519 = authority.sign_with(&["a.test"], &KeyPair::generate_for(&PKCS_ED25519).unwrap());
    let ed25519 = Certificate::new(&ed25519).unwrap();
    assert_eq!(ed25519.about.key, KeyKind::Ed25519);
    assert!(findings(&ed25519, &hosts, from + day)[0].said.contains("Ed25519"));

    let mut alone = authority.sign(&["a.test"]);
    alone.certificate.truncate(alone.certificate.windows(9).rposition(|w| w == b"-----BEGI").unwrap());
    let alone = Certificate::new(&alone).unwrap();
    assert!(findings(&alone, &hosts, from + day)[0].said.contains("append it"));
}
