//! No entrance serves what `explain` calls forbidden: random rules around some secrets, random clients, and every way that
//! leads to a secret: its path in many spellings, `index`, `try`, a named route, an error page, `rewrite`, `hand-to`, the redirect
//! of a script and the file that an application names (`X-Sendfile`).
//!
//! A client has an address, a country, a name, perhaps a proxy in front of it, speaks TLS or not, shows one of two
//! certificates or none, and brings a password, a token or a signed URL, each of them right or wrong. Of every request two
//! things are asked of `explain`, before the server is: what this request gets, which has to be its status, and what the
//! same client gets who asks for the secret by its path: where that is a refusal, no entrance may lead to it.

mod running;

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};
use running::over_tls::ask_over_tls;
use running::random::Random;
use running::{Folder, Server, WAIT, countries, run};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{SystemTime, UNIX_EPOCH};
use tidegate_config::settings::UrlKey;
use tidegate_modules::login::{SignedFor, sign_url};
use tidegate_testkit::NameServer;
use tidegate_tls::{Certificate, Connector, ConnectorOptions, Pair, Slot, Trust};

/// How many settings are tried, and requests of each.
const WORLDS: u64 = 14;
const REQUESTS: u32 = 100;
/// The secrets of each, every one behind rules of its own.
const SECRETS: usize = 5;

/// Of anna (`secret1`) and ben (`secret2`), by a hash that costs little.
const PASSWORDS: &str =
    "anna:$apr1$abcdefgh$paCto.rW8wn6thJ8b0QQY.\nben:$apr1$abcdefgi$c3QPKcGNst9bmGvC.9sK40\n";
const TOKEN_KEY: [u8; 32] = [9; 32];
const URL_KEY: [u8; 32] = [7; 32];

/// What may stand around a secret. `TODAY` and `OTHERWISE` are days of the week.
const RULES: [&str; 31] = [
    "",
    "deny \"all\"",
    "deny \"127.0.0.2\"",
    "allow \"127.0.0.1\"",
    "access off; deny \"127.0.0.1\"",
    "deny list=\"listed\"",
    "allow list=\"listed\"",
    "allow country=\"DE\"",
    "deny country=\"FR,ZZ\"",
    "trusted-proxies \"127.0.0.2\"; allow name=\"*.office.test\"",
    "trusted-proxies \"127.0.0.2\"; deny name=\"*.office.test\"",
    "allow \"all\" time=\"Mon-Sun\"",
    "allow \"all\" time=\"TODAY UTC\"",
    "allow \"all\" time=\"OTHERWISE UTC\"",
    "deny \"127.0.0.1\" time=\"TODAY UTC\"; deny list=\"listed\" time=\"OTHERWISE UTC\"",
    "trusted-proxies \"127.0.0.2\"; allow \"192.0.2.9\"",
    "trusted-proxies \"127.0.0.2\"; deny \"192.0.2.9\" \"127.0.0.1\"",
    "login basic \"staff\"",
    "login basic \"staff\"; require group \"admins\"",
    "login basic \"staff\"; require user \"ben\"; deny \"127.0.0.2\"",
    "login token \"api\"",
    "login token \"api\"; require group \"admins\"",
    "login token \"api\"; require user \"ben\"",
    "require certificate \"cn:anna\"",
    "require certificate \"email:*@corp.test\" issuer=\"CN=ca\"",
    "require certificate \"email:*@other.test\"; login basic \"staff\"",
    "require-client-certificate",
    "require-client-certificate; deny country=\"DE\"",
    "signed \"keys\"",
    "signed \"keys\" host client",
    "signed \"keys\"; login basic \"staff\"",
];

/// What may stand around the whole site.
const OUTER: [&str; 8] = [
    "",
    "",
    "",
    "deny list=\"listed\"",
    "allow \"127.0.0.0/8\" \"192.0.2.0/24\"",
    "login basic \"staff\"",
    "deny \"127.0.0.2\"",
    "error-page 403 \"/sorry\"; error-page 401 \"/s/0/page.html\"",
];

