//! What `explain` says is what is served (FAULTS 68): random settings, trees and requests, and for each request the
//! status, the location and the file of a real answer against those that were foretold, over HTTP/1.1 and HTTP/2: nothing is
//! served by any way in that is said to be forbidden, by address, list, country, time, login, group, or signature of the URL.

mod running;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use running::random::Random;
use running::{Folder, Server, WAIT, countries, run};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use tidegate_config::settings::UrlKey;
use tidegate_modules::login::{SignedFor, sign_url};

/// Of anna (`secret1`) and ben (`secret2`), by a hash that costs little.
const PASSWORDS: &str =
    "anna:$apr1$abcdefgh$paCto.rW8wn6thJ8b0QQY.\nben:$apr1$abcdefgi$c3QPKcGNst9bmGvC.9sK40\n";

/// How many settings are tried, and requests of each.
const WORLDS: u64 = 16;
const REQUESTS: u32 = 60;

const NAMES: [&str; 9] =
    ["a", "b", "index.html", "home.txt", "x.txt", ".hid", "d", "404.html", ".well-known"];

/// A tree of files whose contents are their own names, links in and out, and what may not be read.
fn grow(random: &mut Random, folder: &Folder, below: &str, depth: u32) {
    fs::create_dir_all(folder.path(below)).unwrap();
    for name in NAMES {
        let path = format!("{below}/{name}");
        match random.0.u64(..9) {
            0 | 1 => {}
            2 | 3 if depth > 0 => grow(random, folder, &path, depth - 1),
            4 => symlink(random.pick(&["a", "d", "x.txt", "nowhere"]), folder.path(&path)).unwrap(),
            5 => symlink(random.pick(&["/etc/passwd", "../../../etc"]), folder.path(&path)).unwrap(),
            6 => {
                folder.write(&path, &path);
                fs::set_permissions(folder.path(&path), fs::Permissions::from_mode(0o600)).unwrap();
            }
            _ => drop(folder.write(&path, &path)),
        }
    }
}

fn access(random: &mut Random) -> String {
    match random.0.u64(..16) {
        8 => "deny list=\"listed\"; ".into(),
        9 => "allow list=\"listed\" \"127.0.0.1\"; ".into(),
        10 => "allow country=\"DE\" \"127.0.0.1\"; deny \"192.0.2.8\"; ".into(),
        11 => "deny country=\"FR,ZZ\"; ".into(),
        12 => "allow time=\"00:00-24:00 Asia/Tokyo\"; ".into(),
        13 => "deny list=\"listed\" country=\"DE\" time=\"Mon-Sun\"; ".into(),
        0 => "deny \"all\"; ".into(),
        1 => "allow \"127.0.0.1\"; ".into(),
        2 => "allow \"192.0.2.0/24\" \"127.0.0.1\"; deny \"all\"; ".into(),
        3 => "deny \"192.0.2.7\"; ".into(),
        4 => "access off; ".into(),
        _ => String::new(),
    }
}

/// What may stand in a site and in a route.
fn inner(random: &mut Random) -> String {
    let mut text = access(random);
    let mut has = Vec::new();
    for (chance, word) in [
        (4, "hidden; "),
        (4, "listing; "),
        (3, "index \"home.txt\" \"index.html\"; "),
        (3, "error-page 404 \"/404.html\"; "),
        (4, "error-page 403 \"/d/index.html\"; "),
        (9, "nocache; "),
        (20, "require-client-certificate; "),
        (20, "require certificate \"cn:anna\"; "),
        (7, "login basic \"staff\"; "),
        (12, "login basic \"staff\"; require group \"admins\"; "),
        (14, "login basic \"staff\" realm=\"r\"; require user \"ben\"; "),
        (7, "signed \"keys\"; "),
        (16, "signed \"keys\" host client; "),
        (6, "header \"X-C\" \"{country}\"; "),
        (7, "methods \"GET\" \"OPTIONS\"; "),
        (7, "cors \"https://a.test\"; "),
        (6, "header \"X-A\" \"{query.q:-x}\" missing; "),
        (5, "header \"X-A\" \"{path}\"; "),
        (5, "trusted-proxies \"127.0.0.1\"; "),
    ] {
        let name = word.split([' ', ';']).next().unwrap_or(word);
        // A login or a signature stands in a level once.
        if random.one_in(chance) && !(has.contains(&name) && ["login", "signed"].contains(&name)) {
            has.push(name);
            text += word;
        } else if word.starts_with("error-page 404") && random.one_in(8) {
            text += "error-page 404 off; ";
        }
    }
    text
}

