//! Authorities that answer what they should not: what is said of it, and that nothing of it is without a bound.

use crate::renewals::Folder;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::collections::HashMap;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use tidegate_tls::Pair;
use tidegate_tls::acme::manager::{IssueError, Local};
use tidegate_tls::acme::{AcmeAuthority, AcmeOptions, ChallengeKind, ChallengeServers, Issue};

/// An answer that never ends would be one; the test ends if nobody stops it.
const ENDLESS: usize = 64 << 20;

/// A status line with further fields, and content; [`ENDLESS`] spaces where there is none.
type Answer = (&'static str, Option<String>);

/// An authority that answers as it should, but where it was told otherwise.
struct Liar {
    base: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Liar {
    fn start(folder: &Folder, lies: &[(&'static str, Answer)]) -> Liar {
        fs::create_dir_all(&folder.0).unwrap();
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        fs::write(folder.0.join("roots.pem"), made.cert.pem()).unwrap();
        let chain = vec![CertificateDer::from_pem_slice(made.cert.pem().as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(made.signing_key.serialize_pem().as_bytes()).unwrap();
        let config =
            Arc::new(ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap());
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("https://{}", socket.local_addr().unwrap());
        let (asked, lies) =
            (Arc::new(Mutex::new(Vec::new())), lies.iter().cloned().collect::<HashMap<_, _>>());
        let (heard, own) = (asked.clone(), base.clone());
        std::thread::spawn(move || {
            for connection in socket.incoming().flatten() {
                let tls = ServerConnection::new(config.clone()).unwrap();
                let _ = serve(StreamOwned::new(tls, connection), &own, &lies, &heard);
            }
        });
        Liar { base, asked }
    }

    /// What is said where it is asked for a certificate, without its URL.
    async fn said(&self, folder: &Folder) -> String {
        self.refusal(folder).await.said.replace(&self.base, "")
    }

    async fn refusal(&self, folder: &Folder) -> IssueError {
        let options = AcmeOptions {
            directory: format!("{}/dir", self.base),
            roots: Some(folder.0.join("roots.pem")),
            email: None,
            external_account: None,
            profile: None,
            challenges: vec![ChallengeKind::Http01, ChallengeKind::TlsAlpn01],
            dns: None,
        };
        let servers: Rc<dyn ChallengeServers> = Rc::new(Nobody);
        let authority = AcmeAuthority::new(options, folder.storage(), &servers);
        authority.obtain("a.test", None).await.unwrap_err()
    }

    fn asked(&self, path: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|asked| *asked == path).count()
    }
}

/// Answers the requests of a connection.
fn serve(
    mut stream: StreamOwned<ServerConnection, TcpStream>,
    base: &str,
    lies: &HashMap<&'static str, Answer>,
    asked: &Mutex<Vec<String>>,
) -> io::Result<()> {
    loop {
        let (head, length) = head(&mut stream)?;
        let mut content = vec![0; length];
        stream.read_exact(&mut content)?;
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        asked.lock().unwrap().push(path.clone());
        let (status, body) = lies.get(path.as_str()).cloned().unwrap_or_else(|| honest(&path, base));
        let status = status.replace("BASE", base);
        let length = body.as_ref().map_or(ENDLESS, String::len);
        write!(stream, "HTTP/1.1 {status}\r\nReplay-Nonce: nonce\r\nContent-Length: {length}\r\n\r\n")?;
        match body {
            _ if head.starts_with("HEAD") => {}
            Some(body) => stream.write_all(body.as_bytes())?,
            None => io::copy(&mut io::repeat(b' ').take(ENDLESS as u64), &mut stream).map(drop)?,
        }
        stream.flush()?;
    }
}

/// The head of a request, and how long its content is.
fn head(stream: &mut impl Read) -> io::Result<(String, usize)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    Ok((head, length.unwrap_or(0)))
}

/// What an authority answers that finds no fault until it looks at the challenge, of whichever kind.
fn honest(path: &str, base: &str) -> Answer {
    let challenge = |kind, error| serde_json::json!({ "type": kind, "url": format!("{base}/ch"), "token": kind, "status": "pending", "error": error });
    let order = |status| serde_json::json!({ "status": status, "authorizations": [format!("{base}/az")], "finalize": format!("{base}/fin") });
    let error = serde_json::json!({ "detail": "sees nothing" });
    let (status, body) = match path {
        "/dir" => (
            "200 OK",
            serde_json::json!({ "newNonce": format!("{base}/nonce"), "newAccount": format!("{base}/acct"),
                "newOrder": format!("{base}/order") }),
        ),
        "/acct" => ("201 Created\r\nLocation: BASE/acct/1", serde_json::json!({ "status": "valid" })),
        "/order" => ("201 Created\r\nLocation: BASE/o", order("pending")),
        "/o" => ("200 OK", order("invalid")),
        "/az" => (
            "200 OK",
            serde_json::json!({ "identifier": { "type": "dns", "value": "a.test" }, "status": "pending",
                "challenges": [challenge("http-01", &error), challenge("tls-alpn-01", &serde_json::Value::Null)] }),
        ),
        "/ch" => ("200 OK", challenge("http-01", &serde_json::Value::Null)),
        _ => ("200 OK", serde_json::json!({})),
    };
    (status, Some(body.to_string()))
}

struct Nobody;

impl ChallengeServers for Nobody {
    fn set_token<'a>(&'a self, _: &'a str, _: Option<&'a str>) -> Local<'a, ()> {
        Box::pin(async {})
    }

    fn set_challenge<'a>(&'a self, _: &'a str, _: Option<Pair>) -> Local<'a, ()> {
        Box::pin(async {})
    }
}

fn block_on<T>(is_paused: bool, future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(is_paused).build();
    runtime.unwrap().block_on(future)
}

#[test]
fn what_an_authority_answers_is_said_once_and_with_its_status() {
    let problem =
        |text: &str| Some(format!(r#"{{ "type": "urn:ietf:params:acme:error:x", "detail": "{text}" }}"#));
    let empty = || Some("{}".to_owned());
    let both = |what: &str| format!("{what} (http-01); {what} (tls-alpn-01)");
    for (path, answer, expected, times) in [
        ("/dir", ("500 Internal Server Error", empty()), "answers 500".to_owned(), 1),
        ("/dir", ("503 Service Unavailable", Some("<html>".into())), "answers 503".to_owned(), 1),
        ("/dir", ("503 Service Unavailable", problem("pause")), "pause".to_owned(), 1),
        (
            "/dir",
            ("302 Found\r\nLocation: BASE/other", empty()),
            "answers 302, and redirects are not followed".to_owned(),
            1,
        ),
        ("/dir", ("200 OK", None), "answers more than 256 KiB".to_owned(), 1),
        ("/nonce", ("500 Internal Server Error", empty()), "/nonce answers 500".to_owned(), 1),
        ("/acct", ("500 Internal Server Error", empty()), "/acct answers 500".to_owned(), 1),
        ("/order", ("500 Internal Server Error", empty()), "/order answers 500".to_owned(), 1),
        ("/order", ("429 Too Many Requests", problem("too many")), "too many".to_owned(), 1),
        ("/order", ("200 OK", None), "/order answers more than 256 KiB".to_owned(), 1),
        ("/az", ("301 Moved", empty()), "/az answers 301, and redirects are not followed".to_owned(), 1),
        ("/ch", ("500 Internal Server Error", empty()), both("/ch answers 500"), 2),
        ("/nothing", ("200 OK", empty()), both("sees nothing"), 0),
    ] {
        let folder = Folder::new("lies");
        let liar = Liar::start(&folder, &[(path, answer)]);
        assert_eq!(block_on(false, liar.said(&folder)), expected);
        assert_eq!(liar.asked(path), times, "{path}: {expected}");
    }
    let folder = Folder::new("no-acme");
    let liar = Liar::start(&folder, &[("/dir", ("200 OK", empty()))]);
    let said = block_on(false, liar.said(&folder));
    assert!(said.starts_with("its answer is not what ACME has there: missing field `newNonce`"), "{said}");
}

/// RFC 8555 section 6.6: of a rate limit, and of a directory that is out of service.
#[test]
fn an_authority_that_wants_to_be_left_alone_is() {
    let limited = Some(r#"{ "type": "urn:ietf:params:acme:error:rateLimited" }"#.to_owned());
    for (path, status, expected) in [
        ("/order", "429 Too Many Requests\r\nRetry-After: 7200", 3601..=7200),
        ("/dir", "503 Service Unavailable\r\nRetry-After: 7200", 3601..=7200),
        ("/order", "429 Too Many Requests", 0..=0),
        // Of a challenge: that is the name's, and the next attempt is at another order.
        ("/ch", "429 Too Many Requests\r\nRetry-After: 7200", 0..=0),
    ] {
        let folder = Folder::new("rest");
        let liar = Liar::start(&folder, &[(path, (status, limited.clone()))]);
        let again = block_on(false, liar.refusal(&folder)).again;
        assert!(expected.contains(&again.unwrap_or(0)), "{path}, {status}: {again:?}");
    }
}

/// What adds it to a clock would overflow.
#[test]
fn no_time_to_wait_is_too_long() {
    let pending = r#"{ "status": "pending", "authorizations": [], "finalize": "https://127.0.0.1/" }"#;
    let answer = ("200 OK\r\nRetry-After: 18446744073709551615", Some(pending.to_owned()));
    let folder = Folder::new("retry-after");
    let liar = Liar::start(&folder, &[("/o", answer)]);
    let said = block_on(false, liar.said(&folder));
    assert!(said.starts_with("timed out waiting for an order update (http-01)"), "{said}");
}

#[test]
fn an_authority_that_is_silent_is_given_up() {
    let folder = Folder::new("silent");
    fs::create_dir_all(&folder.0).unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    fs::write(folder.0.join("roots.pem"), made.cert.pem()).unwrap();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap(); // accepts, and says nothing
    let silent = Liar { base: format!("https://{}", socket.local_addr().unwrap()), asked: Arc::default() };
    assert_eq!(block_on(true, silent.said(&folder)), "does not answer within 60 s");
}
