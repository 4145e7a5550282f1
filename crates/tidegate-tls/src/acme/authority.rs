//! An ACME server (RFC 8555), through `instant-acme`: accounts, orders, challenges, renewal windows.

use super::dns::{Dns, record_name};
use super::local::is_local;
use super::manager::{Issue, IssueError, Local};
use super::schedule::Window;
use super::storage::Storage;
use crate::certificate::{Pair, certificates};
use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, CertificateIdentifier, ChallengeType,
    ExternalAccountKey, Identifier, KeyAuthorization, NewAccount, NewOrder, Order, OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use tidegate_io::clock::wall_seconds;

/// How long an authority may take to look at challenges, and to issue.
const PATIENCE: Duration = Duration::from_secs(180);

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

/// An authority as the settings name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcmeOptions {
    /// The URL of its directory.
    pub directory: String,
    /// Certificates that its server is verified with, PEM; `None`: those of the system.
    pub roots: Option<PathBuf>,
    /// Whom it may write to.
    pub email: Option<String>,
    /// External account binding: the identifier, and the key in base64url.
    pub external_account: Option<(String, String)>,
    /// The profile of certificates asked for.
    pub profile: Option<String>,
    /// Which challenges may be used, best first.
    pub challenges: Vec<ChallengeKind>,
    /// How records are set, for [`ChallengeKind::Dns01`].
    pub dns: Option<Dns>,
}

/// What lets an authority see the answers.
pub trait Solver {
    /// Answers `/.well-known/acme-challenge/{token}`, until it is `None`; done when every worker does.
    fn set_token<'a>(&'a self, token: &'a str, answer: Option<&'a str>) -> Local<'a, ()>;

    /// Shows this certificate to who asks for the name with `acme-tls/1` alone, until it is `None`.
    fn set_challenge<'a>(&'a self, name: &'a str, pair: Option<Pair>) -> Local<'a, ()>;
}

/// An ACME server and our account with it.
pub struct AcmeAuthority {
    options: AcmeOptions,
    storage: Rc<Storage>,
    solver: Rc<dyn Solver>,
    account: RefCell<Option<Account>>,
}

/// What was set up for a challenge and must be taken away.
enum Answer {
    Token(String),
    Challenge(String),
    Record(String, String),
}

impl AcmeAuthority {
    /// Speaks to nobody yet.
    pub fn new(options: AcmeOptions, storage: Rc<Storage>, solver: Rc<dyn Solver>) -> AcmeAuthority {
        AcmeAuthority { options, storage, solver, account: RefCell::default() }
    }

    /// Our account: as it was kept, else a new one.
    async fn account(&self) -> Result<Account, IssueError> {
        let known = self.account.borrow().clone();
        if let Some(account) = known {
            return Ok(account);
        }
        let builder = || match &self.options.roots {
            Some(roots) => Account::builder_with_root(roots),
            None => Account::builder(),
        };
        let directory = &self.options.directory;
        let kept = self.storage.account(directory);
        let kept = kept.and_then(|text| serde_json::from_str::<AccountCredentials>(&text).ok());
        let account = match kept {
            Some(credentials) => {
                builder().map_err(said)?.from_credentials(credentials).await.map_err(said)?
            }
            None => {
                let binding = self.external_account()?;
                let contact = self.options.email.as_ref().map(|email| format!("mailto:{email}"));
                let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
                let new = NewAccount {
                    contact: &contact,
                    terms_of_service_agreed: true,
                    only_return_existing: false,
                };
                let made = builder().map_err(said)?.create(&new, directory.clone(), binding.as_ref()).await;
                let (account, credentials) = made.map_err(said)?;
                let text = serde_json::to_string(&credentials)
                    .map_err(|error| IssueError::new(error.to_string()))?;
                self.storage.keep_account(directory, &text).map_err(|error| {
                    IssueError::new(format!(
                        "cannot keep the account in {}: {error}",
                        self.storage.root().display()
                    ))
                })?;
                account
            }
        };
        *self.account.borrow_mut() = Some(account.clone());
        Ok(account)
    }

    fn external_account(&self) -> Result<Option<ExternalAccountKey>, IssueError> {
        let Some((id, key)) = &self.options.external_account else { return Ok(None) };
        let key = base64(key).ok_or_else(|| IssueError::new("the key of `eab` is not base64url"))?;
        Ok(Some(ExternalAccountKey::new(id.clone(), &key)))
    }

