//! A message on its way to a collector: one POST with protocol buffers, and what its answer means (OTLP/HTTP).
//!
//! The collector may be slow, away or hostile: a message takes at most the time of the settings, an answer is read up to a bound,
//! and no redirect is followed.

use super::user_agent;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::ext::on_informational;
use hyper::header::{CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use hyper::{Request, Response, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tidegate_config::settings::Otlp;
use tidegate_http::HttpDate;
use tidegate_io::clock::wall_seconds;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;

/// Bytes of an answer that are read.
const ANSWER_MAX: usize = 64 * 1024;
/// Interim answers before the one that is final: each is work, and no deadline but that of the message bounds them.
const INTERIM_MAX: u32 = 32;

/// The way to collectors. Connections are kept between messages.
pub(super) struct Collector {
    runtime: Runtime,
    plain: Client<HttpConnector, Full<Bytes>>,
    /// For `https`; where the system trusts nobody, why there is none.
    secure: Result<Client<HttpsConnector<HttpConnector>, Full<Bytes>>, String>,
}

/// A message that was not taken.
#[derive(Debug)]
pub(super) struct Failure {
    /// In words.
    pub why: String,
    /// How long the collector wants to be left alone, where it has said so.
    pub wait: Option<Duration>,
    /// The fault may pass. If not, the collector answers the same to the same, but the next message is another one.
    pub may_be_retried: bool,
}

impl Failure {
    fn of_the_way(why: String) -> Failure {
        Failure { why, wait: None, may_be_retried: true }
    }
}

impl Collector {
    /// With the certificates that the system trusts. An error is a sentence.
    pub(super) fn new() -> Result<Collector, String> {
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
        let plain = Client::builder(TokioExecutor::new()).build_http();
        let secure = HttpsConnectorBuilder::new().try_with_platform_verifier();
        let secure = secure.map(|builder| builder.https_only().enable_http1().build());
        let secure = secure.map(|connector| Client::builder(TokioExecutor::new()).build(connector));
        Ok(Collector { runtime, plain, secure: secure.map_err(|error| error.to_string()) })
    }

    /// Sends a message. What was answered; nothing where that is no answer of OTLP.
    pub(super) fn send(&self, otlp: &Otlp, path: &str, message: Vec<u8>) -> Result<Bytes, Failure> {
        let mut request = Request::post(format!("{}{path}", otlp.url))
            .header(CONTENT_TYPE, "application/x-protobuf")
            .header(USER_AGENT, user_agent());
        for (name, value) in &otlp.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::from(message));
        let request = request.map_err(|error| Failure::of_the_way(error.to_string()))?;
        self.runtime.block_on(async {
            match tokio::time::timeout(otlp.timeout, self.exchange(request)).await {
                Ok(outcome) => outcome,
                Err(_) => Err(Failure::of_the_way("it does not answer in time".to_owned())),
            }
        })
    }

    async fn exchange(&self, mut request: Request<Full<Bytes>>) -> Result<Bytes, Failure> {
        let interim = Arc::new(Semaphore::new(0));
        let seen = interim.clone();
        on_informational(&mut request, move |_| seen.add_permits(1));
        let answer = match (request.uri().scheme_str(), &self.secure) {
            (Some("https"), Ok(secure)) => secure.request(request),
            (Some("https"), Err(why)) => return Err(Failure::of_the_way(why.clone())),
            _ => self.plain.request(request),
        };
        let answer = tokio::select! {
            answer = answer => answer.map_err(|error| Failure::of_the_way(innermost(&error)))?,
            _ = interim.acquire_many(INTERIM_MAX + 1) => {
                return Err(Failure::of_the_way(format!("it sends more than {INTERIM_MAX} interim answers")));
            }
        };
        match answer.status() {
            status if status.is_success() => Ok(body_of(answer).await),
            status => Err(failure(status, &answer)),
        }
    }
}

/// The body of an answer; nothing where it is too long or breaks off.
async fn body_of(answer: Response<Incoming>) -> Bytes {
    let body = Limited::new(answer.into_body(), ANSWER_MAX).collect().await;
    body.map(|body| body.to_bytes()).unwrap_or_default()
}

/// What an answer that is none means: which ones may be sent again, the specification lists.
fn failure(status: StatusCode, answer: &Response<Incoming>) -> Failure {
    let may_be_retried = matches!(status.as_u16(), 429 | 502 | 503 | 504);
    let wait = answer.headers().get(RETRY_AFTER);
    let wait = wait.and_then(|value| retry_after(value.as_bytes().trim_ascii(), wall_seconds()));
    let why = match status.is_redirection() {
        true => format!("it answers {}, and redirects are not followed", status.as_u16()),
        false => format!("it answers {}", status.as_u16()),
    };
    Failure { why, wait, may_be_retried }
}

/// How long to wait by a `Retry-After` (RFC 9110 section 10.2.3): seconds, or until a date; nothing where that is over.
fn retry_after(value: &[u8], now: i64) -> Option<Duration> {
    let seconds = match HttpDate::parse(value, now) {
        Some(HttpDate(date)) => u64::try_from(date.saturating_sub(now)).unwrap_or(0),
        None => std::str::from_utf8(value).ok()?.parse().ok()?,
    };
    Some(Duration::from_secs(seconds))
}

/// What an error comes from in the end: `Connection refused`, and not that a request has failed.
fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    // The library says that of a `Content-Length` as well.
    if innermost.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse_too_large) {
        return "the head of its answer is too large, or the length that this tells".to_owned();
    }
    innermost.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    #[test]
    fn a_collector_says_when_to_come_again_in_seconds_or_as_a_date() {
        let now = 784_111_777; // Sun, 06 Nov 1994 08:49:37 GMT
        for (value, expected) in [
            ("0", Some(0)),
            ("120", Some(120)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sun, 06 Nov 1994 08:48:37 GMT", Some(0)),
            ("-1", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(retry_after(value.as_bytes(), now), expected.map(Duration::from_secs), "{value}");
        }
    }

    #[test]
    fn a_collector_that_never_comes_to_an_end_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // Each message gets as many interim answers as are taken; the last has a final one behind them.
        let lies = std::thread::spawn(move || {
            let hint = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
            let asked = || {
                let mut connection = tidegate_testkit::accept(&listener, "a message");
                // All of it: what comes before it is asked for is no answer, and who closes with something unread resets.
                let mut read = Vec::new();
                while !read.ends_with(b"\r\n\r\nmessage") {
                    let mut byte = [0];
                    connection.read_exact(&mut byte).unwrap();
                    read.push(byte[0]);
                }
                connection
            };
            let mut first = asked();
            while first.write_all(&hint.repeat(100)).is_ok() {}
            let mut second = asked();
            let end = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            second.write_all(&[&*hint.repeat(INTERIM_MAX as usize), end].concat()).unwrap();
            drop(second);
            let mut third = asked();
            third.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n").unwrap();
            let _ = third.read_to_end(&mut Vec::new());
        });
        let collector = Collector::new().unwrap();
        let otlp = Otlp {
            url: format!("http://{address}"),
            interval: Duration::from_secs(1),
            timeout: tidegate_testkit::WAIT,
            service: "s".into(),
            headers: Vec::new(),
            headers_file: None,
        };
        let failure = collector.send(&otlp, "/v1/metrics", b"message".to_vec()).unwrap_err();
        assert_eq!(failure.why, "it sends more than 32 interim answers");
        assert!(collector.send(&otlp, "/v1/metrics", b"message".to_vec()).is_ok());
        let failure = collector.send(&otlp, "/v1/metrics", b"message".to_vec()).unwrap_err();
        assert_eq!(failure.why, "the head of its answer is too large, or the length that this tells");
        drop(collector);
        tidegate_testkit::join(lies, "the collector");
    }
}
