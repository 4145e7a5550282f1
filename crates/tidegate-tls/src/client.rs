//! Client certificates: who may vouch for clients, and who a client has shown to be (RFC 8446 section 4.4.2).

use crate::certificate::{About, AlternativeName, CertificateError, certificates, read_file};
use crate::provider;
use aws_lc_rs::digest;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use std::path::Path;
use std::sync::Arc;

/// Whether a site wants to know who its clients are.
#[derive(Debug, Clone, Default)]
pub enum ClientPolicy {
    /// It does not ask.
    #[default]
    None,
    /// It asks, and serves those without a certificate too.
    Optional(Arc<ClientAuthorities>),
    /// It serves nobody without.
    Required(Arc<ClientAuthorities>),
}

impl ClientPolicy {
    /// What tells one policy from another, for tickets and for requests that change sites on a connection.
    pub fn scope(&self) -> Vec<u8> {
        let (mode, authorities) = match self {
            ClientPolicy::None => return b"-".to_vec(),
            ClientPolicy::Optional(authorities) => (b'o', authorities),
            ClientPolicy::Required(authorities) => (b'r', authorities),
        };
        [&[mode][..], &authorities.digest].concat()
    }

    pub(crate) fn verifier(&self) -> Option<Arc<dyn ClientCertVerifier>> {
        match self {
            ClientPolicy::None => None,
            ClientPolicy::Optional(authorities) => Some(authorities.optional.clone()),
            ClientPolicy::Required(authorities) => Some(authorities.required.clone()),
        }
    }
}

/// The authorities whose word counts.
#[derive(Debug)]
pub struct ClientAuthorities {
    digest: [u8; 32],
    optional: Arc<dyn ClientCertVerifier>,
    required: Arc<dyn ClientCertVerifier>,
}

impl ClientAuthorities {
    /// Reads their certificates from a PEM file.
    ///
    /// # Errors
    /// The file cannot be read, or [`ClientAuthorities::new`] refuses what is in it.
    pub fn read(path: &Path) -> Result<Arc<ClientAuthorities>, CertificateError> {
        ClientAuthorities::new(&path.display().to_string(), &read_file(path)?)
    }

    /// From PEM; `name` is for messages.
    ///
    /// # Errors
    /// The PEM is malformed or holds no certificate, or one of them cannot be used as an authority's.
    pub fn new(name: &str, pem: &[u8]) -> Result<Arc<ClientAuthorities>, CertificateError> {
        let path = || name.to_owned();
        let malformed = |why: String| CertificateError::Malformed { path: path(), why };
        let list = certificates(pem)
            .map_err(malformed)?
            .ok_or_else(|| CertificateError::NoCertificate { path: path() })?;
        let mut roots = RootCertStore::empty();
        let mut context = digest::Context::new(&digest::SHA256);
        for authority in list {
            context.update(&authority);
            roots.add(authority).map_err(|error| malformed(error.to_string()))?;
        }
        let roots = Arc::new(roots);
        let verifier = || WebPkiClientVerifier::builder_with_provider(roots.clone(), provider());
        let optional =
            verifier().allow_unauthenticated().build().map_err(|error| malformed(error.to_string()))?;
        let required = verifier().build().map_err(|error| malformed(error.to_string()))?;
        let mut digest = [0; 32];
        digest.copy_from_slice(context.finish().as_ref());
        Ok(Arc::new(ClientAuthorities { digest, optional, required }))
    }
}

/// Who a client is, by a certificate that has been verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientIdentity {
    /// Distinguished name (RFC 4514), without control characters.
    pub subject: String,
    /// Distinguished name of who vouches.
    pub issuer: String,
    /// The common name of the subject, where there is exactly one.
    pub common_name: Option<String>,
    /// Alternative names of the subject, each of its kind.
    pub names: Vec<AlternativeName>,
    /// How many more it has, at which nobody looks.
    pub further_names: usize,
    /// Serial number, hexadecimal, lower case.
    pub serial: String,
    /// SHA-256 of the certificate, hexadecimal, lower case.
    pub fingerprint: String,
    /// Good until, seconds since 1970.
    pub not_after: i64,
    /// The certificate itself, DER.
    pub certificate: Vec<u8>,
}

impl ClientIdentity {
    /// Of the first certificate of a PEM file, which nobody has verified: for explanations.
    ///
    /// # Errors
    /// The file cannot be read, or holds no certificate.
    pub fn read(path: &Path) -> Result<ClientIdentity, CertificateError> {
        let shown = || path.display().to_string();
        let malformed = |why: String| CertificateError::Malformed { path: shown(), why };
        let chain = certificates(&read_file(path)?).map_err(malformed)?;
        let chain = chain.ok_or_else(|| CertificateError::NoCertificate { path: shown() })?;
        ClientIdentity::of(Some(&chain)).ok_or_else(|| malformed("it is no certificate".into()))
    }

    pub(crate) fn of(chain: Option<&[CertificateDer<'_>]>) -> Option<ClientIdentity> {
        let certificate = chain?.first()?;
        let about = About::of(certificate).ok()?;
        Some(ClientIdentity {
            subject: about.subject,
            issuer: about.issuer,
            common_name: about.common_name,
            names: about.alternative,
            further_names: about.further_names,
            serial: about.serial,
            fingerprint: about.fingerprint,
            not_after: about.not_after,
            certificate: certificate.to_vec(),
        })
    }
}