    /// The challenges that can be used for a name.
    fn kinds_for(&self, name: &str) -> Vec<ChallengeKind> {
        let usable = |kind: &&ChallengeKind| match kind {
            ChallengeKind::Dns01 => self.options.dns.is_some(),
            ChallengeKind::Http01 | ChallengeKind::TlsAlpn01 => !name.starts_with("*."),
        };
        self.options.challenges.iter().filter(usable).copied().collect()
    }

    async fn order(
        &self,
        kind: ChallengeKind,
        name: &str,
        present: Option<&Pair>,
    ) -> Result<(String, String), IssueError> {
        let account = self.account().await?;
        let identifiers = [Identifier::Dns(name.to_owned())];
        let leaf = present.and_then(leaf_of);
        let replaces = leaf.as_ref().and_then(|leaf| CertificateIdentifier::try_from(leaf).ok());
        let new = || {
            let new = NewOrder::new(&identifiers);
            match &self.options.profile {
                Some(profile) => new.profile(profile),
                None => new,
            }
        };
        let mut order = match replaces {
            // Where it is none of its own, or replaced already, the order is good without saying so.
            Some(replaces) => match account.new_order(&new().replaces(replaces.into_owned())).await {
                Ok(order) => order,
                Err(_) => account.new_order(&new()).await.map_err(said)?,
            },
            None => account.new_order(&new()).await.map_err(said)?,
        };
        let mut answers = Vec::new();
        let outcome = self.answer_and_finish(&mut order, kind, name, &mut answers).await;
        for answer in answers {
            self.take_away(answer).await;
        }
        outcome
    }

    async fn answer_and_finish(
        &self,
        order: &mut Order,
        kind: ChallengeKind,
        name: &str,
        answers: &mut Vec<Answer>,
    ) -> Result<(String, String), IssueError> {
        let wanted = match kind {
            ChallengeKind::Http01 => ChallengeType::Http01,
            ChallengeKind::TlsAlpn01 => ChallengeType::TlsAlpn01,
            ChallengeKind::Dns01 => ChallengeType::Dns01,
        };
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization.map_err(said)?;
            match authorization.status {
                AuthorizationStatus::Valid => continue,
                AuthorizationStatus::Pending => {}
                other => return Err(IssueError::new(format!("the authorization is {other:?}"))),
            }
            let mut challenge = authorization
                .challenge(wanted.clone())
                .ok_or_else(|| IssueError::new(format!("the authority does not offer {wanted:?}")))?;
            let (token, proof) = (challenge.token.clone(), challenge.key_authorization());
            self.set_up(kind, name, &token, &proof, answers).await?;
            challenge.set_ready().await.map_err(said)?;
        }
        let policy = RetryPolicy::default().timeout(PATIENCE);
        let status = order.poll_ready(&policy).await.map_err(said)?;
        if status != OrderStatus::Ready && status != OrderStatus::Valid {
            return Err(IssueError::new(refusal(order).await));
        }
        let failed = |error: rcgen::Error| IssueError::new(format!("cannot make the request: {error}"));
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::new(vec![name.to_owned()]).map_err(failed)?;
        params.distinguished_name = DistinguishedName::new();
        let request = params.serialize_request(&key).map_err(failed)?;
        order.finalize_csr(request.der()).await.map_err(said)?;
        let chain = order.poll_certificate(&policy).await.map_err(said)?;
        Ok((chain, key.serialize_pem()))
    }

    async fn set_up(
        &self,
        kind: ChallengeKind,
        name: &str,
        token: &str,
        proof: &KeyAuthorization,
        answers: &mut Vec<Answer>,
    ) -> Result<(), IssueError> {
        match kind {
            ChallengeKind::Http01 => {
                answers.push(Answer::Token(token.to_owned()));
                // For the other nodes; this one is told directly.
                let _ = self.storage.set_answer(token, Some(proof.as_str()));
                self.solver.set_token(token, Some(proof.as_str())).await;
            }
            ChallengeKind::TlsAlpn01 => {
                let pair = challenge_pair(name, proof)?;
                answers.push(Answer::Challenge(name.to_owned()));
                self.solver.set_challenge(name, Some(pair)).await;
            }
            ChallengeKind::Dns01 => {
                let (record, value) = (record_name(name), proof.dns_value());
                let dns = self.options.dns.as_ref().ok_or_else(|| IssueError::new("no DNS is set up"))?;
                answers.push(Answer::Record(record.clone(), value.clone()));
                dns.present(&record, &value, wall_seconds()).await?;
            }
        }
        Ok(())
    }

    async fn take_away(&self, answer: Answer) {
        match answer {
            Answer::Token(token) => {
                let _ = self.storage.set_answer(&token, None);
                self.solver.set_token(&token, None).await;
            }
            Answer::Challenge(name) => self.solver.set_challenge(&name, None).await,
            Answer::Record(record, value) => {
                if let Some(dns) = &self.options.dns {
                    let _ = dns.clean_up(&record, &value, wall_seconds()).await; // an old record does no harm
                }
            }
        }
    }
}