/// Ways to the page of a secret. `N` is its number.
const ENTRANCES: [&str; 18] = [
    "/s/N/page.html",
    "/s/N/page.html",
    "/s/N/",
    "//s/./N//page.html",
    "/x/../s/N/page.html",
    "/%73/N/p%61ge.html",
    "/s/N/page.html/",
    "/s%2FN/page.html",
    "/try/N/nothing",
    "/named/N/nothing",
    "/error/N/nothing",
    "/hand/N",
    "/rewrite/N",
    "/jump.cgi?/s/N/page.html",
    "/accel.cgi?/s/N/page.html",
    "/accel.cgi?/protected/../s/N/page.html",
    "/outside.cgi?site/s/N/page.html",
    "/file/N.cgi",
];

/// What clients send who hope that somebody goes by it.
const FORGED: [&str; 12] = [
    "X-Accel-Redirect: /s/0/page.html",
    "X-Sendfile: /s/0/page.html",
    "X-Original-URL: /s/0/page.html",
    "X-Rewrite-URL: /s/0/page.html",
    "Remote-User: anna",
    "X-Forwarded-User: anna",
    "X-SSL-Client-Verify: SUCCESS",
    "X-HTTP-Method-Override: HEAD",
    "X-Real-IP: 127.0.0.1",
    "Forwarded: for=127.0.0.1;proto=https",
    "Referer: http://a.test/s/0/page.html",
    "Cookie: tidegate-session-staff=x; __Host-tidegate-session-corp=x",
];

/// What a proxy says of the one client that has a name.
const TOLD: &str = "X-Forwarded-For: 192.0.2.9";

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// A token of HS256, by this key.
fn token(key: &[u8], head: &serde_json::Value, claims: &serde_json::Value) -> String {
    let text = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(head.to_string()),
        URL_SAFE_NO_PAD.encode(claims.to_string())
    );
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes());
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// What a client may say of who it is.
fn proofs() -> Vec<(&'static str, String)> {
    let basic = |pair: &str| format!("Basic {}", STANDARD.encode(pair));
    let head = json!({ "alg": "HS256", "typ": "JWT", "kid": "one" });
    let claims = |user: &str, expires: u64| {
        let groups = if user == "anna" { vec!["admins"] } else { vec![] };
        json!({ "iss": "https://id.test", "aud": "api", "sub": user, "exp": expires, "groups": groups })
    };
    let late = 99_999_999_999;
    let sound = token(&TOKEN_KEY, &head, &claims("anna", late));
    let unsigned = token(&[1], &json!({ "alg": "none", "typ": "JWT", "kid": "one" }), &claims("anna", late));
    let elsewhere =
        json!({ "iss": "https://id.test", "aud": "shop", "sub": "anna", "exp": late, "groups": ["admins"] });
    let bearer = |token: &str| format!("Bearer {token}");
    vec![
        ("password of anna", basic("anna:secret1")),
        ("password of ben", basic("ben:secret2")),
        ("wrong password", basic("anna:secret2")),
        ("password of nobody", basic("nobody:secret1")),
        ("empty password", basic("anna:")),
        ("token of anna", bearer(&sound)),
        ("token of ben", bearer(&token(&TOKEN_KEY, &head, &claims("ben", late)))),
        ("expired token", bearer(&token(&TOKEN_KEY, &head, &claims("anna", 1000)))),
        ("token of another key", bearer(&token(&[8; 32], &head, &claims("anna", late)))),
        ("unsigned token", bearer(unsigned.rsplit_once('.').unwrap().0)),
        ("cut token", bearer(&sound[..sound.len() - 3])),
        ("token for others", bearer(&token(&TOKEN_KEY, &head, &elsewhere))),
    ]
}

