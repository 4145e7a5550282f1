//! Certificates: a pair of PEM texts to what rustls signs with, and the slot that a running server takes it
//! from.
//!
//! A [`Pair`] travels between processes as bytes. A [`Slot`] outlives every revision of the settings: when its
//! files change, the next handshake uses the new pair; a broken one leaves the old one where it is.

use crate::distinguished_name;
use crate::key_fault::{has_passphrase, key_problem, length_problem, pem_problem};
use aws_lc_rs::digest;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use thiserror::Error;
use tidegate_io::regular::read_regular;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};
use x509_parser::public_key::PublicKey;

/// Larger files are no certificates.
const FILE_MAX: u64 = 1 << 20;

/// Why a file is not read, where its permissions say so.
pub const NOT_FOR_THIS_USER: &str = "the user that runs the server may not read it";

/// Why a pair cannot be used. Each names the file that is at fault.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("cannot read {path}: {why}")]
    Unreadable {
        /// The file.
        path: String,
        /// What the system says.
        why: String,
    },
    /// There is no certificate in it.
    #[error("{path} holds no certificate: it must have a line `-----BEGIN CERTIFICATE-----`")]
    NoCertificate {
        /// The file.
        path: String,
    },
    /// There is no private key in it.
    #[error("{path} holds no private key: it must have a line `-----BEGIN PRIVATE KEY-----`")]
    NoKey {
        /// The file.
        path: String,
    },
    /// The private key in it can be read by who knows its passphrase.
    #[error(
        "the private key in {path} has a passphrase, and nobody is asked for it: take it off with `openssl pkey -in {path} -out NEW`"
    )]
    HasPassphrase {
        /// The file.
        path: String,
    },
    /// A certificate cannot be understood.
    #[error("{path} holds a certificate that cannot be read: {why}")]
    Malformed {
        /// The file.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// The key is of a kind or a length that is not supported.
    #[error("the private key in {path} cannot be used: {why}")]
    UnusableKey {
        /// The file.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// The key belongs to another certificate.
    #[error("the private key in {key} does not belong to the certificate in {certificate}")]
    Mismatch {
        /// File of the certificate.
        certificate: String,
        /// File of the key.
        key: String,
    },
}

/// A certificate chain and its private key as PEM, with the names of where they came from.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// The file of the chain, or another name for messages.
    pub certificate_name: String,
    /// The file of the key.
    pub key_name: String,
    /// PEM, the server's certificate first.
    #[serde(with = "as_text")]
    pub certificate: Vec<u8>,
    /// PEM. Secret.
    #[serde(with = "as_text")]
    pub key: Vec<u8>,
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pair({}, {})", self.certificate_name, self.key_name)
    }
}

impl Pair {
    /// Reads both files; one file may hold both.
    ///
    /// # Errors
    /// A file cannot be read, see [`read_file`].
    pub fn read(certificate: &Path, key: &Path) -> Result<Pair, CertificateError> {
        Ok(Pair {
            certificate_name: certificate.display().to_string(),
            key_name: key.display().to_string(),
            certificate: read_file(certificate)?,
            key: read_file(key)?,
        })
    }

    /// One whose certificate and key are in one text.
    #[cfg(feature = "acme")]
    pub(crate) fn in_one_file(name: &str, pem: &[u8]) -> Pair {
        let (name, pem) = (name.to_owned(), pem.to_vec());
        Pair { certificate_name: name.clone(), key_name: name, certificate: pem.clone(), key: pem }
    }
}

/// PEM is text: that is the short way to write it down.
mod as_text {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&String::from_utf8_lossy(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        String::deserialize(from).map(String::into_bytes)
    }
}

/// Reads a file of PEM, within bounds.
///
/// # Errors
/// [`CertificateError::Unreadable`]: the file cannot be read, is no regular file, or is larger than 1 MiB.
pub fn read_file(path: &Path) -> Result<Vec<u8>, CertificateError> {
    let unreadable = |why: String| CertificateError::Unreadable { path: path.display().to_string(), why };
    read_regular(path, FILE_MAX).map_err(|error| unreadable(said(&error)))
}

fn said(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "it does not exist".into(),
        std::io::ErrorKind::PermissionDenied => NOT_FOR_THIS_USER.into(),
        std::io::ErrorKind::IsADirectory => "it is a folder".into(),
        _ => error.to_string(),
    }
}

/// What kind of key a certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyKind {
    /// Elliptic curves; the field's size in bits. Preferred: the cheapest to sign with that all clients know.
    Ecdsa(u16),
    /// Ed25519. Browsers do not offer it.
    Ed25519,
    /// RSA; the modulus in bits.
    Rsa(u16),
    /// Something else.
    Other,
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyKind::Ecdsa(bits) => write!(f, "ECDSA {bits}"),
            KeyKind::Ed25519 => f.write_str("Ed25519"),
            KeyKind::Rsa(bits) => write!(f, "RSA {bits}"),
            KeyKind::Other => f.write_str("a key of another kind"),
        }
    }
}

