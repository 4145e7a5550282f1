//! TLS: sessions on the reactor's buffers, certificates, session tickets, client certificates.
//!
//! `tidegate-core` drives a [`Session`] where it would have a bare socket, whoever connects to others a
//! [`ClientSession`]; the binary fills [`Slot`]s with
//! certificates and owns the [`TicketKeys`]. The crate knows no HTTP and no settings file: what a site wants
//! comes as [`Terms`].

#[cfg(feature = "acme")]
pub mod acme;
pub mod certificate;
pub mod challenge;
pub mod client;
pub mod client_session;
pub mod connector;
mod distinguished_name;
mod early_skip;
pub mod hello;
pub mod inspect;
mod key_fault;
mod records;
mod resumed_client;
pub mod session;
mod session_store;
pub mod terms;
pub mod ticket;

pub use certificate::AlternativeName;
pub use certificate::{Certificate, CertificateError, NOT_FOR_THIS_USER, Pair, Slot};
pub use challenge::Challenges;
pub use client::{ClientAuthorities, ClientIdentity, ClientPolicy};
pub use client_session::{Agreed, CLIENT_BUFFER, ClientSession, ClientSessionError};
pub use connector::{Connector, ConnectorError, ConnectorOptions, Trust, TrustedRoots, system_roots};
pub use hello::{Hello, Peeked};
pub use session::{Handshake, Resumption, Session, SessionError};
pub use terms::{Protocols, SiteConfig, Terms, TermsError, Versions};
pub use ticket::TicketKeys;

pub use rustls::pki_types::ServerName;

use rustls::crypto::CryptoProvider;
use std::sync::{Arc, OnceLock};

/// Fills `bytes` with numbers that nobody guesses: a generator of this thread, which the kernel has seeded.
///
/// # Errors
/// The system has no random numbers.
pub fn fill_random(bytes: &mut [u8]) -> std::io::Result<()> {
    aws_lc_rs::rand::fill(bytes).map_err(|_| std::io::Error::other("the system has no random numbers"))
}

/// The algorithms: AWS-LC's, with X25519MLKEM768 first among the key exchanges.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER.get_or_init(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider())).clone()
}

/// The same in the order that servers prefer: AES-128 with SHA-256 takes a third less processor time for a handshake than
/// AES-256 with SHA-384, and nobody breaks either.
pub(crate) fn server_provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    let make = || {
        let mut ordered = CryptoProvider::clone(&provider());
        ordered.cipher_suites.sort_by_key(|suite| match suite.suite().as_str() {
            Some(name) if name.contains("AES_128") => 0,
            Some(name) if name.contains("AES_256") => 1,
            _ => 2,
        });
        Arc::new(ordered)
    };
    PROVIDER.get_or_init(make).clone()
}
