//! How this program connects to others over TLS: whom it believes, what it offers, who it says it is.
//!
//! The gateway makes one [`Connector`] for each kind of backend, the load generator one for each run. It is
//! shared by threads; sessions that may be resumed are kept in it.

use crate::certificate::{About, CertificateError, Slot, certificates, read_file};
use crate::provider;
use crate::session_store::SessionStore;
use aws_lc_rs::digest;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{
    ResolvesClientCert, Resumption, UnbufferedClientConnection, WebPkiServerVerifier, verify_server_name,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, DigitallySignedStruct, NamedGroup, RootCertStore, SignatureScheme};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// Why a connector cannot be made, or not for a name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConnectorError {
    /// A file of PEM is at fault.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// No certificate can be for such a name.
    #[error("`{0}` is no host name or address that a certificate could be for")]
    Name(String),
    /// Neither version is left, or no key exchange.
    #[error("no TLS version and key exchange is left to offer")]
    Nothing,
    /// Rustls refuses for another reason.
    #[error("TLS cannot be spoken like this: {0}")]
    Refused(String),
}

/// Whom to believe.
#[derive(Clone)]
pub enum Trust {
    /// Servers whose certificates one of these has signed.
    Roots(Arc<TrustedRoots>),
    /// Everybody: the connection is secret to listeners, and to nobody else.
    Anybody,
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Trust::Roots(_) => "Roots",
            Trust::Anybody => "Anybody",
        })
    }
}

/// Authorities that vouch for servers.
#[derive(Debug)]
pub struct TrustedRoots {
    store: Arc<RootCertStore>,
    /// The certificates themselves: what is signed by itself and named here is believed as it is.
    named: Vec<CertificateDer<'static>>,
    digest: [u8; 32],
}

impl TrustedRoots {
    /// From PEM; `name` is for messages. Of a system's list single certificates may be beyond understanding;
    /// one that can be used must be there.
    ///
    /// # Errors
    /// The PEM is malformed or holds no certificate, or none that can be an authority's.
    pub fn new(name: &str, pem: &[u8]) -> Result<Arc<TrustedRoots>, CertificateError> {
        let malformed = |why: String| CertificateError::Malformed { path: name.to_owned(), why };
        let none = || CertificateError::NoCertificate { path: name.to_owned() };
        let list = certificates(pem).map_err(malformed)?.ok_or_else(none)?;
        let mut roots = RootCertStore::empty();
        let (usable, _) = roots.add_parsable_certificates(list.iter().cloned());
        if usable == 0 {
            return Err(malformed("no certificate in it can be one of an authority".into()));
        }
        let mut digest = [0; 32];
        digest.copy_from_slice(digest::digest(&digest::SHA256, pem).as_ref());
        Ok(Arc::new(TrustedRoots { store: Arc::new(roots), named: list, digest }))
    }

    /// Whether both come from the same text.
    pub fn is_same_as(&self, other: &TrustedRoots) -> bool {
        self.digest == other.digest
    }

    /// Those in a file.
    ///
    /// # Errors
    /// The file cannot be read, or [`TrustedRoots::new`] refuses what is in it.
    pub fn read(path: &Path) -> Result<Arc<TrustedRoots>, CertificateError> {
        TrustedRoots::new(&path.display().to_string(), &read_file(path)?)
    }
}

/// The file of those whom the system trusts: what `SSL_CERT_FILE` names, else where distributions have it.
pub fn system_roots() -> PathBuf {
    const PLACES: [&str; 5] = [
        "/etc/ssl/certs/ca-certificates.crt", // Debian, Arch
        "/etc/pki/tls/certs/ca-bundle.crt",   // Fedora
        "/etc/ssl/ca-bundle.pem",             // openSUSE
        "/etc/ssl/cert.pem",                  // Alpine, BSD
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    ];
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let found = || PLACES.iter().map(PathBuf::from).find(|path| path.is_file());
    named.or_else(found).unwrap_or_else(|| PathBuf::from(PLACES[0]))
}

/// What is offered to servers.
#[derive(Debug, Clone)]
pub struct ConnectorOptions {
    /// Whom to believe.
    pub trust: Trust,
    /// ALPN, best first; empty offers none.
    pub protocols: Vec<Vec<u8>>,
    /// Whether sessions are resumed.
    pub resumes: bool,
    /// What to show where a server asks for a certificate.
    pub identity: Option<Arc<Slot>>,
    /// `1.2` is offered.
    pub tls12: bool,
    /// `1.3` is offered.
    pub tls13: bool,
    /// Whether hybrid key exchanges, which hold against quantum computers, are offered.
    pub hybrid: bool,
}