/// What a certificate says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// Host names and addresses it is good for, lower case; `*.` in front stands for one label.
    pub names: Vec<String>,
    /// All names of the extension, with what they are; what is no plain text is left out.
    pub alternative: Vec<AlternativeName>,
    /// How many such names are not among them, since there are more than anybody looks at.
    pub further_names: usize,
    /// The common name of the subject, where there is exactly one.
    pub common_name: Option<String>,
    /// Good from, seconds since 1970.
    pub not_before: i64,
    /// Good until, seconds since 1970.
    pub not_after: i64,
    /// The kind of its key.
    pub key: KeyKind,
    /// Whom it is for (RFC 4514).
    pub subject: String,
    /// Who has signed it (RFC 4514).
    pub issuer: String,
    /// Signed by itself.
    pub is_self_signed: bool,
    /// Signed with SHA-1 or MD5.
    pub has_weak_signature: bool,
    /// Serial number, hexadecimal, lower case.
    pub serial: String,
    /// SHA-256 of the certificate, hexadecimal, lower case.
    pub fingerprint: String,
}

impl About {
    /// Reads a certificate in DER.
    ///
    /// # Errors
    /// It does not begin with an X.509 certificate; the text says why.
    pub fn of(der: &[u8]) -> Result<About, String> {
        let (_, certificate) = X509Certificate::from_der(der)
            .map_err(|error| length_problem(der).unwrap_or_else(|| error.to_string()))?;
        let alternative = certificate.subject_alternative_name().ok().flatten();
        let mut names: Vec<String> = Vec::new();
        let (mut known, mut further_names): (Vec<AlternativeName>, usize) = (Vec::new(), 0);
        for name in alternative.iter().flat_map(|extension| &extension.value.general_names) {
            let named = match name {
                GeneralName::DNSName(name) => Some(AlternativeName::Dns(name.to_ascii_lowercase())),
                GeneralName::RFC822Name(name) => Some(AlternativeName::Email(with_lower_case_domain(name))),
                GeneralName::URI(name) => Some(AlternativeName::Uri((*name).to_owned())),
                _ => None,
            };
            match named.filter(AlternativeName::is_plain) {
                Some(_) if known.len() == NAMES_MAX => further_names += 1,
                named => known.extend(named),
            }
            match name {
                GeneralName::DNSName(name) => names.push(name.to_ascii_lowercase()),
                GeneralName::IPAddress(bytes) => names.extend(address(bytes)),
                _ => {}
            }
        }
        let key = match certificate.public_key().parsed() {
            Ok(PublicKey::RSA(rsa)) => KeyKind::Rsa(bits_of(rsa.modulus)),
            Ok(PublicKey::EC(point)) => KeyKind::Ecdsa(u16::try_from(point.key_size()).unwrap_or(u16::MAX)),
            Ok(PublicKey::Unknown(_))
                if certificate.public_key().algorithm.algorithm.to_id_string() == "1.3.101.112" =>
            {
                KeyKind::Ed25519
            }
            _ => KeyKind::Other,
        };
        let signature = certificate.signature_algorithm.algorithm.to_id_string();
        let mut common = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
        let common_name = common.next().filter(|name| common.next().is_none() && is_plain(name));
        let common_name = common_name.map(str::to_owned);
        Ok(About {
            names,
            alternative: known,
            further_names,
            common_name,
            not_before: certificate.validity().not_before.timestamp(),
            not_after: certificate.validity().not_after.timestamp(),
            key,
            subject: distinguished_name::text_of(certificate.subject()),
            issuer: distinguished_name::text_of(certificate.issuer()),
            is_self_signed: certificate.subject().as_raw() == certificate.issuer().as_raw(),
            has_weak_signature: WEAK_SIGNATURES.contains(&signature.as_str()),
            serial: hex(certificate.raw_serial()),
            fingerprint: hex(digest::digest(&digest::SHA256, der).as_ref()),
        })
    }

    /// Whether it is good for a host name, lower case. A star stands for exactly one label (RFC 6125).
    pub fn covers(&self, host: &str) -> bool {
        self.names.iter().any(|name| match name.strip_prefix("*.") {
            None => name == host,
            Some(parent) => {
                host.split_once('.').is_some_and(|(label, rest)| !label.is_empty() && rest == parent)
            }
        })
    }
}

/// Most names of a certificate that somebody may be known by.
const NAMES_MAX: usize = 64;

/// A name of the extension for alternative names (RFC 5280 section 4.2.1.6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AlternativeName {
    /// Lower case.
    Dns(String),
    /// The part behind the `@` in lower case.
    Email(String),
    /// As it stands.
    Uri(String),
}

impl AlternativeName {
    /// The name alone.
    pub fn as_str(&self) -> &str {
        match self {
            AlternativeName::Dns(name) | AlternativeName::Email(name) | AlternativeName::Uri(name) => name,
        }
    }

