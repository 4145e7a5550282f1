//! The ways to show an authority that a name is ours (RFC 8555 section 8, RFC 8737): each a [`Solver`] of the same shape,
//! which `authority` tries one after the other.

use super::dns::{Dns, record_name};
use super::manager::{IssueError, Local};
use super::storage::Storage;
use crate::certificate::Pair;
use instant_acme::{ChallengeType, KeyAuthorization};
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use std::rc::Rc;
use tidegate_io::clock::wall_seconds;

/// How a name is shown to be ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChallengeKind {
    /// A file on port 80.
    Http01,
    /// A certificate on port 443 (RFC 8737).
    TlsAlpn01,
    /// A record; the only way for wildcards.
    Dns01,
}

impl std::fmt::Display for ChallengeKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ChallengeKind::Http01 => "http-01",
            ChallengeKind::TlsAlpn01 => "tls-alpn-01",
            ChallengeKind::Dns01 => "dns-01",
        })
    }
}

/// The servers that an authority asks: they show it what it wants to see.
pub trait ChallengeServers {
    /// Answers `/.well-known/acme-challenge/{token}`, until it is `None`; done when every worker does.
    fn set_token<'a>(&'a self, token: &'a str, answer: Option<&'a str>) -> Local<'a, ()>;

    /// Shows this certificate to who asks for the name with `acme-tls/1` alone, until it is `None`.
    fn set_challenge<'a>(&'a self, name: &'a str, pair: Option<Pair>) -> Local<'a, ()>;
}

/// What an authority wants to see.
pub(super) struct Challenge {
    pub(super) name: String,
    pub(super) token: String,
    pub(super) proof: KeyAuthorization,
}

/// One way to let it see that.
pub(super) trait Solver {
    fn kind(&self) -> ChallengeKind;

    /// What the authority calls it.
    fn wanted(&self) -> ChallengeType;

    /// Whether it can be used for this name.
    fn is_usable_for(&self, name: &str) -> bool {
        !name.starts_with("*.")
    }

    /// Lets everybody see it; done when everybody can.
    fn present<'a>(&'a self, challenge: &'a Challenge) -> Local<'a, Result<(), IssueError>>;

    /// Takes it away, however much of it was to be seen.
    fn clean_up<'a>(&'a self, challenge: &'a Challenge) -> Local<'a, ()>;
}

/// The solver for a kind of challenge; `None` where what it needs is not set up.
pub(super) fn solver(
    kind: ChallengeKind,
    storage: &Rc<Storage>,
    servers: &Rc<dyn ChallengeServers>,
    dns: Option<&Dns>,
) -> Option<Box<dyn Solver>> {
    Some(match kind {
        ChallengeKind::Http01 => Box::new(Http01 { storage: storage.clone(), servers: servers.clone() }),
        ChallengeKind::TlsAlpn01 => Box::new(TlsAlpn01 { servers: servers.clone() }),
        ChallengeKind::Dns01 => Box::new(Dns01 { dns: dns?.clone() }),
    })
}

struct Http01 {
    storage: Rc<Storage>,
    servers: Rc<dyn ChallengeServers>,
}

impl Solver for Http01 {
    fn kind(&self) -> ChallengeKind {
        ChallengeKind::Http01
    }

    fn wanted(&self) -> ChallengeType {
        ChallengeType::Http01
    }

    fn present<'a>(&'a self, challenge: &'a Challenge) -> Local<'a, Result<(), IssueError>> {
        Box::pin(async move {
            let (token, answer) = (&challenge.token, challenge.proof.as_str());
            // For the other nodes; this one is told directly.
            let _ = self.storage.set_answer(token, Some(answer));
            self.servers.set_token(token, Some(answer)).await;
            Ok(())
        })
    }

    fn clean_up<'a>(&'a self, challenge: &'a Challenge) -> Local<'a, ()> {
        let _ = self.storage.set_answer(&challenge.token, None);
        self.servers.set_token(&challenge.token, None)
    }
}

struct TlsAlpn01 {
    servers: Rc<dyn ChallengeServers>,
}

impl Solver for TlsAlpn01 {
    fn kind(&self) -> ChallengeKind {
        ChallengeKind::TlsAlpn01
    }

    fn wanted(&self) -> ChallengeType {
        ChallengeType::TlsAlpn01
    }

    fn present<'a>(&'a self, challenge: &'a Challenge) -> Local<'a, Result<(), IssueError>> {
        Box::pin(async move {
            let pair = challenge_pair(&challenge.name, &challenge.proof)?;
            self.servers.set_challenge(&challenge.name, Some(pair)).await;
            Ok(())
        })
    }

    fn clean_up<'a>(&'a self, challenge: &'a Challenge) -> Local<'a, ()> {
        self.servers.set_challenge(&challenge.name, None)
    }
}

struct Dns01 {
    dns: Dns,
}

impl Solver for Dns01 {
    fn kind(&self) -> ChallengeKind {
        ChallengeKind::Dns01
    }

    fn wanted(&self) -> ChallengeType {
        ChallengeType::Dns01
    }

    fn is_usable_for(&self, _: &str) -> bool {
        true
    }

    fn present<'a>(&'a self, challenge: &'a Challenge) -> Local<'a, Result<(), IssueError>> {
        Box::pin(async move {
            let (record, value) = (record_name(&challenge.name), challenge.proof.dns_value());
            self.dns.present(&record, &value, wall_seconds()).await
        })
    }

    fn clean_up<'a>(&'a self, challenge: &'a Challenge) -> Local<'a, ()> {
        Box::pin(async move {
            let (record, value) = (record_name(&challenge.name), challenge.proof.dns_value());
            let _ = self.dns.clean_up(&record, &value, wall_seconds()).await; // an old record does no harm
        })
    }
}

/// The certificate that proves control of a name (RFC 8737 section 3).
fn challenge_pair(name: &str, proof: &KeyAuthorization) -> Result<Pair, IssueError> {
    let made = || -> Result<Pair, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        params.custom_extensions = vec![CustomExtension::new_acme_identifier(proof.digest().as_ref())];
        let certificate = params.self_signed(&key)?;
        Ok(Pair {
            certificate_name: format!("challenge for {name}"),
            key_name: format!("challenge for {name}"),
            certificate: certificate.pem().into_bytes(),
            key: key.serialize_pem().into_bytes(),
        })
    };
    made().map_err(|error| IssueError::new(format!("cannot make the challenge's certificate: {error}")))
}
