//! Clients of a transcript that speak TLS, and the certificates that a transcript makes for itself.
//!
//! The client trusts everyone: what a transcript wants to know of the server's certificate it asks. It is the
//! client of rustls; the server's own sessions are the other side of the same library, so what both could get
//! wrong together is left to curl and OpenSSL in the tests beside the transcripts.

use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, PKCS_RSA_SHA256, RsaKeySize, SanType,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};

/// A TLS connection of a client.
pub(crate) type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// How a client speaks TLS.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct TlsOptions {
    /// The name asked for; an address asks for none.
    pub(crate) name: Option<String>,
    /// `1.2` or `1.3` alone.
    pub(crate) version: Option<String>,
    /// Protocols offered by ALPN.
    pub(crate) protocols: Vec<String>,
    /// The name of a certificate of the transcript's to show.
    pub(crate) certificate: Option<String>,
    /// Bytes may go with the first packet.
    pub(crate) is_early: bool,
    /// The handshake must not succeed.
    pub(crate) must_fail: bool,
}

/// What a transcript asks of a handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TlsCheck {
    /// `TLSv1.3`
    Version(String),
    Protocol(String),
    Resumed,
    Full,
    /// The server has taken what came with the first packet.
    Early,
    /// The server's certificate is the one that the transcript has made under this name.
    Certificate(String),
}

/// What all connections of a client share: sessions to resume, above all.
pub(crate) fn config(options: &TlsOptions, folder: &Path) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let versions: &[&rustls::SupportedProtocolVersion] = match options.version.as_deref() {
        None => &[&rustls::version::TLS13, &rustls::version::TLS12],
        Some("1.3") => &[&rustls::version::TLS13],
        Some("1.2") => &[&rustls::version::TLS12],
        Some(other) => return Err(format!("`{other}` is no version of TLS")),
    };
    let builder = ClientConfig::builder_with_provider(provider.clone()).with_protocol_versions(versions);
    let builder = builder.map_err(|error| error.to_string())?;
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(Anyone(provider)));
    let mut config = match &options.certificate {
        None => builder.with_no_client_auth(),
        Some(name) => {
            let chain = chain(&folder.join(format!("{name}.pem")))?;
            let key = PrivateKeyDer::from_pem_file(folder.join(format!("{name}.key")));
            let key = key.map_err(|error| error.to_string())?;
            builder.with_client_auth_cert(chain, key).map_err(|error| error.to_string())?
        }
    };
    config.alpn_protocols = options.protocols.iter().map(|name| name.clone().into_bytes()).collect();
    config.enable_early_data = options.is_early;
    Ok(Arc::new(config))
}

fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain =
        CertificateDer::pem_file_iter(path).map_err(|error| format!("{}: {error}", path.display()))?;
    chain.collect::<Result<_, _>>().map_err(|error| error.to_string())
}

/// Makes the handshake, with `early` in its first packet. The socket has its timeouts.
pub(crate) fn connect(
    mut socket: TcpStream,
    config: &Arc<ClientConfig>,
    options: &TlsOptions,
    early: &[u8],
) -> Result<TlsStream, String> {
    let name = options.name.clone().unwrap_or_else(|| "127.0.0.1".to_owned());
    let name = ServerName::try_from(name).map_err(|error| error.to_string())?;
    let mut session = ClientConnection::new(config.clone(), name).map_err(|error| error.to_string())?;
    if !early.is_empty() {
        let mut data = session.early_data().ok_or("the session takes no early data".to_owned())?;
        data.write_all(early).map_err(|error| error.to_string())?;
    }
    while session.is_handshaking() || session.wants_write() {
        session.complete_io(&mut socket).map_err(|error| format!("the TLS handshake failed: {error}"))?;
    }
    Ok(StreamOwned::new(session, socket))
}

