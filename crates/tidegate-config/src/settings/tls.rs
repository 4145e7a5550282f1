//! What the settings say of TLS: per listener, per site. Plain data like the rest; no file has been read.

use super::Origin;
use std::path::PathBuf;

/// A certificate chain and its key, as files.
#[derive(Debug, Clone, PartialEq)]
pub struct CertificateFiles {
    /// PEM; absolute.
    pub certificate: PathBuf,
    /// PEM; absolute. The same file may hold both.
    pub key: PathBuf,
    /// Where it was written.
    pub origin: Origin,
}

/// TLS on a listener.
#[derive(Debug, Clone, PartialEq)]
pub struct ListenTls {
    /// For the sites that have none of their own; `None`: their certificates are automatic.
    pub certificate: Option<CertificateFiles>,
}

/// What a site wants of the TLS connections to it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SiteTls {
    /// Its own certificates; empty for that of the listener.
    pub certificates: Vec<CertificateFiles>,
    /// `None`: clients are not asked who they are.
    pub clients: Option<ClientCertificates>,
    /// TLS 1.2 is not spoken.
    pub without_tls12: bool,
    /// TLS 1.3 is not spoken.
    pub without_tls13: bool,
    /// Requests may come with the first flight (0-RTT).
    pub takes_early_data: bool,
}

/// Clients are asked for a certificate.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientCertificates {
    /// PEM of the authorities whose word counts; absolute.
    pub authorities: PathBuf,
    /// Nobody without one gets a connection.
    pub is_required: bool,
    /// Where it was written.
    pub origin: Origin,
}
