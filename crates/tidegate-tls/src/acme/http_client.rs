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
use std::time::Duration;

/// Bytes of an answer that are read. The longest ones are chains of certificates, of some KiB.
const ANSWER_MAX: usize = 256 * 1024;
/// How long an answer may take from the connection to its end. Some authorities sign before they answer.
const ANSWER_TIME: Duration = Duration::from_secs(60);
/// The longest `Retry-After` that is passed on, seconds: what adds it to a clock has no bound.
const RETRY_AFTER_MAX: u64 = 24 * 3600;

/// Speaks to one authority.
pub(super) struct AuthorityClient {
    client: Client<HttpsConnector<HttpConnector>, BodyWrapper<Bytes>>,
    /// Messages stand behind its URL already.
    directory: String,
}

impl AuthorityClient {
    /// `roots` are certificates that its server is verified with, PEM; `None`: those of the system.
    ///
    /// # Errors
    /// The roots cannot be read, or the system trusts nobody.
    pub(super) fn new(directory: &str, roots: Option<&Path>) -> Result<AuthorityClient, IssueError> {
        let secure = match roots {
            Some(path) => HttpsConnectorBuilder::new().with_tls_config(trusting(path)?),
            None => HttpsConnectorBuilder::new().try_with_platform_verifier().map_err(failed)?,
        };
        let connector = secure.https_only().enable_http1().build();
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Ok(AuthorityClient { client, directory: directory.to_owned() })
    }
}

impl HttpClient for AuthorityClient {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let (url, method) = (request.uri().clone(), request.method().clone());
        let of = if url == *self.directory { String::new() } else { format!("{url} ") };
        let answer = self.client.request(request);
        Box::pin(async move {
            let whole = async { read(answer.await.map_err(|error| Error::Other(error.into()))?, &of).await };
            let Ok(answer) = tokio::time::timeout(ANSWER_TIME, whole).await else {
                return Err(said(format!("{of}does not answer within {} s", ANSWER_TIME.as_secs())));
            };
            let (mut parts, body) = answer?;
            let status = parts.status;
            if status.is_redirection() {
                return Err(said(format!("{of}answers {}, and redirects are not followed", status.as_u16())));
            }
            if !status.is_success() {
                let problem = serde_json::from_slice::<Problem>(&body).ok();
                match problem.filter(|problem| problem.r#type.is_some() || problem.detail.is_some()) {
                    // It may be one that has to be asked again with another nonce.
                    Some(_) if method == Method::POST => {}
                    Some(problem) => return Err(Error::Api(problem)),
                    None => return Err(said(format!("{of}answers {}", status.as_u16()))),
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
            Err(said(format!("{of}answers more than {} KiB", ANSWER_MAX / 1024)))
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

fn said(text: String) -> Error {
    Error::Other(text.into())
}