impl ConnectorOptions {
    /// Everything modern, with HTTP/1.1.
    pub fn new(trust: Trust) -> ConnectorOptions {
        ConnectorOptions {
            trust,
            protocols: vec![b"http/1.1".to_vec()],
            resumes: true,
            identity: None,
            tls12: true,
            tls13: true,
            hybrid: true,
        }
    }
}

/// The way to servers.
#[derive(Debug)]
pub struct Connector {
    config: Arc<ClientConfig>,
}

impl Connector {
    /// With sessions of its own to resume, where [`ConnectorOptions::resumes`] says so.
    ///
    /// # Errors
    /// No version of TLS is offered, or rustls refuses the options.
    pub fn new(options: &ConnectorOptions) -> Result<Arc<Connector>, ConnectorError> {
        let mut crypto = CryptoProvider::clone(&provider());
        if !options.hybrid {
            crypto.kx_groups.retain(|group| group.name() != NamedGroup::X25519MLKEM768);
        }
        let mut versions = Vec::new();
        if options.tls13 {
            versions.push(&rustls::version::TLS13);
        }
        if options.tls12 {
            versions.push(&rustls::version::TLS12);
        }
        if versions.is_empty() {
            return Err(ConnectorError::Nothing);
        }
        let refused = |error: rustls::Error| ConnectorError::Refused(error.to_string());
        let builder = ClientConfig::builder_with_provider(Arc::new(crypto))
            .with_protocol_versions(&versions)
            .map_err(refused)?;
        let builder = match &options.trust {
            Trust::Roots(roots) => {
                let chains = WebPkiServerVerifier::builder_with_provider(roots.store.clone(), provider())
                    .build()
                    .map_err(|error| ConnectorError::Refused(error.to_string()))?;
                let verifier = Named { chains, roots: roots.clone() };
                builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
            }
            Trust::Anybody => builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody)),
        };
        let mut config = builder.with_no_client_auth();
        if let Some(slot) = &options.identity {
            config.client_auth_cert_resolver = Arc::new(Identity(slot.clone()));
        }
        config.alpn_protocols.clone_from(&options.protocols);
        config.resumption = if options.resumes {
            Resumption::store(Arc::new(SessionStore::default()))
        } else {
            Resumption::disabled()
        };
        Ok(Arc::new(Connector { config: Arc::new(config) }))
    }

    /// The name of a server: asked for, and looked for in its certificate.
    ///
    /// # Errors
    /// [`ConnectorError::Name`]: it is neither a host name nor an IP address.
    pub fn name(text: &str) -> Result<ServerName<'static>, ConnectorError> {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        ServerName::try_from(bare.to_owned()).map_err(|_| ConnectorError::Name(text.to_owned()))
    }

    pub(crate) fn begin(
        &self,
        name: ServerName<'static>,
    ) -> Result<UnbufferedClientConnection, ConnectorError> {
        let refused = |error: rustls::Error| ConnectorError::Refused(error.to_string());
        UnbufferedClientConnection::new(self.config.clone(), name).map_err(refused)
    }
}

/// Verifies chains as every client does, and believes a server's own certificate that stands among the roots: one
/// that it has signed itself, as private servers do. Its name and its dates must be right all the same.
#[derive(Debug)]
struct Named {
    chains: Arc<WebPkiServerVerifier>,
    roots: Arc<TrustedRoots>,
}

impl ServerCertVerifier for Named {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if !self.roots.named.contains(own) {
            return self.chains.verify_server_cert(own, chain, name, ocsp, now);
        }
        let broken = || rustls::Error::InvalidCertificate(rustls::CertificateError::BadEncoding);
        let about = About::of(own).map_err(|_| broken())?;
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        if now > about.not_after {
            return Err(rustls::Error::InvalidCertificate(rustls::CertificateError::Expired));
        }
        if now < about.not_before {
            return Err(rustls::Error::InvalidCertificate(rustls::CertificateError::NotValidYet));
        }
        verify_server_name(&ParsedCertificate::try_from(own)?, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chains.verify_tls12_signature(message, own, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chains.verify_tls13_signature(message, own, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

/// Shows what is in a slot at that moment.
#[derive(Debug)]
struct Identity(Arc<Slot>);

impl ResolvesClientCert for Identity {
    fn resolve(&self, _: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let present = self.0.present()?;
        present.key.key.choose_scheme(schemes).map(|_| present.key.clone())
    }

    fn has_certs(&self) -> bool {
        self.0.present().is_some()
    }
}

/// Believes everybody. Signatures of the handshake are not looked at either: where any certificate is taken,
/// one that the server does have the key of proves nothing more.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
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
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
