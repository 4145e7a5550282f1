//! An ACME server (RFC 8555), through `instant-acme`: accounts, orders, challenges, renewal windows.

use super::dns::Dns;
use super::http_client::{AuthorityClient, Rest};
use super::local::is_local;
use super::manager::{Issue, IssueError, Local};
use super::schedule::Window;
use super::solvers::{self, Challenge, ChallengeKind, ChallengeServers, Solver};
use super::storage::Storage;
use crate::certificate::{Pair, certificates};
use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, CertificateIdentifier, ExternalAccountKey, Identifier,
    NewAccount, NewOrder, Order, OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

/// How long an authority may take to look at challenges, and to issue.
const PATIENCE: Duration = Duration::from_secs(180);

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

/// An ACME server and our account with it.
pub struct AcmeAuthority {
    options: AcmeOptions,
    storage: Rc<Storage>,
    /// Best first.
    solvers: Vec<Box<dyn Solver>>,
    account: RefCell<Option<Account>>,
    rest: Rest,
}

impl AcmeAuthority {
    /// Speaks to nobody yet.
    pub fn new(
        options: AcmeOptions,
        storage: Rc<Storage>,
        servers: &Rc<dyn ChallengeServers>,
    ) -> AcmeAuthority {
        let dns = options.dns.as_ref();
        let solver = |kind: &ChallengeKind| solvers::solver(*kind, &storage, servers, dns);
        let solvers = options.challenges.iter().filter_map(solver).collect();
        AcmeAuthority { options, storage, solvers, account: RefCell::default(), rest: Rest::default() }
    }

    /// Our account: as it was kept, else a new one.
    async fn account(&self) -> Result<Account, IssueError> {
        let known = self.account.borrow().clone();
        if let Some(account) = known {
            return Ok(account);
        }
        let directory = &self.options.directory;
        let client = AuthorityClient::new(directory, self.options.roots.as_deref(), self.rest.clone())?;
        let builder = Account::builder_with_http(Box::new(client));
        let kept = self.storage.account(directory);
        let kept = kept.and_then(|text| serde_json::from_str::<AccountCredentials>(&text).ok());
        let account = match kept {
            Some(credentials) => builder.from_credentials(credentials).await.map_err(of_client)?,
            None => {
                let binding = self.external_account()?;
                let contact = self.options.email.as_ref().map(|email| format!("mailto:{email}"));
                let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
                let new = NewAccount {
                    contact: &contact,
                    terms_of_service_agreed: true,
                    only_return_existing: false,
                };
                let made = builder.create(&new, directory.clone(), binding.as_ref()).await;
                let (account, credentials) = made.map_err(of_client)?;
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

    /// One order, whose challenge `solver` answers.
    async fn order(
        &self,
        solver: &dyn Solver,
        name: &str,
        present: Option<&Pair>,
    ) -> Result<(String, String), OrderError> {
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
                Err(_) => account.new_order(&new()).await.map_err(of_client)?,
            },
            None => account.new_order(&new()).await.map_err(of_client)?,
        };
        let mut presented = Vec::new();
        let outcome = answer_and_finish(&mut order, solver, name, &mut presented).await;
        for challenge in &presented {
            solver.clean_up(challenge).await;
        }
        outcome
    }
}

/// Why there is no certificate from an order.
enum OrderError {
    /// The challenge has failed, or there is none of the kind: another kind may do better.
    Challenge(IssueError),
    /// With another challenge it would be the same.
    Other(IssueError),
}

impl From<IssueError> for OrderError {
    fn from(error: IssueError) -> OrderError {
        OrderError::Other(error)
    }
}

/// Shows what the authority wants to see, adding it to `presented`, and gets the certificate.
async fn answer_and_finish(
    order: &mut Order,
    solver: &dyn Solver,
    name: &str,
    presented: &mut Vec<Challenge>,
) -> Result<(String, String), OrderError> {
    let policy = RetryPolicy::default().timeout(PATIENCE);
    answer(order, solver, name, presented, &policy).await?;
    let failed = |error: rcgen::Error| IssueError::new(format!("cannot make the request: {error}"));
    let key = KeyPair::generate().map_err(failed)?;
    let mut params = CertificateParams::new(vec![name.to_owned()]).map_err(failed)?;
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key).map_err(failed)?;
    order.finalize_csr(request.der()).await.map_err(of_client)?;
    let chain = order.poll_certificate(&policy).await.map_err(of_client)?;
    Ok((chain, key.serialize_pem()))
}