impl Issue for AcmeAuthority {
    fn name(&self) -> String {
        self.options.directory.clone()
    }

    fn issues_for(&self, name: &str) -> bool {
        !is_local(name)
    }

    fn obtain<'a>(
        &'a self,
        name: &'a str,
        present: Option<&'a Pair>,
    ) -> Local<'a, Result<(String, String), IssueError>> {
        Box::pin(async move {
            let mut said = Vec::new();
            for kind in self.kinds_for(name) {
                match self.order(kind, name, present).await {
                    Ok(issued) => return Ok(issued),
                    Err(error) => said.push(format!("{} ({kind})", error.said)),
                }
                *self.account.borrow_mut() = None; // the next attempt begins anew
            }
            if said.is_empty() {
                said.push("no challenge that is allowed can be used for it; a wildcard needs dns-01".into());
            }
            Err(IssueError::new(said.join("; ")))
        })
    }

    fn window<'a>(&'a self, present: &'a Pair) -> Local<'a, Option<(Window, Option<i64>)>> {
        Box::pin(async move {
            let leaf = leaf_of(present)?;
            let id = CertificateIdentifier::try_from(&leaf).ok()?;
            let account = self.account().await.ok()?;
            let (info, again) = account.renewal_info(&id).await.ok()?;
            let window = Window {
                start: info.suggested_window.start.unix_timestamp(),
                end: info.suggested_window.end.unix_timestamp(),
            };
            Some((window, i64::try_from(again.as_secs()).ok()))
        })
    }
}

fn leaf_of(pair: &Pair) -> Option<rustls::pki_types::CertificateDer<'static>> {
    certificates(&pair.certificate).ok()??.into_iter().next()
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

/// Why the authority has refused an order: what it says of its challenges.
async fn refusal(order: &mut Order) -> String {
    let mut said = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(Ok(authorization)) = authorizations.next().await {
        said.extend(
            authorization.challenges.iter().filter_map(|challenge| challenge.error.as_ref()).map(problem),
        );
    }
    if said.is_empty() { "the authority has refused the order".into() } else { said.join("; ") }
}

fn said(error: instant_acme::Error) -> IssueError {
    match error {
        instant_acme::Error::Api(refused) => IssueError::new(problem(&refused)),
        error => {
            // The cause says more: a name that is not known, a certificate that is not believed.
            let mut text = error.to_string();
            let mut cause = std::error::Error::source(&error);
            while let Some(next) = cause {
                text = format!("{text}: {next}");
                cause = next.source();
            }
            IssueError::new(plain(&text))
        }
    }
}

fn problem(problem: &instant_acme::Problem) -> String {
    let mut text =
        problem.detail.clone().or_else(|| problem.r#type.clone()).unwrap_or_else(|| "refused".into());
    for sub in &problem.subproblems {
        text += &format!("; {}", sub.detail.clone().unwrap_or_default());
    }
    plain(&text)
}

/// What others say goes into a log line: no control characters, and not much of it.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(600).collect()
}

/// RFC 4648 sections 4 and 5; padding may be there or not.
pub fn base64(text: &str) -> Option<Vec<u8>> {
    const EITHER: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    GeneralPurpose::new(&URL_SAFE, EITHER).decode(text.replace('+', "-").replace('/', "_")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_accounts_in_either_alphabet() {
        for (text, expected) in [
            ("aGVsbG8=", Some(&b"hello"[..])),
            ("aGVsbG8", Some(b"hello")),
            ("_-8", Some(&[0xff, 0xef])),
            ("/+8=", Some(&[0xff, 0xef])),
            ("", Some(b"")),
            ("a b", None),
            ("a", None),
        ] {
            assert_eq!(base64(text).as_deref(), expected, "{text}");
        }
    }
}
