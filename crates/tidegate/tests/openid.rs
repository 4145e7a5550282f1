//! Logins by an identity provider (`login openid`): a provider in this process that does what a sound one does, and what broken
//! and hostile ones could, and a browser's part with its cookies.

mod openid_provider;
mod running;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use openid_provider::{Browser, Manner, Provider, new_key, now, session};
use rcgen::generate_simple_self_signed;
use running::{BINARY, Folder, Server, wait_for};
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use tidegate_testkit::InTime;

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
    // The provider is shown by what token it knows whose session it is.
    let out = browser.go("/.openid/logout");
    let hint = out.location().strip_prefix(&format!("{}/end?client_id=web&id_token_hint=", provider.issuer));
    assert_eq!(hint.map(|token| token.split('.').count()), Some(3), "{out:?}");
    assert_eq!(browser.cookies.keys().collect::<Vec<_>>(), ["tidegate-login-corp"]);
    assert_eq!(browser.go("/").status, 302);
    for line in ["anna 302 /.openid/callback\n", "anna 200 /staff/\n", "anna 403 /board/\n"] {
        let has = || std::fs::read_to_string(folder.path("access")).ok()?.contains(line).then_some(());
        wait_for(has, line);
    }
}

/// Cookies that are set over TLS are of this host alone, and go over TLS alone; the browser holds each to that.
#[test]
fn cookies_over_tls() {
    let (folder, provider) = (Folder::new("openid-tls"), Provider::start());
    let own = generate_simple_self_signed(vec!["site.test".to_owned()]).unwrap();
    folder.write("site.pem", &own.cert.pem());
    folder.write("site.key", &own.signing_key.serialize_pem());
    let text = settings(&folder, &provider.issuer, "")
        + "listen \"127.0.0.1:0\" { tls certificate=\"site.pem\" key=\"site.key\" }\n";
    let mut server = Server::with_config(&folder, &text);
    let address = server.line("listening on https://").rsplit("https://").next().unwrap().to_owned();
    let mut browser = Browser { address, is_secure: true, ..Browser::new(&server) };
    assert_eq!(browser.log_in(&provider, "/staff/").location(), "https://site.test/staff/");
    assert_eq!(browser.go("/staff/").body, "staff");
    let names = ["__Host-tidegate-login-corp", "__Host-tidegate-session-corp", "__Secure-tidegate-hint-corp"];
    assert_eq!(browser.cookies.keys().collect::<Vec<_>>(), names);
    // A cookie without these names is one that anybody on the way could have set.
    let value = browser.cookies["__Host-tidegate-session-corp"].clone();
    let cookies = [("tidegate-session-corp".to_owned(), value)].into();
    assert_eq!(Browser { cookies, ..browser.clone() }.go("/staff/").status, 302);
    assert!(browser.go("/.openid/logout").location().contains("&id_token_hint="));
    assert_eq!(browser.cookies.keys().collect::<Vec<_>>(), ["__Host-tidegate-login-corp"]);
}

