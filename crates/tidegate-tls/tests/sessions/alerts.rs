//! What a client is told when a handshake comes to nothing.

use crate::handshakes::only;
use crate::peer::{Authority, Both, client_config, terms, tickets};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{AlertDescription, ClientConfig, DigitallySignedStruct, SignatureScheme};
use std::io::{Read, Write};
use std::sync::Arc;
use tidegate_tls::{SessionError, SiteConfig};

/// A client that believes everybody, and takes signatures of RSA alone.
#[derive(Debug)]
struct OnlyRsa;

impl ServerCertVerifier for OnlyRsa {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verify_tls12_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::RSA_PSS_SHA256]
    }
}

/// With TLS 1.3 the alert stands behind a `ServerHello` (RFC 8446 section 4.1.1).
#[test]
fn a_handshake_that_comes_to_nothing_ends_with_an_alert() {
    let authority = Authority::new("ca");
    let site = SiteConfig::new(&terms("a", vec![authority.slot(&["a.test"])]), &tickets()).unwrap();
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let mut config = ClientConfig::clone(&only(&[version], &authority));
        config.dangerous().set_certificate_verifier(Arc::new(OnlyRsa));
        let mut both = Both::new(&Arc::new(config), "a.test", &[("a.test", site.clone())]);
        assert!(matches!(both.settle(), Err(SessionError::NothingInCommon("signature scheme"))));
        let alert = rustls::Error::AlertReceived(AlertDescription::HandshakeFailure);
        assert_eq!(both.turn_client(), Err(alert), "{version:?}");
    }
}

/// RFC 5246 appendix E.1.
#[test]
fn who_speaks_nothing_newer_than_tls_1_1_is_told_of_the_version() {
    let authority = Authority::new("ca");
    let site = SiteConfig::new(&terms("a", vec![authority.slot(&["a.test"])]), &tickets()).unwrap();
    let hello = [&[22, 3, 1, 0, 45, 1, 0, 0, 41, 3, 2][..], &[7; 32], &[0, 0, 2, 0xc0, 0x13, 1, 0]].concat();
    let mut both = Both::new(&Arc::new(client_config(&authority)), "a.test", &[("*", site)]);
    both.socket.write_all(&hello).unwrap();
    assert!(matches!(both.turn_server(), Err(SessionError::NothingInCommon("version"))));
    let mut alert = [0; 7];
    both.socket.read_exact(&mut alert).unwrap();
    assert_eq!(alert, [21, 3, 2, 0, 2, 2, 70]);
}
