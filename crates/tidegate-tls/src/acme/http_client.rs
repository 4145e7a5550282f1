//! The way to an authority: one request over HTTPS and its answer, within bounds of size and time. `instant-acme`
//! asks through it.
//!
//! The authority may be slow, broken or hostile. Its answer is read up to a bound, no redirect is followed, and what is
//! no answer of ACME is an error that names the status here, since `instant-acme` would look for JSON in it.

use super::manager::IssueError;
use crate::certificate::{certificates, read_file};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{HeaderMap, HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, Response};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient, Problem};
use rustls::{ClientConfig, RootCertStore};
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tidegate_io::clock::wall_seconds;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

/// Bytes of an answer that are read. The longest ones are chains of certificates, of some KiB.
const ANSWER_MAX: usize = 256 * 1024;
/// How long an answer may take from the connection to its end. Some authorities sign before they answer.
const ANSWER_TIME: Duration = Duration::from_secs(60);
/// The longest `Retry-After` that is heeded, seconds: what adds it to a clock has no bound.
const RETRY_AFTER_MAX: u64 = 24 * 3600;

/// Until when an authority wants to be left alone, as it has said of what it refused (RFC 8555 section 6.6).
#[derive(Debug, Clone, Default)]
pub(super) struct Rest(Arc<AtomicI64>);

impl Rest {
    /// For how many seconds from now; nothing where it wants none, or no more.
    pub(super) fn left(&self) -> Option<i64> {
        let left = self.0.load(Ordering::Relaxed).saturating_sub(wall_seconds());
        (left > 0).then_some(left)
    }

    fn heed(&self, headers: &HeaderMap) {
        if let Some(value) = headers.get(RETRY_AFTER)
            && let Some(until) = end_of(value, wall_seconds())
        {
            self.0.fetch_max(until, Ordering::Relaxed);
        }
    }
}

/// When a `Retry-After` ends, seconds since 1970 (RFC 9110 section 10.2.3): it counts seconds from now, or is a date.
fn end_of(value: &HeaderValue, now: i64) -> Option<i64> {
    let text = value.to_str().ok()?.trim();
    let until = match text.parse::<u64>() {
        Ok(seconds) => now.saturating_add_unsigned(seconds),
        Err(_) => OffsetDateTime::parse(text, &Rfc2822).ok()?.unix_timestamp(),
    };
    Some(until.min(now.saturating_add_unsigned(RETRY_AFTER_MAX)))
}

/// Speaks to one authority.
pub(super) struct AuthorityClient {
    client: Client<HttpsConnector<HttpConnector>, BodyWrapper<Bytes>>,
    /// Messages stand behind its URL already.
    directory: String,
    rest: Rest,
}

impl AuthorityClient {
    /// `roots` are certificates that its server is verified with, PEM; `None`: those of the system. `rest` hears when it
    /// wants to be left alone.
    ///
    /// # Errors
    /// The roots cannot be read, or the system trusts nobody.
    pub(super) fn new(
        directory: &str,
        roots: Option<&Path>,
        rest: Rest,
    ) -> Result<AuthorityClient, IssueError> {
        let secure = match roots {
            Some(path) => HttpsConnectorBuilder::new().with_tls_config(trusting(path)?),
            None => HttpsConnectorBuilder::new().try_with_platform_verifier().map_err(failed)?,
        };
        let connector = secure.https_only().enable_http1().build();
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Ok(AuthorityClient { client, directory: directory.to_owned(), rest })
    }
}

impl HttpClient for AuthorityClient {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let (url, method) = (request.uri().clone(), request.method().clone());
        let of = if url == *self.directory { String::new() } else { format!("{url} ") };
        let (answer, rest) = (self.client.request(request), self.rest.clone());
        Box::pin(async move {
            let whole = async { read(answer.await.map_err(|error| Error::Other(error.into()))?, &of).await };
            let Ok(answer) = tokio::time::timeout(ANSWER_TIME, whole).await else {
                return Err(other(format!("{of}does not answer within {} s", ANSWER_TIME.as_secs())));
            };
            let (mut parts, body) = answer?;
            let status = parts.status;
            if status.is_redirection() {
                return Err(other(format!(
                    "{of}answers {}, and redirects are not followed",
                    status.as_u16()
                )));
            }
            if !status.is_success() {
                rest.heed(&parts.headers);
                let problem = serde_json::from_slice::<Problem>(&body).ok();
                match problem.filter(|problem| problem.r#type.is_some() || problem.detail.is_some()) {
                    // It may be one that has to be asked again with another nonce.
                    Some(_) if method == Method::POST => {}
                    Some(problem) => return Err(Error::Api(problem)),
                    None => return Err(other(format!("{of}answers {}", status.as_u16()))),
                }
            }
            bound_retry_after(&mut parts.headers);
            Ok(BytesResponse { parts, body: Box::new(body) })
        })
    }
}

/// The whole of an answer.
async fn read(answer: Response<Incoming>, of: &str) -> Result<(hyper::http::response::Parts, Bytes), Error> {
    let (parts, body) = answer.into_parts();
    match Limited::new(body, ANSWER_MAX).collect().await {
        Ok(body) => Ok((parts, body.to_bytes())),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(other(format!("{of}answers more than {} KiB", ANSWER_MAX / 1024)))
        }
        Err(error) => Err(Error::Other(error)),
    }
}

fn bound_retry_after(headers: &mut HeaderMap) {
    let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse::<u64>().ok());
    if seconds.is_some_and(|seconds| seconds > RETRY_AFTER_MAX) {
        headers.insert(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_MAX));
    }
}

/// TLS that believes the certificates of a file.
fn trusting(path: &Path) -> Result<ClientConfig, IssueError> {
    let pem = read_file(path).map_err(failed)?;
    let shown = path.display();
    let found = certificates(&pem).map_err(|why| IssueError::new(format!("the roots in {shown}: {why}")))?;
    let found = found.ok_or_else(|| IssueError::new(format!("{shown} holds no certificate")))?;
    let mut roots = RootCertStore::empty();
    for root in found {
        roots.add(root).map_err(|error| IssueError::new(format!("the roots in {shown}: {error}")))?;
    }
    let builder = ClientConfig::builder_with_provider(crate::provider());
    let builder = builder.with_safe_default_protocol_versions().map_err(failed)?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn failed(error: impl std::fmt::Display) -> IssueError {
    IssueError::new(error.to_string())
}

fn other(text: String) -> Error {
    Error::Other(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_says_when_to_come_again_in_seconds_or_as_a_date() {
        let now = 784_111_777; // Sun, 06 Nov 1994 08:49:37 GMT
        for (value, expected) in [
            ("0", Some(now)),
            ("600", Some(now + 600)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(now + 60)),
            ("Sun, 06 Nov 1994 08:48:37 GMT", Some(now - 60)),
            ("18446744073709551615", Some(now + 86_400)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Some(now + 86_400)),
            ("-1", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(end_of(&HeaderValue::from_static(value), now), expected, "{value}");
        }
    }
}
