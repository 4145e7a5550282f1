//! Logins by an identity provider (`login openid`): a provider in this process that does what a sound one does, and what broken
//! and hostile ones could, and a browser's part with its cookies.

mod running;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use running::{BINARY, Folder, Server, wait_for};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};
use tidegate_testkit::{InTime, WAIT};

/// What a provider does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Sound,
    WrongNonce,
    NoNonce,
    WrongIssuer,
    WrongAudience,
    OtherParty,
    Expired,
    NoUser,
    Unsigned,
    SignedWithItsPublicKey,
    AccessToken,
    UnknownKey,
    NoToken,
    Huge,
    Failing,
}

struct Provider {
    issuer: String,
    state: Mutex<State>,
}

struct State {
    manner: Manner,
    key: EcdsaKeyPair,
    kid: String,
    /// Challenge, nonce and the address to come back to, by code.
    codes: HashMap<String, (String, String, String)>,
    /// How often each path was asked for.
    asked: BTreeMap<String, usize>,
    user: &'static str,
}

fn new_key() -> EcdsaKeyPair {
    EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

impl Provider {
    fn start() -> Arc<Provider> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let issuer = format!("http://{}/realm", listener.local_addr().unwrap());
        let state = State {
            manner: Manner::Sound,
            key: new_key(),
            kid: "one".into(),
            codes: HashMap::new(),
            asked: BTreeMap::new(),
            user: "anna",
        };
        let provider = Arc::new(Provider { issuer, state: Mutex::new(state) });
        let own = provider.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let own = own.clone();
                std::thread::spawn(move || own.serve(stream));
            }
        });
        provider
    }

    fn set(&self, manner: Manner) {
        self.state.lock().unwrap().manner = manner;
    }

    fn asked(&self, path: &str) -> usize {
        self.state.lock().unwrap().asked.get(path).copied().unwrap_or(0)
    }

    fn serve(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            let target = line.split(' ').nth(1).unwrap_or_default().to_owned();
            let (mut length, mut authorization) = (0, String::new());
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                match line.trim_end().split_once(": ") {
                    Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                        length = value.parse().unwrap()
                    }
                    Some((name, value)) if name.eq_ignore_ascii_case("authorization") => {
                        value.clone_into(&mut authorization)
                    }
                    Some(_) => {}
                    None => break,
                }
            }
            let mut form = vec![0; length];
            reader.read_exact(&mut form).unwrap();
            let (status, body) = self.answer(&target, &authorization, &String::from_utf8(form).unwrap());
            let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n", body.len());
            if reader.get_mut().write_all((head + &body).as_bytes()).is_err() {
                return;
            }
        }
    }

    fn answer(&self, target: &str, authorization: &str, form: &str) -> (u16, String) {
        let mut state = self.state.lock().unwrap();
        *state.asked.entry(target.to_owned()).or_default() += 1;
        let issuer = &self.issuer;
        if state.manner == Manner::Failing {
            return (500, String::new());
        }
        match target {
            "/realm/.well-known/openid-configuration" => {
                let all = json!({
                    "issuer": issuer,
                    "authorization_endpoint": format!("{issuer}/authorize?realm=1"),
                    "token_endpoint": format!("{issuer}/token"),
                    "jwks_uri": format!("{issuer}/keys"),
                    "end_session_endpoint": format!("{issuer}/end"),
                    "authorization_response_iss_parameter_supported": true,
                });
                (200, all.to_string())
            }
            "/realm/keys" => {
                let point = state.key.public_key().as_ref();
                let part = |range: std::ops::Range<usize>| URL_SAFE_NO_PAD.encode(&point[range]);
                let key = json!({ "kty": "EC", "crv": "P-256", "kid": state.kid, "x": part(1..33), "y": part(33..65) });
                (200, json!({ "keys": [key] }).to_string())
            }
            "/realm/token" => self.redeem(&mut state, authorization, form),
            _ => (404, String::new()),
        }
    }

    fn redeem(&self, state: &mut State, authorization: &str, form: &str) -> (u16, String) {
        assert_eq!(authorization, format!("Basic {}", STANDARD.encode("web:s%2Fcret")));
        let form = parameters(form);
        assert_eq!(form["grant_type"], "authorization_code");
        let refused = || (400, json!({ "error": "invalid_grant" }).to_string());
        let Some((challenge, nonce, back)) = state.codes.remove(&form["code"]) else { return refused() };
        let verifier = URL_SAFE_NO_PAD.encode(digest(&SHA256, form["code_verifier"].as_bytes()));
        if verifier != challenge || form["redirect_uri"] != back {
            return refused();
        }
        let mut claims = json!({
            "iss": self.issuer, "aud": "web", "sub": state.user, "nonce": nonce,
            "exp": now() + 300, "iat": now(), "groups": ["staff", "all"],
        });
        match state.manner {
            Manner::WrongNonce => claims["nonce"] = json!("other"),
            Manner::NoNonce => drop(claims.as_object_mut().unwrap().remove("nonce")),
            Manner::WrongIssuer => claims["iss"] = json!("https://evil.test"),
            Manner::WrongAudience => claims["aud"] = json!("other"),
            Manner::OtherParty => {
                claims["aud"] = json!(["web", "other"]);
                claims["azp"] = json!("other");
            }
            Manner::Expired => claims["exp"] = json!(now() - 3600),
            Manner::NoUser => claims["sub"] = json!(""),
            Manner::NoToken => return (200, "{}".into()),
            Manner::Huge => return (200, "x".repeat(1 << 20)),
            _ => {}
        }
        (200, json!({ "id_token": sign(state, &claims), "access_token": "x" }).to_string())
    }

    /// What its page does: the code for a browser that was sent there, once somebody has logged in.
    fn authorise(&self, location: &str) -> HashMap<String, String> {
        let (page, query) = location.split_once('?').unwrap();
        assert_eq!(page, format!("{}/authorize", self.issuer));
        let asked = parameters(query);
        for (name, value) in [
            ("realm", "1"),
            ("response_type", "code"),
            ("client_id", "web"),
            ("code_challenge_method", "S256"),
            ("scope", "openid groups"),
        ] {
            assert_eq!(asked[name], value);
        }
        let mut state = self.state.lock().unwrap();
        let code = format!("code{}", state.asked.len() * 1000 + state.codes.len());
        let flow = (asked["code_challenge"].clone(), asked["nonce"].clone(), asked["redirect_uri"].clone());
        state.codes.insert(code.clone(), flow);
        let pairs = [("code", code), ("state", asked["state"].clone()), ("iss", self.issuer.clone())];
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

fn sign(state: &State, claims: &Value) -> String {
    let kid = if state.manner == Manner::UnknownKey { "nobody" } else { &state.kid };
    let (algorithm, kind) = match state.manner {
        Manner::Unsigned => ("none", "JWT"),
        Manner::SignedWithItsPublicKey => ("HS256", "JWT"),
        Manner::AccessToken => ("ES256", "at+jwt"),
        _ => ("ES256", "JWT"),
    };
    let head = json!({ "alg": algorithm, "typ": kind, "kid": kid }).to_string();
    let text = format!("{}.{}", URL_SAFE_NO_PAD.encode(head), URL_SAFE_NO_PAD.encode(claims.to_string()));
    let signature = match state.manner {
        Manner::Unsigned => Vec::new(),
        Manner::SignedWithItsPublicKey => {
            let key = hmac::Key::new(hmac::HMAC_SHA256, state.key.public_key().as_ref());
            hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
        }
        _ => state.key.sign(&SystemRandom::new(), text.as_bytes()).unwrap().as_ref().to_vec(),
    };
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// The parameters of a query or a form, decoded.
fn parameters(text: &str) -> HashMap<String, String> {
    let decode = |text: &str| {
        let (mut out, mut bytes) = (Vec::new(), text.bytes());
        while let Some(byte) = bytes.next() {
            let mut digits = || char::from(bytes.next().unwrap());
            out.push(match byte {
                b'%' => u8::from_str_radix(&format!("{}{}", digits(), digits()), 16).unwrap(),
                byte => byte,
            });
        }
        String::from_utf8(out).unwrap()
    };
    let pair = |pair: &str| pair.split_once('=').map(|(name, value)| (decode(name), decode(value)));
    text.split('&').filter_map(pair).collect()
}

fn query(parameters: &HashMap<String, String>) -> String {
    let encode = |text: &str| -> String {
        text.bytes()
            .map(|byte| match byte {
                b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => char::from(byte).to_string(),
                _ => format!("%{byte:02X}"),
            })
            .collect()
    };
    parameters.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect::<Vec<_>>().join("&")
}

#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn field<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        self.fields(name).next()
    }

    fn fields<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(move |(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    fn location(&self) -> &str {
        assert_eq!(self.status, 302, "{self:?}");
        self.field("location").unwrap()
    }
}

/// A browser, with its cookies.
#[derive(Debug, Clone)]
struct Browser {
    address: String,
    host: &'static str,
    cookies: BTreeMap<String, String>,
}

impl Browser {
    fn new(server: &Server<'_>) -> Browser {
        Browser { address: server.address.clone(), host: "site.test", cookies: BTreeMap::new() }
    }

    fn ask(&mut self, method: &str, path: &str, fields: &str) -> Answer {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(WAIT)).unwrap();
        let cookies: Vec<String> =
            self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let cookies =
            if cookies.is_empty() { String::new() } else { format!("Cookie: {}\r\n", cookies.join("; ")) };
        let host = self.host;
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{cookies}{fields}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text:?}"));
        let status = head[9..12].parse().unwrap();
        let answer = Answer { status, head: head.to_owned(), body: body.to_owned() };
        for cookie in answer.fields("set-cookie") {
            let (name, value) = cookie.split(';').next().unwrap().split_once('=').unwrap();
            assert!(cookie.contains("; Path=/; ") && cookie.contains("; HttpOnly; SameSite=Lax"), "{cookie}");
            match cookie.contains("Max-Age=0") {
                true => drop(self.cookies.remove(name)),
                false => drop(self.cookies.insert(name.to_owned(), value.to_owned())),
            }
        }
        answer
    }

    /// As somebody does who follows a link.
    fn go(&mut self, path: &str) -> Answer {
        self.ask("GET", path, "Accept: text/html,*/*\r\n")
    }

    fn come_back(&mut self, parameters: &HashMap<String, String>) -> Answer {
        self.go(&format!("/.openid/callback?{}", query(parameters)))
    }

    fn log_in(&mut self, provider: &Provider, path: &str) -> Answer {
        let sent = self.go(path);
        let parameters = provider.authorise(sent.location());
        self.come_back(&parameters)
    }
}