/// An authority, the certificate of the site, and those of two clients.
fn certificates(folder: &Folder) {
    let (above, mut authority) = (KeyPair::generate().unwrap(), CertificateParams::new(Vec::new()).unwrap());
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.distinguished_name.push(DnType::CommonName, "ca");
    folder.write("ca.pem", &authority.self_signed(&above).unwrap().pem());
    let issuer = Issuer::new(authority, above);
    for (name, host, email) in [
        ("site", Some("a.test"), None),
        ("anna", None, Some("anna@corp.test")),
        ("eve", None, Some("eve@other.test")),
    ] {
        let key = KeyPair::generate().unwrap();
        let mut params =
            CertificateParams::new(host.map(str::to_owned).into_iter().collect::<Vec<_>>()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.subject_alt_names.extend(email.map(|email| SanType::Rfc822Name(email.try_into().unwrap())));
        folder.write(&format!("{name}.pem"), &params.signed_by(&key, &issuer).unwrap().pem());
        folder.write(&format!("{name}.key"), &key.serialize_pem());
    }
}

fn script(folder: &Folder, name: &str, text: &str) {
    let path = folder.write(name, &format!("#!/bin/sh\n# SOURCE\n{text}\n"));
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// The files of a world.
fn grow(folder: &Folder) {
    let dir = folder.0.display();
    for number in 0..SECRETS {
        for place in [format!("site/s/{number}"), format!("site/error/{number}")] {
            fs::create_dir_all(folder.path(&place)).unwrap();
        }
        folder.write(&format!("site/s/{number}/page.html"), &format!("SECRET-{number}"));
        fs::create_dir_all(folder.path("site/file")).unwrap();
        fs::create_dir_all(folder.path("private")).unwrap();
        folder.write(&format!("private/{number}"), &format!("PRIVATE-{number}"));
        script(
            folder,
            &format!("site/file/{number}.cgi"),
            &format!("printf 'X-Sendfile: {dir}/private/{number}\\n\\n'"),
        );
    }
    script(folder, "site/jump.cgi", "printf 'Location: %s\\n\\n' \"$QUERY_STRING\"");
    script(folder, "site/accel.cgi", "printf 'X-Accel-Redirect: %s\\n\\n' \"$QUERY_STRING\"");
    script(folder, "site/outside.cgi", &format!("printf 'X-Sendfile: {dir}/%s\\n\\n' \"$QUERY_STRING\""));
    folder.write("passwords", PASSWORDS);
    folder.write("groups", "admins: anna\n");
    folder.write("url-keys", &format!("{}\n", STANDARD.encode(URL_KEY)));
    let key = json!({ "kty": "oct", "alg": "HS256", "kid": "one", "k": URL_SAFE_NO_PAD.encode(TOKEN_KEY) });
    folder.write("jwks.json", &json!({ "keys": [key] }).to_string());
    folder.write("listed", "127.0.0.2\n198.51.100.0/24\n");
    let database = countries::database(&[("127.0.0.1/32", "DE"), ("192.0.2.0/24", "FR")]);
    fs::write(folder.path("countries"), database).unwrap();
    certificates(folder);
}

/// Settings, and the rules of each secret.
fn settings(
    seed: u64,
    random: &mut Random,
    name_server: SocketAddr,
    dir: &str,
) -> (String, Vec<&'static str>) {
    // The first day of 1970 was a Thursday. Half a week away it is another day until the test is over.
    let days = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    let day = usize::try_from(seconds() / 86_400).unwrap();
    let yesterday_to_tomorrow = format!("{},{},{}", days[(day + 6) % 7], days[day % 7], days[(day + 1) % 7]);
    let rule =
        |text: &str| text.replace("TODAY", &yesterday_to_tomorrow).replace("OTHERWISE", days[(day + 3) % 7]);
    let mut text = format!(
        "listen \"127.0.0.1:0\"\nlisten \"127.0.0.1:0\" {{ tls certificate=\"site.pem\" key=\"site.key\" }}\n\
         workers 1\nprocesses 1\ndns \"{name_server}\"\ncountry-database \"countries\"\n\
         pool \"cgi\" {{ cgi-stubs; processes min=2 max=2 }}\n\
         users \"staff\" {{ htpasswd \"passwords\"; groups \"groups\" }}\n\
         users \"api\" {{ tokens \"jwks.json\" {{ issuer \"https://id.test\"; audience \"api\"; groups \"groups\" }} }}\n\
         url-keys \"keys\" \"url-keys\"\n\
         site \"a.test\" {{\n  root \"site\"; index \"page.html\"\n  tls {{ client-certificates \"ca.pem\" mode=optional }}\n  {}\n",
        rule(random.pick(&OUTER))
    );
    // Each rule has its turn.
    let first = usize::try_from(seed).unwrap() * SECRETS;
    let rules: Vec<&'static str> = (first..first + SECRETS).map(|turn| RULES[turn % RULES.len()]).collect();
    // A `;` ends something: none may stand alone.
    let block =
        |words: &[&str]| words.iter().filter(|word| !word.is_empty()).copied().collect::<Vec<_>>().join("; ");
    for (number, inner) in rules.iter().map(|text| rule(text)).enumerate() {
        let inner = inner.as_str();
        let page = format!("/s/{number}/page.html");
        let mut entrance =
            || random.pick(&["", "", "access off; login off", "deny \"127.0.0.2\"", "login basic \"staff\""]);
        for (pattern, words) in [
            (page.clone(), block(&[inner])),
            (format!("/s/{number}/*"), block(&[entrance()])),
            (format!("/try/{number}/*"), block(&[entrance(), &format!("try \"{{path}}\" \"{page}\"")])),
            (
                format!("/named/{number}/*"),
                block(&[entrance(), &format!("try \"{{path}}\" \"@secret{number}\"")]),
            ),
            (format!("@secret{number}"), block(&[inner, &format!("respond 200 \"SECRET-{number}\"")])),
            (format!("/error/{number}/*"), block(&[entrance(), &format!("error-page 404 \"{page}\"")])),
            (format!("/hand/{number}"), block(&[entrance(), &format!("hand-to \"{page}\"")])),
            (format!("/rewrite/{number}"), block(&[entrance(), &format!("rewrite \"{page}\"")])),
            // Who may have a file that an application names is for the route of the application alone.
            (
                format!("/file/{number}.cgi"),
                block(&[inner, &format!("cgi {{ sendfile \"{dir}/private\" prefix=\"/protected/\" }}")]),
            ),
        ] {
            text += &format!("  route \"{pattern}\" {{ {words} }}\n");
        }
    }
    let words = block(&[
        "access off; login off",
        &format!("cgi {{ sendfile \"{dir}/private\" prefix=\"/protected/\" }}"),
    ]);
    text += &format!(
        "  route \"/*.cgi\" {{ {words} }}\n  route \"/sorry\" {{ access off; login off; respond 200 \"sorry\" }}\n}}\n"
    );
    (text, rules)
}

/// How a client comes.
#[derive(Debug, Clone)]
struct Client {
    address: &'static str,
    is_tls: bool,
    certificate: Option<&'static str>,
    fields: Vec<String>,
}

impl Client {
    fn random(random: &mut Random, proofs: &[(&'static str, String)]) -> Client {
        let is_tls = random.one_in(2);
        let mut fields = vec!["Host: a.test".to_owned()];
        if random.one_in(3) {
            let told =
                ["192.0.2.9", "192.0.2.9", "127.0.0.1", "198.51.100.3", "192.0.2.9, 127.0.0.1", "nonsense"];
            fields.push(format!("X-Forwarded-For: {}", random.pick(&told)));
        }
        if random.one_in(3) {
            fields.push(random.pick(&FORGED).to_owned());
        }
        if !random.one_in(3) {
            // Those that are right are tried as often as all others.
            let sound = random.one_in(2).then_some(["password of anna", "password of ben", "token of anna"]);
            let (_, proof) = match sound {
                Some(names) => {
                    let name = random.pick(&names);
                    proofs.iter().find(|(known, _)| *known == name).unwrap()
                }
                None => &proofs[random.0.usize(..proofs.len())],
            };
            fields.push(format!("Authorization: {proof}"));
        }
        let address = random.pick(&["127.0.0.1", "127.0.0.2"]);
        let certificate =
            is_tls.then(|| random.pick(&["", "anna", "anna", "eve"])).filter(|name| !name.is_empty());
        let (address, certificate) = (of_static(address), certificate.map(of_static));
        Client { address, is_tls, certificate, fields }
    }
}

/// A client that has all that a rule asks for.
fn suited(rule: &str, client: Client, proofs: &[(&'static str, String)]) -> Client {
    let asks = |words: &str| rule.contains(words);
    let proof = match () {
        () if asks("user \"ben\"") && asks("login token") => Some("token of ben"),
        () if asks("user \"ben\"") => Some("password of ben"),
        () if asks("login token") => Some("token of anna"),
        () if asks("login basic") => Some("password of anna"),
        () => None,
    };
    let certificate = match () {
        () if asks("*@other.test") => Some("eve"),
        () if asks("certificate") => Some("anna"),
        () => client.certificate,
    };
    let is_behind = asks("trusted-proxies") || asks("country=\"DE\"") && asks("deny");
    let (address, mut fields) =
        (if is_behind { "127.0.0.2" } else { "127.0.0.1" }, vec![client.fields[0].clone()]);
    fields.extend(proof.map(|name| {
        let (_, proof) = proofs.iter().find(|(known, _)| *known == name).unwrap();
        format!("Authorization: {proof}")
    }));
    fields.extend(asks("trusted-proxies").then(|| TOLD.to_owned()));
    Client { address, is_tls: certificate.is_some() || client.is_tls, certificate, fields }
}

/// One of the few words that are picked from.
fn of_static(word: &str) -> &'static str {
    ["127.0.0.1", "127.0.0.2", "anna", "eve"].into_iter().find(|known| *known == word).unwrap()
}

/// What `explain` says.
fn explained(folder: &Folder, server: &Doors, client: &Client, method: &str, path: &str) -> String {
    let (scheme, address) = if client.is_tls { ("https", &server.tls) } else { ("http", &server.plain) };
    let url = format!("{scheme}://{address}{path}");
    let certificate = client.certificate.map(|name| format!("{name}.pem"));
    // What the name server says of whoever the rules ask for by name: the addresses of this machine are not for it to say.
    let is_named = client.address == "127.0.0.2" && client.fields.iter().any(|field| field == TOLD);
    let name = if is_named { "anna.office.test" } else { "none" };
    let mut arguments =
        vec!["explain", "--config", "explained.kdl", "--from", client.address, "--name", name];
    arguments.extend(certificate.iter().flat_map(|file| ["--certificate", file.as_str()]));
    arguments.extend(client.fields.iter().flat_map(|field| ["-H", field.as_str()]));
    arguments.extend([method, url.as_str()]);
    let outcome = run(folder, &arguments);
    assert!(outcome.stdout.contains("answer: "), "{arguments:?}: {} {}", outcome.stdout, outcome.stderr);
    outcome.stdout
}

/// The status that is foretold; `None`: an application says it, or somebody who is not asked.
fn foretold(explained: &str) -> Option<u16> {
    let answer = explained.lines().rev().find_map(|line| line.strip_prefix("answer: "))?;
    answer.split(' ').next()?.parse().ok()
}

/// Where a server listens.
struct Doors {
    plain: String,
    tls: String,
}

/// Asks the server.
fn served(folder: &Folder, doors: &Doors, client: &Client, method: &str, path: &str) -> (u16, String) {
    let door = if client.is_tls { &doors.tls } else { &doors.plain };
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&format!("{}:0", client.address).parse::<SocketAddr>().unwrap().into()).unwrap();
    socket.connect(&door.parse::<SocketAddr>().unwrap().into()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(WAIT)).unwrap();
    let request =
        format!("{method} {path} HTTP/1.1\r\n{}\r\nConnection: close\r\n\r\n", client.fields.join("\r\n"));
    let answer = if client.is_tls {
        let identity = client.certificate.map(|name| {
            let (pem, key) = (folder.path(&format!("{name}.pem")), folder.path(&format!("{name}.key")));
            Slot::new(Certificate::new(&Pair::read(&pem, &key).unwrap()).unwrap())
        });
        let options = ConnectorOptions { identity, ..ConnectorOptions::new(Trust::Anybody) };
        let connector = Connector::new(&options).unwrap();
        ask_over_tls(stream, &connector, "a.test", &request)
    } else {
        let mut answer = Vec::new();
        stream.write_all(request.as_bytes()).unwrap();
        stream.read_to_end(&mut answer).unwrap();
        answer
    };
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

/// How often each rule and each entrance has led somebody to a secret, and kept somebody away from it.
#[derive(Default)]
struct Seen(BTreeMap<String, [u32; 2]>);

impl Seen {
    fn count(&mut self, what: &str, is_let_in: bool) {
        self.0.entry(what.to_owned()).or_default()[usize::from(!is_let_in)] += 1;
    }
}

/// A world: what differs, and what was seen.
fn try_world(seed: u64) -> (Vec<String>, Seen) {
    let mut random = Random::new(seed);
    let (folder, proofs) = (Folder::new("forbidden"), proofs());
    grow(&folder);
    let names = NameServer::start().unwrap();
    names.say("PTR 192.0.2.9 anna.office.test\nA anna.office.test 192.0.2.9").unwrap();
    let (text, rules) = settings(seed, &mut random, names.address(), &folder.0.display().to_string());
    let mut server = Server::with_config(&folder, &text);
    let tls = server.line("listening on https://").rsplit("https://").next().unwrap().to_owned();
    let doors = Doors { plain: server.address.clone(), tls };
    let with_ports = text.replacen("127.0.0.1:0", &doors.plain, 1).replacen("127.0.0.1:0", &doors.tls, 1);
    folder.write("explained.kdl", &with_ports);
    let (mut wrong, mut seen) = (Vec::new(), Seen::default());
    for _ in 0..REQUESTS {
        let number = random.0.usize(..SECRETS);
        let entrance = random.pick(&ENTRANCES);
        let page = format!("/s/{number}/page.html");
        let mut client = Client::random(&mut random, &proofs);
        let is_suited = random.one_in(2);
        if is_suited {
            client = suited(rules[number], client, &proofs);
        }
        let method = random.pick(&["GET", "GET", "GET", "GET", "GET", "POST", "HEAD"]);
        let mut path = entrance.replace('N', &number.to_string());
        let mut direct = page.clone();
        if random.one_in(2) || is_suited {
            let only = match random.one_in(2) || is_suited && rules[number].contains("client") {
                true => SignedFor { client: Some(client.address.parse().unwrap()), host: Some("a.test") },
                false => SignedFor::default(),
            };
            let expires = if random.one_in(4) && !is_suited { 1 } else { 999_999_999_999 };
            let signed = |path: &str| sign_url(path, &UrlKey::from_bytes(URL_KEY.to_vec()), expires, only);
            match random.0.u64(..4) & u64::from(!is_suited).wrapping_neg() {
                // It opens what the client has asked for, wherever that leads.
                0..=1 => {
                    direct = signed(&direct).unwrap();
                    path = signed(&path).unwrap_or(path);
                }
                // It is for another path.
                2 => {
                    let other = signed("/s/other/page.html").unwrap();
                    let (_, query) = other.split_once('?').unwrap();
                    path = format!("{path}{}{query}", if path.contains('?') { '&' } else { '?' });
                }
                _ => path = signed(&path).unwrap_or(path) + "&more",
            }
        }
        let said = explained(&folder, &doors, &client, method, &path);
        // A path that only a refusal is known for: whoever asks for the secret itself, in plain words.
        let of_secret = explained(&folder, &doors, &client, "GET", &direct);
        let is_open = foretold(&of_secret) == Some(200);
        let (status, body) = served(&folder, &doors, &client, method, &path);
        let has_secret = body.contains("SECRET-");
        let what = || {
            format!(
                "seed {seed}: {method} {path} of {client:?}\nserved {status} {body:?}\nexplained {said}\nand the page itself \
                 {of_secret}\nwith {text}"
            )
        };
        if foretold(&said).is_some_and(|foretold| foretold != status) {
            wrong.push(format!("another status: {}", what()));
        }
        if has_secret && !is_open {
            // Only a page that stands for a refusal may be another secret than the one that was asked for.
            let of_other = !body.contains(&format!("SECRET-{number}"));
            let by_error = explained(&folder, &doors, &client, "GET", "/s/0/page.html");
            if !(of_other && foretold(&by_error) == Some(200)) {
                wrong.push(format!("a bypass: {}", what()));
            }
        }
        let has_file = body.contains("PRIVATE-");
        if has_file && foretold(&said).is_some_and(|status| status >= 400) || body.contains("SOURCE") {
            wrong.push(format!("a file that was not to be had: {}", what()));
        }
        if method == "GET" {
            let is_let_in = body.contains(&format!("SECRET-{number}")) || has_file;
            seen.count(&format!("entrance {entrance}"), is_let_in);
            seen.count(&format!("rule `{}`", rules[number]), is_let_in);
        }
    }
    (wrong, seen)
}

#[test]
fn no_entrance_serves_what_is_forbidden() {
    let next = AtomicU64::new(0);
    let try_worlds = || {
        let seeds = std::iter::from_fn(|| Some(next.fetch_add(1, SeqCst)).filter(|seed| *seed < WORLDS));
        seeds.map(try_world).collect::<Vec<_>>()
    };
    let worlds: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(try_worlds)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let (mut wrong, mut seen) = (Vec::new(), Seen::default());
    for (more, of_world) in worlds {
        wrong.extend(more);
        for (what, [let_in, kept_out]) in of_world.0 {
            let sum = seen.0.entry(what).or_default();
            *sum = [sum[0] + let_in, sum[1] + kept_out];
        }
    }
    for one in &wrong {
        println!("{}", one.lines().next().unwrap_or_default());
    }
    assert!(wrong.is_empty(), "{} wrong, of these the first:\n{}", wrong.len(), wrong[0]);
    // What never lets anybody in where it should, and what never keeps anybody out, was not tried.
    let lead_nowhere = ["/s/N/page.html/", "/s%2FN/page.html", "/accel.cgi?", "/outside.cgi?"];
    for entrance in ENTRANCES {
        let [let_in, kept_out] = seen.0.get(&format!("entrance {entrance}")).copied().unwrap_or_default();
        let leads = !lead_nowhere.iter().any(|start| entrance.starts_with(start));
        assert!(kept_out > 0 && (let_in > 0 || !leads), "{entrance}: {let_in} let in, {kept_out} kept out");
    }
    for (what, [let_in, kept_out]) in seen.0.into_iter().filter(|(what, _)| what.starts_with("rule")) {
        let is_shut = what.contains("deny \"all\"") || what.contains("allow \"all\" time=\"OTHERWISE");
        assert!(
            kept_out > 0 && (let_in > 0) != is_shut || what == "rule ``",
            "{what}: {let_in} let in, {kept_out} kept out"
        );
    }
}