fn answer(random: &mut Random, pattern: &str) -> String {
    let star = if pattern.contains('*') || pattern.contains("([") { "{1}" } else { "b" };
    match random.0.u64(..13) {
        9 => format!("rewrite \"/d/{star}\"; root \"site\"; "),
        10 => format!("hand-to \"/{star}?from=rules\"; "),
        11 => format!(
            "rewrite \"{{path}}x.txt\"; header \"X-Star\" \"{star} {{query.q:-none}}\"; root \"other\"; "
        ),
        12 => format!("redirect \"/to/{star}?c={{cookie.c}}&v={{value.v}}{{query}}\" status=308; "),
        0 => "redirect \"/new{path}{query}\"; ".into(),
        1 => "redirect \"https://{host}{uri}\" status=308; ".into(),
        2 => "respond 403; ".into(),
        3 => "respond 404 \"words\"; ".into(),
        4 if pattern.ends_with("/*") => "alias \"other\"; ".into(),
        5 => "root \"other\"; ".into(),
        6 => "try \"{path}\" \"{path}.html\" \"/a\" \"/d/index.html\" \"=403\"; ".into(),
        7 => "try \"{path}\" \"{path}/\" \"@last\"; ".into(),
        _ => String::new(),
    }
}

/// What a route may ask of requests beside their path.
fn conditions(random: &mut Random) -> String {
    let mut text = String::new();
    while random.one_in(3) {
        text += random.pick(&["when ", "when ", "unless "]);
        text += random.pick(&[
            "method \"GET\"",
            "method \"POST\" \"OPTIONS\"",
            "header \"X-A\" \"1\" \"2*\"",
            "header \"X-A\" \"\" regex=\"^x\"",
            "cookie \"c\" \"y*\"",
            "query \"q\" \"1\"",
            "host \"*.wild.test\" \"named.test\"",
            "path \"*.txt\" \"/d/*\"",
            "client \"192.0.2.0/24\" \"local\"",
            "match \"m\"",
            "value \"v\" \"one\"",
            "file \"other/b\"",
            "client-list \"listed\"",
            "country \"DE\" \"AT\"",
            "country \"ZZ\"",
            "time \"Mon-Fri UTC\" \"Sat,Sun UTC\"",
            "value \"c\" \"near\"",
        ]);
        text += "; ";
    }
    text
}

fn settings(random: &mut Random) -> String {
    let mut text = String::from("listen \"127.0.0.1:0\" { h2c }\nworkers 1\nprocesses 1\n");
    text += "users \"staff\" { htpasswd \"passwords\"; groups \"groups\" }\nurl-keys \"keys\" \"url-keys\"\n";
    text += "match \"m\" { header \"X-A\" \"1\"; query \"q\" }\n";
    text +=
        "value \"v\" from=\"{cookie.c:-none}\" { \"y*\" \"one\"; \"none\" \"none\"; \"*\" \"/two//b\" }\n";
    text += "country-database \"countries\"\n";
    text += "value \"c\" from=\"{country:-none}\" { \"DE\" \"near\"; \"*\" \"far\" }\n";
    text += "rules \"r\" { header \"X-R\" \"r\" missing; route \"/b/r\" { respond 410 } }\n";
    if rustix::process::geteuid().is_root() {
        text += "user \"nobody\"\n";
    }
    for name in ["", "\"named.test\" \"*.wild.test\""] {
        text +=
            &format!("site {name} {{\n  root \"site\"\n  {}\n", inner(random).replace("access off; ", ""));
        let patterns = [
            "/a/*",
            "/d/index.html",
            "*.txt",
            "/b*",
            "/d/*",
            "~^/([ab])/",
            "~(?i)\\\\.HTML$",
            "~^/(?<x>d|b)(/.*)?$",
            "/*",
        ];
        for _ in 0..random.0.u64(..12) {
            let pattern = random.pick(&patterns);
            // One for everything is for some requests only, or there would be little else.
            let mut asks = conditions(random);
            if pattern == "/*" && asks.is_empty() {
                asks = "when header \"X-A\"; ".into();
            }
            let written = match pattern.strip_prefix('~') {
                Some(expression) => format!("regex=\"{expression}\""),
                None => format!("\"{pattern}\""),
            };
            text += &format!("  route {written} {{ {asks}{}{}}}\n", inner(random), answer(random, pattern));
        }
        if random.one_in(3) {
            text += "  use \"r\"\n";
        }
        text += &format!("  route \"@last\" {{ {}respond 200 \"last\" }}\n}}\n", access(random));
    }
    text
}