fn settings(folder: &Folder, issuer: &str, more: &str) -> String {
    folder.write("secret", "s/cret\n");
    folder.write("keys", &STANDARD.encode([7; 32]));
    folder.write("index.html", "the page");
    let dir = folder.0.display();
    format!(
        "workers 2\nlisten \"127.0.0.1:0\"\n\
         access-log \"{dir}/access\" format=\"{{user}} {{status}} {{path}}\"\n\
         users \"corp\" {{ openid \"{issuer}\" {{\n\
           client \"web\" secret-file=\"{dir}/secret\"\n  session-keys \"{dir}/keys\"\n  scopes \"groups\"\n  groups \"groups\"\n{more}\n}} }}\n\
         site \"site.test\" {{ root \"{dir}\"; route \"/open/*\" {{ login off; respond 200 \"open\" }}\n\
           route \"/staff/*\" {{ require group \"staff\"; respond 200 \"staff\" }}\n\
           route \"/board/*\" {{ require group \"board\"; respond 200 \"board\" }}\n\
           login openid \"corp\" }}\n\
         site \"other.test\" {{ login openid \"corp\"; respond 200 \"other\" }}\n"
    )
}

#[test]
fn somebody_logs_in_and_out() {
    let (folder, provider) = (Folder::new("openid"), Provider::start());
    let server = Server::with_config(&folder, &settings(&folder, &provider.issuer, ""));
    let mut browser = Browser::new(&server);
    assert_eq!(browser.go("/open/").status, 200);
    assert_eq!(provider.asked("/realm/.well-known/openid-configuration"), 0, "nobody has needed it");
    // Programs are not sent anywhere, nor is what would lose its content.
    for (method, fields) in [
        ("GET", "Accept: application/json\r\n"),
        ("GET", ""),
        ("GET", "Accept: text/html\r\nSec-Fetch-Mode: cors\r\n"),
        ("GET", "Accept: text/html\r\nX-Requested-With: XMLHttpRequest\r\n"),
        ("POST", "Accept: text/html\r\nContent-Length: 0\r\n"),
    ] {
        let answer = browser.ask(method, "/", fields);
        assert_eq!((answer.status, answer.field("www-authenticate")), (401, Some("OpenID realm=\"corp\"")));
    }
    assert_eq!(browser.ask("GET", "/", "Sec-Fetch-Mode: navigate\r\n").status, 302);
    let back = browser.log_in(&provider, "/staff/?a=b");
    assert_eq!(back.location(), "http://site.test/staff/?a=b");
    assert_eq!(back.field("cache-control"), Some("no-store"));
    assert_eq!(browser.go("/staff/").body, "staff");
    assert_eq!(browser.go("/board/").status, 403);
    assert_eq!(browser.ask("POST", "/staff/", "Content-Length: 0\r\n").status, 200);
    assert_eq!(provider.asked("/realm/token"), 1);
    // A session is for its site alone.
    let mut other = Browser { host: "other.test", ..browser.clone() };
    assert_eq!(other.go("/").status, 302);
    let out = browser.go("/.openid/logout");
    assert_eq!(out.location(), format!("{}/end?client_id=web", provider.issuer));
    assert!(!browser.cookies.contains_key("tidegate-session-corp"));
    assert_eq!(browser.go("/").status, 302);
    for line in ["anna 302 /.openid/callback\n", "anna 200 /staff/\n", "anna 403 /board/\n"] {
        let has = || std::fs::read_to_string(folder.path("access")).ok()?.contains(line).then_some(());
        wait_for(has, line);
    }
}