    fn is_plain(&self) -> bool {
        is_plain(self.as_str())
    }
}

/// Whether a name is one that two readers cannot read differently: no end of text in it, no control characters.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.len() <= 512 && !name.chars().any(char::is_control)
}

/// Of an address of mail the domain minds no case.
pub fn with_lower_case_domain(name: &str) -> String {
    match name.rsplit_once('@') {
        Some((local, domain)) => format!("{local}@{}", domain.to_ascii_lowercase()),
        None => name.to_owned(),
    }
}

/// MD5 and SHA-1 with RSA, SHA-1 with DSA and ECDSA.
const WEAK_SIGNATURES: [&str; 4] =
    ["1.2.840.113549.1.1.4", "1.2.840.113549.1.1.5", "1.2.840.10040.4.3", "1.2.840.10045.4.1"];

fn bits_of(modulus: &[u8]) -> u16 {
    let skipped = modulus.iter().take_while(|byte| **byte == 0).count();
    let first = modulus.get(skipped).map_or(8, |byte| byte.leading_zeros());
    let bits = modulus.len().saturating_sub(skipped).saturating_mul(8).saturating_sub(first as usize);
    u16::try_from(bits).unwrap_or(u16::MAX)
}

fn address(bytes: &[u8]) -> Option<String> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(std::net::Ipv4Addr::from(four).to_string());
    }
    <[u8; 16]>::try_from(bytes).ok().map(|sixteen| std::net::Ipv6Addr::from(sixteen).to_string())
}

/// Bytes as hexadecimal digits, lower case.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// A pair that can be served.
#[derive(Debug)]
pub struct Certificate {
    /// What rustls signs with.
    pub(crate) key: Arc<CertifiedKey>,
    /// What the server's own certificate says.
    pub about: About,
    /// What those above it say, in the order they are sent.
    pub chain: Vec<About>,
}

impl Certificate {
    /// Reads a pair, and refuses a key that belongs to another certificate. Dates and names are not judged.
    ///
    /// # Errors
    /// There is no certificate or no private key, one of the certificates is malformed, the key is of a kind
    /// that is not supported, or it belongs to another certificate.
    pub fn new(pair: &Pair) -> Result<Certificate, CertificateError> {
        let path = || pair.certificate_name.clone();
        let malformed = |why: String| CertificateError::Malformed { path: path(), why };
        let chain = certificates(&pair.certificate)
            .map_err(malformed)?
            .ok_or_else(|| CertificateError::NoCertificate { path: path() })?;
        let key_path = || pair.key_name.clone();
        let key = PrivateKeyDer::from_pem_slice(&pair.key).map_err(|error| match error {
            _ if has_passphrase(&pair.key) => CertificateError::HasPassphrase { path: key_path() },
            pem::Error::NoItemsFound => CertificateError::NoKey { path: key_path() },
            error => CertificateError::UnusableKey { path: key_path(), why: pem_problem(&error) },
        })?;
        let mut about =
            chain.iter().map(|der| About::of(der)).collect::<Result<Vec<_>, _>>().map_err(malformed)?;
        let signing = crate::provider().key_provider.load_private_key(key).map_err(|error| {
            let key = PrivateKeyDer::from_pem_slice(&pair.key); // the library has taken the first
            let why = key.map_or_else(|_| error.to_string(), |key| key_problem(&key, &error));
            CertificateError::UnusableKey { path: key_path(), why }
        })?;
        let key = CertifiedKey::new(chain, signing);
        if let Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch)) = key.keys_match()
        {
            return Err(CertificateError::Mismatch { certificate: path(), key: key_path() });
        }
        let own = about.remove(0); // there is one: see above
        Ok(Certificate { key: Arc::new(key), about: own, chain: about })
    }
}

/// The certificates of a PEM text; `None` where there is none.
pub(crate) fn certificates(pem: &[u8]) -> Result<Option<Vec<CertificateDer<'static>>>, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.map_err(|error| pem_problem(&error))?;
    Ok((!chain.is_empty()).then_some(chain))
}

/// A place for a certificate that may change while it is served from.
#[derive(Debug)]
pub struct Slot {
    present: RwLock<Option<Arc<Certificate>>>,
}

impl Slot {
    /// An empty one: until it is filled, handshakes that need it fail.
    pub fn empty() -> Arc<Slot> {
        Arc::new(Slot { present: RwLock::new(None) })
    }

    /// One with a certificate.
    pub fn new(certificate: Certificate) -> Arc<Slot> {
        let slot = Slot::empty();
        slot.fill(certificate);
        slot
    }

    /// Puts another certificate in; handshakes from now on use it.
    pub fn fill(&self, certificate: Certificate) {
        *self.present.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(certificate));
    }

    /// The present one.
    pub fn present(&self) -> Option<Arc<Certificate>> {
        self.present.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
