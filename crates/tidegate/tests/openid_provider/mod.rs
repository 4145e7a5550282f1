//! An identity provider in this process, which does what a sound one does, and what broken and hostile ones could, and a
//! browser's part with its cookies.

use crate::running::over_tls::ask_over_tls;
use crate::running::{Server, WAIT};
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};
use tidegate_tls::{Connector, ConnectorOptions, Trust};

/// What a provider does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
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

pub struct Provider {
    pub issuer: String,
    pub state: Mutex<State>,
}

pub struct State {
    pub manner: Manner,
    pub key: EcdsaKeyPair,
    pub kid: String,
    /// Challenge, nonce and the address to come back to, by code.
    codes: HashMap<String, (String, String, String)>,
    /// How often each path was asked for.
    asked: BTreeMap<String, usize>,
    user: &'static str,
    pub groups: &'static [&'static str],
}

pub fn new_key() -> EcdsaKeyPair {
    EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap()
}

pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

impl Provider {
    pub fn start() -> Arc<Provider> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let issuer = format!("http://{}/realm", listener.local_addr().unwrap());
        let state = State {
            manner: Manner::Sound,
            key: new_key(),
            kid: "one".into(),
            codes: HashMap::new(),
            asked: BTreeMap::new(),
            user: "anna",
            groups: &["staff", "all"],
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

    pub fn set(&self, manner: Manner) {
        self.state.lock().unwrap().manner = manner;
    }

    pub fn asked(&self, path: &str) -> usize {
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
            "exp": now() + 300, "iat": now(), "groups": state.groups,
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
    pub fn authorise(&self, location: &str) -> HashMap<String, String> {
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
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn field<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        self.fields(name).next()
    }

    pub fn fields<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(move |(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub fn location(&self) -> &str {
        assert_eq!(self.status, 302, "{self:?}");
        self.field("location").unwrap()
    }
}

/// A browser, with its cookies.
#[derive(Debug, Clone)]
pub struct Browser {
    pub address: String,
    pub host: &'static str,
    pub cookies: BTreeMap<String, String>,
    /// It speaks TLS.
    pub is_secure: bool,
}

impl Browser {
    pub fn new(server: &Server<'_>) -> Browser {
        Browser {
            address: server.address.clone(),
            host: "site.test",
            cookies: BTreeMap::new(),
            is_secure: false,
        }
    }

    pub fn ask(&mut self, method: &str, path: &str, fields: &str) -> Answer {
        // That of the page that logs out is shown to no other.
        let shown = |name: &str| path.starts_with("/.openid/logout") || !name.contains("-hint-");
        let cookies = self.cookies.iter().filter(|(name, _)| shown(name));
        let cookies: Vec<String> = cookies.map(|(name, value)| format!("{name}={value}")).collect();
        let cookies =
            if cookies.is_empty() { String::new() } else { format!("Cookie: {}\r\n", cookies.join("; ")) };
        let host = self.host;
        let text = self.exchange(&format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{cookies}{fields}\r\n"
        ));
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text:?}"));
        let status = head[9..12].parse().unwrap();
        let answer = Answer { status, head: head.to_owned(), body: body.to_owned() };
        for cookie in answer.fields("set-cookie") {
            let (name, value) = cookie.split(';').next().unwrap().split_once('=').unwrap();
            let path = if name.contains("-hint-") { "/.openid/logout" } else { "/" };
            assert!(cookie.contains(&format!("; Path={path}; ")), "{cookie}");
            assert!(cookie.contains("; HttpOnly; SameSite=Lax"), "{cookie}");
            let prefix = if name.contains("-hint-") { "__Secure-" } else { "__Host-" };
            assert_eq!(
                (name.starts_with(prefix), cookie.ends_with("; Secure")),
                (self.is_secure, self.is_secure),
                "{cookie}"
            );
            match cookie.contains("Max-Age=0") {
                true => drop(self.cookies.remove(name)),
                false => drop(self.cookies.insert(name.to_owned(), value.to_owned())),
            }
        }
        answer
    }

    fn exchange(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(WAIT)).unwrap();
        if !self.is_secure {
            let mut answer = Vec::new();
            stream.write_all(request.as_bytes()).unwrap();
            stream.read_to_end(&mut answer).unwrap();
            return String::from_utf8(answer).unwrap();
        }
        let connector = Connector::new(&ConnectorOptions::new(Trust::Anybody)).unwrap();
        String::from_utf8(ask_over_tls(stream, &connector, self.host, request)).unwrap()
    }

    /// As somebody does who follows a link.
    pub fn go(&mut self, path: &str) -> Answer {
        self.ask("GET", path, "Accept: text/html,*/*\r\n")
    }

    pub fn come_back(&mut self, parameters: &HashMap<String, String>) -> Answer {
        self.go(&format!("/.openid/callback?{}", query(parameters)))
    }

    pub fn log_in(&mut self, provider: &Provider, path: &str) -> Answer {
        let sent = self.go(path);
        let parameters = provider.authorise(sent.location());
        self.come_back(&parameters)
    }
}

/// A session as the server seals it, of somebody of whom the provider has said something then.
pub fn session(issuer: &str, key: &[u8], since: u64) -> String {
    let plain = json!({ "u": "anna", "g": ["staff"], "b": since }).to_string();
    let salt = [3; 24];
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    context.update(b"tidegate openid 1");
    let purpose = ["session", "corp", issuer, "web", "sub", "groups", "http", "site.test"];
    for part in purpose.map(str::as_bytes).into_iter().chain([&salt[..]]) {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, context.sign().as_ref()).unwrap());
    let mut sealed = plain.into_bytes();
    key.seal_in_place_append_tag(Nonce::assume_unique_for_key([0; 12]), Aad::empty(), &mut sealed).unwrap();
    URL_SAFE_NO_PAD.encode([&salt[..], &sealed].concat())
}