#[test]
fn what_is_not_of_this_login_lets_nobody_in() {
    let (folder, provider) = (Folder::new("openid"), Provider::start());
    let cases = [
        (Manner::WrongNonce, 400, "the token is of another login: its `nonce` is wrong"),
        (Manner::NoNonce, 400, "the token is of another login: its `nonce` is wrong"),
        (Manner::WrongIssuer, 400, "the token is not good: InvalidIssuer"),
        (Manner::WrongAudience, 400, "the token is not good: InvalidAudience"),
        (Manner::OtherParty, 400, "the token was asked for by somebody else (`azp`)"),
        (Manner::Expired, 400, "the token is not good: ExpiredSignature"),
        (Manner::NoUser, 400, "the token has no `sub`"),
        (Manner::Unsigned, 400, "the token is signed in no way that is known"),
        (Manner::SignedWithItsPublicKey, 400, "no key is known for the token"),
        (Manner::AccessToken, 400, "the token is for something else"),
        (Manner::UnknownKey, 400, "no key is known for the token"),
        (Manner::NoToken, 503, "its answer has no `id_token`"),
        (Manner::Huge, 503, "its answer is longer than"),
        (Manner::Sound, 302, ""),
    ];
    let mut server = None;
    for (number, (manner, status, why)) in cases.into_iter().enumerate() {
        // Of very many messages of a kind some are left out.
        if number % 5 == 0 {
            drop(server.take());
        }
        let new = || Server::with_config(&folder, &settings(&folder, &provider.issuer, ""));
        provider.set(Manner::Sound);
        let server = server.get_or_insert_with(new);
        provider.set(manner);
        let mut browser = Browser::new(server);
        let answer = browser.log_in(&provider, "/");
        assert_eq!(answer.status, status, "{manner:?}: {answer:?}");
        if !why.is_empty() {
            let said = server.line(&format!("{status} for 127.0.0.1"));
            assert!(said.contains("`login openid \"corp\"`") && said.contains(why), "{manner:?}: {said}");
        }
        let has_session = browser.cookies.contains_key("tidegate-session-corp");
        assert_eq!(has_session, manner == Manner::Sound, "{manner:?}");
    }
}

