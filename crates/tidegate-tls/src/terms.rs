//! What a site wants of its TLS connections, made into what rustls needs: versions, protocols, certificates,
//! clients, tickets.
//!
//! Made once for each site and listener and revision of the settings, shared by all workers.

use crate::certificate::{KeyKind, Slot};
use crate::client::ClientPolicy;
use crate::hello::Hello;
use crate::server_provider;
use crate::ticket::TicketKeys;
use aws_lc_rs::digest;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, ServerSessionMemoryCache};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, SignatureScheme, SupportedProtocolVersion};
use std::fmt;
use std::sync::Arc;
use thiserror::Error;

/// Sessions that a site with early data remembers: each is good for one early request.
const EARLY_SESSIONS: usize = 4096;
/// Bytes of early data that a client may send.
pub(crate) const EARLY_DATA: u32 = 16 << 10;

/// Why terms cannot hold; always the settings' doing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TermsError {
    /// No version is left.
    #[error("no TLS version is left to speak: name `1.2`, `1.3` or both")]
    NoVersion,
    /// The two cannot go together: early data comes before a client has shown who it is.
    #[error("early data cannot go with client certificates: it comes before the client has shown its own")]
    EarlyClients,
    /// Rustls refuses for another reason.
    #[error("these settings cannot be served with TLS: {0}")]
    Refused(String),
}

/// Versions of TLS that are spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Versions {
    /// RFC 5246, with modern suites alone.
    pub tls12: bool,
    /// RFC 8446.
    pub tls13: bool,
}

impl Default for Versions {
    fn default() -> Self {
        Versions { tls12: true, tls13: true }
    }
}

/// Protocols that a client may choose from by ALPN, in the server's order of preference.
pub type Protocols = Vec<Vec<u8>>;

/// What a site wants.
#[derive(Debug, Clone)]
pub struct Terms {
    /// What tells this site from others; a session never leaves it.
    pub scope: String,
    /// Certificates to choose from.
    pub certificates: Vec<Arc<Slot>>,
    /// The name that is meant where a client names none: the address it has connected to (RFC 6066 section 3 has no
    /// addresses in `server_name`).
    pub unnamed: Option<String>,
    /// Versions that are allowed.
    pub versions: Versions,
    /// Names of ALPN that are spoken here; with none, nothing is agreed upon.
    pub protocols: Protocols,
    /// Client certificates.
    pub clients: ClientPolicy,
    /// Whether a request may come with the first flight (0-RTT), from TLS 1.3 clients that resume.
    pub takes_early_data: bool,
}

/// Terms ready for handshakes.
#[derive(Debug)]
pub struct SiteConfig {
    config: Arc<ServerConfig>,
    /// For clients that know better: those without hardware for AES.
    client_order: Arc<ServerConfig>,
    scope: Vec<u8>,
    clients: Vec<u8>,
}

impl SiteConfig {
    /// Makes them. `tickets` is what all sites of the server share.
    ///
    /// # Errors
    /// No version is allowed, early data is to be taken where client certificates are asked for, or rustls
    /// refuses the versions.
    pub fn new(terms: &Terms, tickets: &Arc<TicketKeys>) -> Result<Arc<SiteConfig>, TermsError> {
        if terms.takes_early_data && !matches!(terms.clients, ClientPolicy::None) {
            return Err(TermsError::EarlyClients);
        }
        let mut versions: Vec<&'static SupportedProtocolVersion> = Vec::new();
        if terms.versions.tls13 {
            versions.push(&rustls::version::TLS13);
        }
        if terms.versions.tls12 {
            versions.push(&rustls::version::TLS12);
        }
        if versions.is_empty() {
            return Err(TermsError::NoVersion);
        }
        let builder = ServerConfig::builder_with_provider(server_provider())
            .with_protocol_versions(&versions)
            .map_err(|error| TermsError::Refused(error.to_string()))?;
        let verifier = terms.clients.verifier();
        let builder = match verifier.clone() {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::new(Choice {
            slots: terms.certificates.clone(),
            unnamed: terms.unnamed.clone(),
        }));
        config.alpn_protocols = terms.protocols.clone();
        // The scope is what tells sites and their rules for clients apart (FAULTS 53).
        let scope = scope(terms);
        if terms.takes_early_data {
            // Early data can be sent again by anyone who has recorded it (RFC 8446 section 8): sessions are
            // kept here, each is good once, and what they may ask for is bounded by who reads the request.
            config.session_storage = ServerSessionMemoryCache::new(EARLY_SESSIONS);
            config.max_early_data_size = EARLY_DATA;
            config.send_half_rtt_data = true;
        } else {
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.ticketer = tickets.scoped(&scope, verifier);
        }
        let client_order = Arc::new(config.clone());
        config.ignore_client_order = true;
        let clients = terms.clients.scope();
        Ok(Arc::new(SiteConfig { config: Arc::new(config), client_order, scope, clients }))
    }

