//! What the settings say of TLS: per listener, per site. Plain data like the rest; no file has been read.

use super::Origin;
use super::pool::Sealed;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A certificate chain and its key, as files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CertificateFiles {
    /// PEM; absolute.
    pub certificate: PathBuf,
    /// PEM; absolute. The same file may hold both.
    pub key: PathBuf,
    /// Where it was written.
    pub origin: Origin,
}

/// TLS on a listener.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ListenTls {
    /// For the sites that have none of their own; `None`: their certificates are automatic.
    pub certificate: Option<CertificateFiles>,
}

/// What a site wants of the TLS connections to it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SiteTls {
    /// Its own certificates; empty for that of the listener.
    pub certificates: Vec<CertificateFiles>,
    /// `None`: clients are not asked who they are.
    pub clients: Option<ClientCertificates>,
    /// TLS 1.2 is not spoken.
    pub without_tls12: bool,
    /// HTTP/2 is not offered.
    pub without_h2: bool,
    /// HTTP/1.1 is not offered.
    pub without_http11: bool,
    /// TLS 1.3 is not spoken.
    pub without_tls13: bool,
    /// Requests may come with the first flight (0-RTT).
    pub takes_early_data: bool,
}

/// Clients are asked for a certificate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClientCertificates {
    /// PEM of the authorities whose word counts; absolute.
    pub authorities: PathBuf,
    /// Nobody without one gets a connection.
    pub is_required: bool,
    /// Where it was written.
    pub origin: Origin,
}

/// Automatic certificates.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Acme {
    /// Where certificates are kept; absolute. `None`: the command chooses.
    pub storage: Option<PathBuf>,
    /// Whom an authority may write to.
    pub email: Option<String>,
    /// In the order in which they are tried.
    pub authorities: Vec<AcmeAuthority>,
    /// Ways to show that a name is ours, best first.
    pub challenges: Vec<AcmeChallenge>,
    /// What sets records for `dns-01`.
    pub dns_hook: Option<DnsHook>,
    /// Zones whose records are set by dynamic updates.
    pub dns_updates: Vec<DnsUpdate>,
}

/// An ACME server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AcmeAuthority {
    /// The URL of its directory.
    pub directory: String,
    /// PEM of what its server is verified with; `None`: what the system trusts.
    pub roots: Option<PathBuf>,
    /// External account binding: identifier and key.
    pub external_account: Option<(String, String)>,
    /// The profile asked for.
    pub profile: Option<String>,
}

/// A way to show that a name is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AcmeChallenge {
    /// A file on port 80.
    Http01,
    /// A certificate on port 443.
    TlsAlpn01,
    /// A record.
    Dns01,
}

/// A command that sets records.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DnsHook {
    /// Absolute.
    pub command: PathBuf,
    /// How long a record needs to be seen everywhere.
    pub settle: Duration,
    /// The user it runs as; `None` is the server's `user`.
    pub user: Option<String>,
    /// The group it runs as; `None` is that of `user`.
    pub group: Option<String>,
    /// What is kept out of its reach.
    #[serde(skip)]
    pub sealed: Arc<Sealed>,
}

/// A zone that may be changed by dynamic updates (RFC 2136), signed with HMAC-SHA256.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DnsUpdate {
    /// The zone.
    pub zone: String,
    /// Its primary name server.
    pub server: SocketAddr,
    /// The name of the key.
    pub key_name: String,
    /// The key, base64. Secret.
    pub key: String,
    /// How long a record needs to be seen everywhere.
    pub settle: Duration,
}