#[test]
fn a_login_is_the_browsers_that_has_begun_it() {
    let (folder, provider) = (Folder::new("openid"), Provider::start());
    let server = Server::with_config(&folder, &settings(&folder, &provider.issuer, ""));
    let mut browser = Browser::new(&server);
    let first = provider.authorise(browser.go("/staff/1").location());
    // Another tab of the same browser.
    let second = provider.authorise(browser.go("/staff/2").location());
    assert_eq!(browser.cookies.len(), 1, "however many are under way");
    // Somebody else is sent here with it: login CSRF.
    let mut victim = Browser::new(&server);
    assert_eq!(victim.come_back(&first).status, 400);
    victim.go("/");
    assert_eq!(victim.come_back(&first).status, 400, "a cookie of another login is none");
    // A code of another login, an answer of another provider, no state, one that was made up, one of another site.
    let mixed = |name: &str, value: &str| {
        let mut parameters = first.clone();
        parameters.insert(name.to_owned(), value.to_owned());
        parameters
    };
    let mut thief = Browser::new(&server);
    let stolen = provider.authorise(thief.go("/").location());
    for parameters in [
        mixed("code", &stolen["code"]),
        mixed("iss", "https://evil.test"),
        mixed("state", ""),
        mixed("state", &first["state"].replace(&first["state"][30..34], "AAAA")),
        mixed("error", "access_denied"),
        mixed("code", ""),
    ] {
        assert_eq!(browser.clone().come_back(&parameters).status, 400, "{parameters:?}");
    }
    let without_issuer: HashMap<_, _> = first.iter().filter(|(name, _)| *name != "iss").collect();
    let without_issuer =
        without_issuer.into_iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    assert_eq!(browser.clone().come_back(&without_issuer).status, 400, "this provider names itself");
    let mut other = Browser { host: "other.test", ..browser.clone() };
    assert_eq!(other.come_back(&first).status, 400);
    assert_eq!(browser.ask("POST", "/.openid/callback", "Content-Length: 0\r\n").status, 405);
    // Both tabs come back, in any order.
    assert_eq!(browser.come_back(&second).location(), "http://site.test/staff/2");
    assert_eq!(browser.clone().come_back(&first).location(), "http://site.test/staff/1");
    // Played once more without the session, a code is good for nothing.
    browser.cookies.remove("tidegate-session-corp");
    assert_eq!(browser.come_back(&second).status, 400);
    // Nothing leads to another host.
    let mut lured = Browser::new(&server);
    let back = lured.log_in(&provider, "//evil.test/");
    assert!(back.location().starts_with("http://site.test/"), "{back:?}");
}