/// What a provider has said of somebody counts for a bounded time.
#[test]
fn claims_do_not_grow_old() {
    let (folder, provider) = (Folder::new("openid-refresh"), Provider::start());
    let text = settings(&folder, &provider.issuer, "refresh \"1h\"");
    let server = Server::with_config(&folder, &text);
    let with_session = |server: &Server<'_>, age: u64| {
        let mut browser = Browser::new(server);
        let value = session(&provider.issuer, &[7; 32], now() - age);
        browser.cookies.insert("tidegate-session-corp".into(), value);
        browser
    };
    let program = "Accept: application/json\r\n";
    assert_eq!(with_session(&server, 60).go("/staff/").body, "staff");
    assert_eq!(provider.asked("/realm/.well-known/openid-configuration"), 0, "nobody was asked");
    // A page is asked for: the provider is asked again, and says something else.
    let mut browser = with_session(&server, 5000);
    assert_eq!(browser.ask("GET", "/staff/", program).body, "staff");
    provider.state.lock().unwrap().groups = &["board"];
    let sent = browser.go("/staff/?a=b");
    assert!(sent.location().ends_with("&prompt=none"), "{sent:?}");
    let parameters = provider.authorise(sent.location());
    assert_eq!(browser.come_back(&parameters).location(), "http://site.test/staff/?a=b");
    assert_eq!((browser.go("/staff/").status, browser.go("/board/").status), (403, 200));
    // The same is of no use again, and with the new session nobody is sent there.
    assert_eq!(browser.come_back(&parameters).location(), "http://site.test/staff/?a=b");
    // Beyond twice the time it counts for nothing, whoever asks.
    let mut late = with_session(&server, 7300);
    assert_eq!(late.ask("GET", "/staff/", program).status, 401);
    assert_eq!(late.ask("POST", "/staff/", "Accept: text/html\r\nContent-Length: 0\r\n").status, 401);
    assert!(late.go("/staff/").location().ends_with("&prompt=none"));
    // Who is known there no longer has no session here either.
    let mut gone = with_session(&server, 5000);
    let mut parameters = provider.authorise(gone.go("/staff/").location());
    parameters.remove("code");
    parameters.insert("error".into(), "login_required".into());
    let sent = gone.come_back(&parameters);
    assert!(
        !sent.location().contains("prompt=") && !gone.cookies.contains_key("tidegate-session-corp"),
        "{sent:?}"
    );
    assert_eq!(gone.ask("GET", "/staff/", program).status, 401);
    let parameters = provider.authorise(sent.location());
    assert_eq!(gone.come_back(&parameters).location(), "http://site.test/staff/");
    drop(server);
    // While it is away, a session holds until then.
    provider.set(Manner::Failing);
    let server = Server::with_config(&folder, &text);
    assert_eq!(with_session(&server, 5000).go("/staff/").body, "staff");
    assert_eq!(with_session(&server, 7300).go("/staff/").status, 503);
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

/// FAULTS 58: a login that was begun once is no way to have the provider asked as often as somebody likes.
#[test]
fn who_brings_bad_codes_is_put_off() {
    let (folder, provider) = (Folder::new("openid"), Provider::start());
    let server = Server::with_config(&folder, &settings(&folder, &provider.issuer, ""));
    // Those who are let in are counted for nothing.
    for _ in 0..12 {
        assert_eq!(Browser::new(&server).log_in(&provider, "/").status, 302);
    }
    let mut browser = Browser::new(&server);
    let begun = browser.go("/");
    let mut parameters = provider.authorise(begun.location());
    let good = parameters.clone();
    let before = provider.asked("/realm/token");
    let statuses: Vec<u16> = (0..30)
        .map(|number| {
            parameters.insert("code".to_owned(), format!("bogus{number}"));
            browser.come_back(&parameters).status
        })
        .collect();
    assert_eq!(statuses[..10], [400; 10]);
    // One more in ten seconds, however long this takes.
    let refused = statuses.iter().filter(|status| **status == 429).count();
    assert!(refused >= 10 && statuses.iter().all(|status| [400, 429].contains(status)), "{statuses:?}");
    assert_eq!(provider.asked("/realm/token") - before, 30 - refused);
    let answer = browser.come_back(&good);
    assert!(answer.status == 302 || answer.field("retry-after").is_some(), "{answer:?}");
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
        assert!(browser.go("/.openid/logout").location().starts_with(&end), "{browser:?}");
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
    // One worker writes its lines in their order.
    let text = text.replace("workers 2", "workers 1");
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
    assert!(end.starts_with(&format!("{issuer}/session/end?client_id=web&id_token_hint=")), "{end}");
    // Who still has a session there is logged in without being asked.
    assert_eq!(
        browse(&["http://site.test/staff/again"]),
        ("http://site.test/staff/again".into(), "staff".into())
    );
    drop(provider.stdin.take());
    wait_for(|| provider.try_wait().unwrap(), "the provider to end");
}