    /// For a challenge, see [`crate::Challenges`].
    pub fn of_challenge(config: Arc<ServerConfig>) -> Arc<SiteConfig> {
        let clients = ClientPolicy::None.scope();
        Arc::new(SiteConfig { client_order: config.clone(), config, scope: Vec::new(), clients })
    }

    /// What rustls needs for a client.
    pub(crate) fn config_for(&self, hello: &Hello) -> &Arc<ServerConfig> {
        if hello.prefers_chacha { &self.client_order } else { &self.config }
    }

    /// Whether a client that offers protocols offers one that is spoken here (RFC 7301 section 3.2).
    pub(crate) fn shares_a_protocol(&self, hello: &Hello) -> bool {
        let spoken = &self.config.alpn_protocols;
        hello.protocols.is_empty()
            || spoken.is_empty()
            || hello.protocols.iter().any(|offered| spoken.contains(offered))
    }

    /// What is asked of clients, and which authorities are believed: [`ClientPolicy::scope`].
    pub fn clients(&self) -> &[u8] {
        &self.clients
    }

    /// The same for two sites only where a session may go from one to the other: never, but for a site that
    /// is reached through several listeners.
    pub fn scope(&self) -> &[u8] {
        &self.scope
    }
}

fn scope(terms: &Terms) -> Vec<u8> {
    let clients = terms.clients.scope();
    let versions = [u8::from(terms.versions.tls12), u8::from(terms.versions.tls13)];
    let mut context = digest::Context::new(&digest::SHA256);
    for part in [terms.scope.as_bytes(), &clients, &versions] {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    context.finish().as_ref().to_vec()
}

/// Chooses among the certificates of a site by the name asked for and by what the client can verify.
struct Choice {
    slots: Vec<Arc<Slot>>,
    unnamed: Option<String>,
}

impl fmt::Debug for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Choice({} certificates)", self.slots.len())
    }
}

impl ResolvesServerCert for Choice {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.choose(hello.server_name(), hello.signature_schemes())
    }
}

impl Choice {
    /// One that covers the name before one that does not, ECDSA before RSA, and none that the client cannot
    /// verify, unless there is no other.
    fn choose(&self, name: Option<&str>, schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let name = name.map(str::to_ascii_lowercase).or_else(|| self.unnamed.clone());
        let rank = |certificate: &crate::Certificate| {
            let is_usable = certificate.key.key.choose_scheme(schemes).is_some();
            let covers = name.as_deref().is_none_or(|name| certificate.about.covers(name));
            let kind = match certificate.about.key {
                KeyKind::Ecdsa(_) => 0,
                KeyKind::Ed25519 => 1,
                KeyKind::Rsa(_) | KeyKind::Other => 2,
            };
            (!is_usable, !covers, kind)
        };
        let present = self.slots.iter().filter_map(|slot| slot.present());
        present.min_by_key(|certificate| rank(certificate)).map(|certificate| certificate.key.clone())
    }
}