#[test]
fn keys_of_a_provider_and_of_sessions_rotate() {
    let (folder, provider) = (Folder::new("openid"), Provider::start());
    let text = settings(&folder, &provider.issuer, "");
    let mut server = Server::with_config(&folder, &text);
    let mut browser = Browser::new(&server);
    assert_eq!(browser.log_in(&provider, "/").status, 302);
    {
        let mut state = provider.state.lock().unwrap();
        (state.key, state.kid) = (new_key(), "two".into());
    }
    assert_eq!(Browser::new(&server).log_in(&provider, "/").status, 302, "the new key is asked for");
    assert_eq!(provider.asked("/realm/keys"), 2);
    // The key before is good as well; then it goes.
    let (old, new) = (STANDARD.encode([7; 32]), STANDARD.encode([8; 32]));
    folder.write("keys", &format!("{new}\n{old}\n"));
    server.line("the keys of sessions of `users \"corp\"` have changed and are in use");
    assert_eq!(browser.go("/").status, 200);
    let mut later = Browser::new(&server);
    assert_eq!(later.log_in(&provider, "/").status, 302);
    folder.write("keys", &new);
    server.line("the keys of sessions of `users \"corp\"` have changed and are in use");
    assert_eq!((browser.go("/").status, later.go("/").status), (302, 200));
    // A session outlives the server.
    drop(server);
    let server = Server::with_config(&folder, &text);
    later.address.clone_from(&server.address);
    assert_eq!(later.go("/").body, "the page");
}

/// No process that has just begun has asked a provider what it has.
#[test]
fn logging_out_ends_the_session_at_the_provider_whoever_is_asked() {
    let (folder, provider) = (Folder::new("openid"), Provider::start());
    let text = format!("processes 3\n{}", settings(&folder, &provider.issuer, ""));
    let server = Server::with_config(&folder, &text);
    let mut browser = Browser::new(&server);
    assert_eq!(browser.log_in(&provider, "/").status, 302);
    let kept = browser.cookies.clone();
    drop(server);
    let server = Server::with_config(&folder, &text);
    let end = format!("{}/end?client_id=web", provider.issuer);
    for _ in 0..20 {
        let mut browser = Browser { cookies: kept.clone(), ..Browser::new(&server) };
        assert_eq!(browser.go("/.openid/logout").location(), end);
        assert!(!browser.cookies.contains_key("tidegate-session-corp"));
    }
    // It is away: the session here ends all the same.
    drop(server);
    provider.set(Manner::Failing);
    let mut server = Server::with_config(&folder, &text);
    let mut browser = Browser { cookies: kept, ..Browser::new(&server) };
    assert_eq!(browser.go("/").body, "the page");
    let out = browser.go("/.openid/logout");
    assert!(out.status == 200 && out.body.contains("You are logged out."), "{out:?}");
    assert!(!browser.cookies.contains_key("tidegate-session-corp"));
    server.line("cannot be had: it has answered 500");
}