/// Shows what the authority wants to see, adding it to `presented`, until it is content.
async fn answer(
    order: &mut Order,
    solver: &dyn Solver,
    name: &str,
    presented: &mut Vec<Challenge>,
    policy: &RetryPolicy,
) -> Result<(), OrderError> {
    let of_challenge = |error: IssueError| {
        OrderError::Challenge(IssueError { said: format!("{} ({})", error.said, solver.kind()), ..error })
    };
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization.map_err(of_client)?;
        match authorization.status {
            AuthorizationStatus::Valid => continue,
            AuthorizationStatus::Pending => {}
            other => return Err(IssueError::new(format!("the authorization is {other:?}")).into()),
        }
        let Some(mut challenge) = authorization.challenge(solver.wanted()) else {
            let why = format!("the authority does not offer {}", solver.kind());
            return Err(OrderError::Challenge(IssueError::new(why)));
        };
        let (token, proof) = (challenge.token.clone(), challenge.key_authorization());
        // Also what could not be shown to everybody is taken away.
        presented.push(Challenge { name: name.to_owned(), token, proof });
        if let Some(shown) = presented.last() {
            solver.present(shown).await.map_err(of_challenge)?;
        }
        challenge.set_ready().await.map_err(|error| of_challenge(of_client(error)))?;
    }
    // Where every authorization was there already, no challenge was under way.
    let failed = |error| if presented.is_empty() { OrderError::Other(error) } else { of_challenge(error) };
    let status = order.poll_ready(policy).await.map_err(|error| failed(of_client(error)))?;
    if status != OrderStatus::Ready && status != OrderStatus::Valid {
        return Err(failed(IssueError::new(refusal(order).await)));
    }
    Ok(())
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
            let (mut said, mut again) = (Vec::new(), None);
            for solver in self.solvers.iter().filter(|solver| solver.is_usable_for(name)) {
                let error = match self.order(solver.as_ref(), name, present).await {
                    Ok(issued) => return Ok(issued),
                    Err(error) => error,
                };
                *self.account.borrow_mut() = None; // the next attempt begins anew
                match error {
                    OrderError::Challenge(error) => said.push(error.said),
                    OrderError::Other(error) => {
                        said.push(error.said);
                        again = self.rest.left(); // whatever has come of a challenge, the authority may be asked about another
                        break;
                    }
                }
            }
            if said.is_empty() {
                said.push("no challenge that is allowed can be used for it; a wildcard needs dns-01".into());
            }
            Err(IssueError { said: said.join("; "), again })
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

/// What the client of the authority says.
fn of_client(error: instant_acme::Error) -> IssueError {
    match error {
        instant_acme::Error::Api(refused) => IssueError::new(problem(&refused)),
        instant_acme::Error::Json(error) => {
            IssueError::new(format!("its answer is not what ACME has there: {error}"))
        }
        error => {
            // The cause says more: a name that is not known, a certificate that is not believed.
            let mut text = error.to_string();
            let mut cause = std::error::Error::source(&error);
            while let Some(next) = cause {
                text = format!("{text}: {next}");
                cause = next.source();
            }
            IssueError::new(text)
        }
    }
}

fn problem(problem: &instant_acme::Problem) -> String {
    let mut text =
        problem.detail.clone().or_else(|| problem.r#type.clone()).unwrap_or_else(|| "refused".into());
    for sub in &problem.subproblems {
        text += &format!("; {}", sub.detail.clone().unwrap_or_default());
    }
    text
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