fn path(random: &mut Random) -> String {
    let mut path = String::new();
    for _ in 0..=random.0.u64(..3) {
        path += random.pick(&["/", "/", "/", "/", "/", "/", "//", "/./", "/../", "/%2e/", "/%2F"]);
        path += &random.pick(&NAMES).replace('d', random.pick(&["d", "d", "%64"]));
    }
    path + random.pick(&["", "", "", "", "", "/", "?q=1", "?q=%2e%2e/&x", "%00", "%0a", "/nothing", ".html"])
}

struct Answer {
    status: String,
    location: String,
    body: String,
}

fn ask(server: &str, method: &str, path: &str, fields: &[String]) -> Answer {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(WAIT)).unwrap();
    write!(stream, "{method} {path} HTTP/1.1\r\n{}\r\nConnection: close\r\n\r\n", fields.join("\r\n"))
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let location = head.lines().find_map(|line| line.strip_prefix("Location: "));
    Answer {
        status: answer.get(9..12).unwrap_or_default().into(),
        location: location.unwrap_or_default().into(),
        body: body.into(),
    }
}

/// The same over HTTP/2, asked by curl. `None`: it is not there, or cannot ask so.
fn ask_by_http2(server: &str, method: &str, path: &str, fields: &[String]) -> Option<Answer> {
    let mut curl = Command::new("curl");
    curl.args([
        "--silent",
        "--http2-prior-knowledge",
        "--path-as-is",
        "--globoff",
        "--max-time",
        "60",
        "--include",
    ]);
    curl.args(if method == "HEAD" { vec!["--head"] } else { vec!["--request", method] });
    curl.args(fields.iter().flat_map(|field| ["--header", field.as_str()]));
    let output =
        curl.arg(format!("http://{server}{path}")).output().ok().filter(|said| said.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let location = head.lines().find_map(|line| line.strip_prefix("location: "));
    Some(Answer {
        status: head.get(7..10).unwrap_or_default().into(),
        location: location.unwrap_or_default().into(),
        body: body.into(),
    })
}

/// Who logs in: the name, and the field that does.
fn login(random: &mut Random) -> Option<(&'static str, String)> {
    let (name, password) = *[("anna", "secret1"), ("ben", "secret2")].get(random.0.usize(..4))?;
    Some((name, format!("Authorization: Basic {}", STANDARD.encode(format!("{name}:{password}")))))
}

#[test]
fn what_is_explained_is_what_is_served() {
    let (mut wrong, mut seen) = (Vec::new(), std::collections::BTreeMap::new());
    for seed in 0..WORLDS {
        let mut random = Random::new(seed);
        let folder = Folder::new("explain-all");
        grow(&mut random, &folder, "site", 2);
        grow(&mut random, &folder, "other", 1);
        folder.write("passwords", PASSWORDS);
        folder.write("groups", "admins: anna\n");
        folder.write("url-keys", &format!("{}\n", STANDARD.encode([7; 32])));
        folder.write("listed", "192.0.2.7 # one\n198.51.100.0/24\n");
        let countries = countries::database(&[("192.0.2.0/29", "DE"), ("198.51.100.0/24", "FR")]);
        fs::write(folder.path("countries"), countries).unwrap();
        let text = settings(&mut random);
        let server = Server::with_config(&folder, &text);
        for _ in 0..REQUESTS {
            let method = random.pick(&["GET", "GET", "GET", "GET", "HEAD", "POST", "OPTIONS"]);
            let mut path = path(&mut random);
            let mut fields =
                vec![format!("Host: {}", random.pick(&["x", "named.test", "a.wild.test:80", "wild.test"]))];
            if random.one_in(3) {
                let from = random.pick(&["192.0.2.7", "192.0.2.8", "198.51.100.1, 127.0.0.1", "nonsense"]);
                fields.push(format!("X-Forwarded-For: {from}"));
            }
            for (name, values) in [("X-A", ["1", "22", "x"]), ("Cookie", ["c=yes", "a=b; c=z", "c="])] {
                if random.one_in(2) {
                    fields.push(format!("{name}: {}", random.pick(&values)));
                }
            }
            let host = fields[0].strip_prefix("Host: ").unwrap().to_owned();
            if random.one_in(2) {
                let only = match random.one_in(2) {
                    true => SignedFor { client: Some([127, 0, 0, 1].into()), host: Some(&host) },
                    false => SignedFor::default(),
                };
                let expires = if random.one_in(3) { 1 } else { 999_999_999_999 };
                // Some paths cannot be signed, and none can be for them.
                path = sign_url(&path, &UrlKey::from_bytes(vec![7; 32]), expires, only).unwrap_or(path);
            }
            let user = login(&mut random);
            // Who says so with a name and a password is assumed to have done so.
            let assumed = user.as_ref().map(|(name, _)| ["--user", name]);
            let mut arguments = vec!["explain", "--config", "tidegate.kdl"];
            arguments.extend(assumed.iter().flatten());
            arguments.extend([method, path.as_str()]);
            arguments.extend(fields.iter().flat_map(|field| ["-H", field.as_str()]));
            let explained = run(&folder, &arguments).stdout;
            let foretold = |start: &str| {
                explained
                    .lines()
                    .rev()
                    .find_map(|line| line.strip_prefix(start))
                    .unwrap_or_default()
                    .to_owned()
            };
            let status = foretold("answer: ").split(' ').next().unwrap_or_default().to_owned();
            let file = foretold("file ");
            let file = file.rsplit_once(", ").map(|(file, _)| file.to_owned());
            let location = foretold("  Location: ");
            fields.extend(user.map(|(_, field)| field));
            let served = ask(&server.address, method, &path, &fields);
            *seen.entry(served.status.clone()).or_insert(0) += 1;
            if random.one_in(4)
                && let Some(other) = ask_by_http2(&server.address, method, &path, &fields)
            {
                *seen.entry("over HTTP/2".to_owned()).or_insert(0) += 1;
                if (&other.status, &other.location) != (&served.status, &served.location)
                    || (method == "GET" && other.body != served.body)
                {
                    wrong.push(format!(
                        "seed {seed}: {method} {path} {fields:?}\nserved {} {} {:?}\nand over HTTP/2 {} {} {:?}\nwith {text}",
                        served.status, served.location, served.body, other.status, other.location, other.body
                    ));
                }
            }
            // A file is a page of its own, or what stands in for an error.
            let is_same_file = match &file {
                Some(file) if method == "GET" && served.status != "304" => {
                    fs::read_to_string(file).is_ok_and(|content| content == served.body)
                        || !served.body.starts_with("site/") && !served.body.starts_with("other/")
                }
                None => !served.body.starts_with("site/") && !served.body.starts_with("other/"),
                Some(_) => true,
            };
            if (status, location) != (served.status.clone(), served.location.clone()) || !is_same_file {
                wrong.push(format!(
                    "seed {seed}: {method} {path} {fields:?}\nserved {} {} {:?}\nexplained {explained}\nwith {text}",
                    served.status, served.location, served.body
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.first().map_or("", String::as_str));
    if !seen.contains_key("over HTTP/2") {
        eprintln!("SKIPPED: no curl that speaks HTTP/2, so nothing was asked over it");
    }
    for status in ["200", "301", "308", "400", "401", "403", "404", "405", "410"] {
        assert!(seen.contains_key(status), "no request was answered {status}: {seen:?}");
    }
}