/// What names somebody is what the settings in force say, also for who has logged in before.
#[test]
fn a_session_is_of_the_claims_that_have_made_it() {
    let (folder, provider) = (Folder::new("openid"), Provider::start());
    let text = settings(&folder, &provider.issuer, "");
    let server = Server::with_config(&folder, &text);
    let mut browser = Browser::new(&server);
    assert_eq!(browser.log_in(&provider, "/").status, 302);
    for (changed, status) in [
        (settings(&folder, &provider.issuer, "leeway \"10s\""), 200),
        (settings(&folder, &provider.issuer, "user \"email\""), 302),
        (text.replace("groups \"groups\"", "groups \"roles\""), 302),
        (text.replace("groups \"groups\"", ""), 302),
        (text, 200),
    ] {
        folder.write("tidegate.kdl", &changed);
        assert_eq!(server.tell(&["reload"]).code, Some(0));
        assert_eq!(browser.clone().go("/").status, status, "{changed}");
    }
}

/// Somebody who reads logs could be whoever is logging in at the moment.
#[test]
fn no_log_shows_the_code_that_somebody_comes_back_with() {
    let (folder, provider) = (Folder::new("openid"), Provider::start());
    let text = settings(&folder, &provider.issuer, "").replace("{path}\"", "{target}.\"");
    let mut server = Server::with_config(&folder, &text);
    let mut browser = Browser::new(&server);
    assert_eq!(browser.go("/open/?a=b").status, 200);
    assert_eq!(browser.log_in(&provider, "/staff/?a=b").status, 302);
    let mut other = Browser::new(&server);
    other.go("/");
    for path in [
        "/.openid/callback?code=secret&state=hidden",
        "/.openid/%63allback?code=secret&state=hidden",
        "/x/../.openid/callback?code=secret&state=hidden",
        "http://site.test/.openid/callback?code=secret&state=hidden",
    ] {
        assert_eq!(other.go(path).status, 400);
        let said = server.line("400 for 127.0.0.1");
        assert!(said.contains("allback at site.test: `login openid"), "{said}");
    }
    assert_eq!(other.go("/open/?last=1").status, 200);
    let lines = wait_for(
        || std::fs::read_to_string(folder.path("access")).ok().filter(|text| text.contains("last=1")),
        "the last line",
    );
    assert!(lines.contains(" 200 /open/?a=b.\n"), "{lines}");
    assert!(lines.contains("anna 302 /.openid/callback.\n"), "{lines}");
    for text in [lines, server.seen.join("\n")] {
        assert!(!["code=", "secret", "state=", "hidden"].iter().any(|word| text.contains(word)), "{text}");
    }
}

/// A server in front of another one, which logs people in: they get and give its cookies, and none of its own.
#[test]
fn logins_behind_another_server() {
    let (folder, provider) = (Folder::new("openid"), Provider::start());
    let back = Server::with_config(&folder, &settings(&folder, &provider.issuer, ""));
    let front = Folder::new("openid-front");
    let passed = format!("proxy \"http://{}\"", back.address);
    let plain = format!("workers 1\nlisten \"127.0.0.1:0\"\nsite {{ {passed} }}\n");
    // One that logs people in by itself, and others than the one behind it.
    front.write("keys", &STANDARD.encode([9; 32]));
    let with_own = format!(
        "workers 1\nlisten \"127.0.0.1:0\"\nusers \"staff\" {{ openid \"{}\" {{ client \"web\"; session-keys \"{}\"\n\
           callback \"/.front/callback\"; logout \"/.front/logout\" }} }}\n\
         site {{ route \"/own/*\" {{ login openid \"staff\"; respond 200 }}\n {passed} }}\n",
        provider.issuer,
        front.path("keys").display()
    );
    for text in [plain, with_own.clone()] {
        let server = Server::with_config(&front, &text);
        let mut browser = Browser::new(&server);
        assert_eq!(browser.log_in(&provider, "/staff/?a=b").location(), "http://site.test/staff/?a=b");
        assert_eq!(browser.go("/staff/").body, "staff", "{browser:?}");
    }
    // Of users of the same name there, a cookie is the one's in front.
    let server = Server::with_config(&front, &with_own.replace("\"staff\"", "\"corp\""));
    let mut browser = Browser::new(&server);
    let sent = browser.go("/staff/");
    assert_eq!((sent.status, browser.cookies.len()), (302, 0), "{sent:?}");
}