/// Whether a handshake was as expected; the error says how it was.
pub(crate) fn check(stream: &TlsStream, check: &TlsCheck, folder: &Path) -> Result<(), String> {
    let session = &stream.conn;
    let is_resumed = session.handshake_kind() == Some(rustls::HandshakeKind::Resumed);
    let (holds, found) = match check {
        TlsCheck::Version(expected) => {
            let found = session.protocol_version().map(|version| format!("{version:?}").replace('_', "."));
            (found.as_ref() == Some(expected), format!("{found:?}"))
        }
        TlsCheck::Protocol(expected) => {
            let found = session.alpn_protocol().map(String::from_utf8_lossy);
            (found.as_deref() == Some(expected), format!("{found:?}"))
        }
        TlsCheck::Resumed => (is_resumed, format!("{:?}", session.handshake_kind())),
        TlsCheck::Early => (session.is_early_data_accepted(), "early data was not taken".to_owned()),
        TlsCheck::Full => (!is_resumed, format!("{:?}", session.handshake_kind())),
        TlsCheck::Certificate(name) => {
            let expected = chain(&folder.join(format!("{name}.pem")))?;
            let shown = session.peer_certificates().unwrap_or_default();
            (shown.first() == expected.first(), "another certificate".to_owned())
        }
    };
    if holds { Ok(()) } else { Err(format!("the handshake was another: {found}")) }
}

/// A certificate that a transcript makes: `NAME.pem` and `NAME.key`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) name: String,
    pub(crate) hosts: Vec<String>,
    /// The authority that signs it; itself where there is none.
    pub(crate) by: Option<String>,
    pub(crate) is_authority: bool,
    pub(crate) is_rsa: bool,
    /// How long it is good, from when it is made; 0 for one that was good once.
    pub(crate) life: Option<Duration>,
}

/// Whether a certificate that was made with a life is over.
pub(crate) fn has_expired(name: &str, folder: &Path) -> Result<bool, String> {
    let ends = std::fs::read_to_string(folder.join(format!("{name}.ends")));
    let ends = ends.ok().and_then(|ends| ends.parse().ok());
    let ends: u64 = ends.ok_or_else(|| format!("no certificate {name} with a life was made"))?;
    // The coarse clock that servers read is behind by a tick of the kernel at most.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Ok(now > Duration::from_secs(ends + 1) + Duration::from_millis(100))
}

/// Writes the files of a certificate.
pub(crate) fn make(made: &Made, folder: &Path) -> Result<(), String> {
    let failed = |error: rcgen::Error| error.to_string();
    let key = match made.is_rsa {
        true => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048),
        false => KeyPair::generate(),
    };
    let key = key.map_err(failed)?;
    // `email:anna@a.test` and `uri:spiffe://a/b` are names of other kinds.
    let is_host = |name: &&String| !name.starts_with("email:") && !name.starts_with("uri:");
    let hosts: Vec<String> = made.hosts.iter().filter(is_host).cloned().collect();
    let mut params = CertificateParams::new(hosts).map_err(failed)?;
    for name in &made.hosts {
        if let Some(email) = name.strip_prefix("email:") {
            params.subject_alt_names.push(SanType::Rfc822Name(email.try_into().map_err(failed)?));
        } else if let Some(uri) = name.strip_prefix("uri:") {
            params.subject_alt_names.push(SanType::URI(uri.try_into().map_err(failed)?));
        }
    }
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, &made.name);
    if made.is_authority {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    }
    if let Some(life) = made.life {
        let ends = UnixTime::now().as_secs() + life.as_secs();
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = match life.is_zero() {
            true => rcgen::date_time_ymd(2020, 2, 1),
            false => rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(ends),
        };
        let path = folder.join(format!("{}.ends", made.name));
        std::fs::write(&path, ends.to_string()).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let pem = match &made.by {
        None => params.self_signed(&key).map_err(failed)?.pem(),
        Some(by) => {
            let read = |ending: &str| {
                let path = folder.join(format!("{by}.{ending}"));
                std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
            };
            let (above, above_key) = (read("pem")?, KeyPair::from_pem(&read("key")?).map_err(failed)?);
            let mut issuer = CertificateParams::new(Vec::new()).map_err(failed)?;
            issuer.distinguished_name = rcgen::DistinguishedName::new();
            issuer.distinguished_name.push(DnType::CommonName, by);
            issuer.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let issuer = Issuer::new(issuer, above_key);
            format!("{}{above}", params.signed_by(&key, &issuer).map_err(failed)?.pem())
        }
    };
    // In one step each, as a careful tool would: the server may be looking.
    for (ending, text) in [("key", key.serialize_pem()), ("pem", pem)] {
        let path = folder.join(format!("{}.{ending}", made.name));
        let new = folder.join(format!("{}.{ending}.new", made.name));
        std::fs::write(&new, text)
            .and_then(|()| std::fs::rename(&new, &path))
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

/// Trusts every certificate, and checks the signatures of the handshake all the same.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
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
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