#[test]
fn a_provider_that_is_away_keeps_nobody_out_who_is_in() {
    let (folder, provider) = (Folder::new("openid"), Provider::start());
    provider.set(Manner::Failing);
    let mut server = Server::with_config(&folder, &settings(&folder, &provider.issuer, ""));
    let away = Browser::new(&server).go("/");
    assert_eq!((away.status, away.field("retry-after")), (503, Some("1")));
    server.line("cannot be had: it has answered 500");
    assert_eq!(Browser::new(&server).go("/open/").status, 200);
    provider.set(Manner::Sound);
    let mut browser = Browser::new(&server);
    let sent = wait_for(
        || Some(browser.go("/")).filter(|answer| answer.status == 302),
        "the provider to be asked again",
    );
    let parameters = provider.authorise(sent.location());
    assert_eq!(browser.come_back(&parameters).status, 302);
    provider.set(Manner::Failing);
    assert_eq!(browser.go("/").body, "the page");
    let mut late = Browser::new(&server);
    let parameters = provider.authorise(late.go("/").location());
    assert_eq!(late.come_back(&parameters).status, 503);
}

/// A provider that people run, driven as a browser does it.
#[test]
fn a_real_provider() {
    let library = Path::new(BINARY).ancestors().find_map(|folder| {
        let library = folder.join("tools/node/oidc-provider/node_modules/oidc-provider/lib/index.js");
        library.is_file().then_some(library)
    });
    let Some(library) = library else {
        eprintln!("SKIPPED: there is no oidc-provider; `cargo xtask tools` installs it where there is npm");
        return;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/openid_provider/provider.mjs");
    let mut command = Command::new("node");
    command.arg(script).arg(library).arg("http://site.test/.openid/callback");
    let mut provider = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut said = BufReader::new(provider.stdout.take().unwrap());
    said.read_line(&mut line).unwrap();
    std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
    let issuer = line.trim().strip_prefix("issuer ").unwrap_or_else(|| panic!("{line:?}"));

    let folder = Folder::new("openid-real");
    let server = Server::with_config(&folder, &settings(&folder, issuer, ""));
    let jar = folder.path("jar").display().to_string();
    // Where it has ended, and what stands there.
    let browse = |arguments: &[&str]| -> (String, String) {
        let to = format!("site.test:80:{}", server.address);
        let mut curl = Command::new("curl");
        curl.args([
            "-sSL",
            "--max-time",
            "20",
            "-c",
            &jar,
            "-b",
            &jar,
            "-H",
            "Accept: text/html",
            "--connect-to",
            &to,
        ]);
        let output = curl.args(["-w", "\n%{url_effective}"]).args(arguments).output_in_time();
        let text = String::from_utf8(output.stdout).unwrap();
        let (body, address) = text.rsplit_once('\n').unwrap();
        (address.to_owned(), body.to_owned())
    };
    let (login, page) = browse(&["http://site.test/staff/?a=b"]);
    assert!(login.starts_with(&format!("{issuer}/interaction/")), "{login} {page}");
    let (consent, page) = browse(&["-d", "prompt=login&login=anna&password=x", &login]);
    assert!(consent.starts_with(&format!("{issuer}/interaction/")), "{consent} {page}");
    let (back, page) = browse(&["-d", "prompt=consent", &consent]);
    assert_eq!((&*back, &*page), ("http://site.test/staff/?a=b", "staff"));
    assert_eq!(browse(&["http://site.test/staff/"]).1, "staff");
    assert!(browse(&["http://site.test/board/"]).1.contains("403"));
    let (end, _) = browse(&["http://site.test/.openid/logout"]);
    assert!(end.starts_with(&format!("{issuer}/session/end?client_id=web")), "{end}");
    // Who still has a session there is logged in without being asked.
    assert_eq!(
        browse(&["http://site.test/staff/again"]),
        ("http://site.test/staff/again".into(), "staff".into())
    );
    drop(provider.stdin.take());
    wait_for(|| provider.try_wait().unwrap(), "the provider to end");
}
