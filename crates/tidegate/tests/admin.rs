//! The admin API as its users have it: settings read, changed and put back over its socket, through the console's route with a login, and
//! by a token; and what strangers, other sites and forged fields get.

mod running;

use running::{Folder, Server, get, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use tidegate_testkit::{InTime, WAIT};

/// `anna`, whose password is `secret`.
const STAFF: &str = "anna:$apr1$Jl7kt8fa$jdyeSnOjE4sek6wrJ17JX.\n";
const ANNA: &str = "Authorization: Basic YW5uYTpzZWNyZXQ=\r\n";
const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const JSON: &str = "Content-Type: application/json\r\n";

const SITES: &str = "// the sites, which lie apart\nsite \"localhost\" {\n    respond 200 \"one\"\n    route \"/.console/*\" { console { change }; login basic \"staff\" }\n    route \"/shows/*\" { console }\n}\n";

fn server(folder: &Folder) -> Server<'_> {
    folder.write("staff", STAFF);
    folder.write("token", TOKEN);
    fs::create_dir_all(folder.path("sites")).unwrap();
    folder.write("sites/a.kdl", SITES);
    let main = "// a comment\nlisten \"127.0.0.1:0\"\nusers \"staff\" { htpasswd \"staff\" }\n\
                admin { socket \"admin.sock\"; listen \"127.0.0.1:0\" token-file=\"token\" }\ninclude \"sites/*.kdl\"\n";
    let mut server = Server::with_config(folder, main);
    server.said("the admin API listens on");
    wait_for(|| UnixStream::connect(folder.path("admin.sock")).ok(), "the admin socket");
    server
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

/// One request on a connection of its own.
fn ask(mut stream: impl Read + Write, method: &str, path: &str, fields: &str, body: &str) -> Answer {
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    let host = if fields.contains("Host:") { "" } else { "Host: localhost\r\n" };
    let head = format!("{method} {path} HTTP/1.1\r\n{host}Connection: close\r\n{fields}{length}\r\n{body}");
    let _ = stream.write_all(head.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{method} {path}: {answer:?}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

/// Over the socket.
fn over(folder: &Folder, method: &str, path: &str, fields: &str, body: &str) -> Answer {
    let stream = UnixStream::connect(folder.path("admin.sock")).unwrap();
    stream.set_read_timeout(Some(WAIT)).unwrap();
    ask(stream, method, &format!("/api/v1/{path}"), fields, body)
}

fn through(server: &Server<'_>, method: &str, path: &str, fields: &str, body: &str) -> Answer {
    let stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(WAIT)).unwrap();
    ask(stream, method, path, fields, body)
}

fn tag(folder: &Folder) -> String {
    over(folder, "GET", "settings", "", "").json()["etag"].as_str().unwrap().to_owned()
}

fn put(folder: &Folder, tag: &str, files: &[(&Path, &str)], confirm_within: Option<u64>) -> Answer {
    let files: Vec<Value> = files.iter().map(|(path, text)| json!({ "path": path, "text": text })).collect();
    let body = json!({ "files": files, "confirm_within": confirm_within }).to_string();
    over(folder, "PUT", "settings", &format!("{JSON}If-Match: \"{tag}\"\r\n"), &body)
}

#[test]
fn of_two_editors_one_hears_that_the_other_was_there() {
    let folder = Folder::new("editors");
    let server = server(&folder);
    let first = over(&folder, "GET", "settings", "", "");
    let told = first.json();
    let seen = told["etag"].as_str().unwrap();
    assert!(first.head.contains(&format!("etag: \"{seen}\"")), "{}", first.head);
    assert_eq!(told["files"][0]["is_main"], true);
    let site = folder.path("sites/a.kdl");
    let changed = SITES.replace("one", "two");
    let answer = put(&folder, seen, &[(&site, &changed)], None);
    assert_eq!((answer.status, answer.json()["revision"].as_u64()), (200, Some(2)), "{}", answer.body);
    assert_eq!(server.body("/"), "two");
    assert_eq!(fs::read_to_string(&site).unwrap(), changed, "comments and layout stay");
    let late = put(&folder, seen, &[(&site, SITES)], None);
    assert_eq!(late.status, 412, "{}", late.body);
    assert_eq!(server.body("/"), "two");
    let files = json!({ "files": [] }).to_string();
    assert_eq!(over(&folder, "PUT", "settings", JSON, &files).status, 428);
    assert_eq!(over(&folder, "PUT", "settings", &format!("{JSON}If-Match: *\r\n"), &files).status, 428);
    // Somebody with an editor of their own is an editor, too.
    let seen = tag(&folder);
    fs::write(&site, changed.replace("two", "three")).unwrap();
    assert_eq!(put(&folder, &seen, &[(&site, SITES)], None).status, 412);
    assert_eq!(server.tell(&["reload"]).code, Some(0));
    let list = over(&folder, "GET", "revisions", "", "").json();
    let who: Vec<&str> = list.as_array().unwrap().iter().filter_map(|one| one["who"].as_str()).collect();
    assert_eq!(who.len(), 3, "{list}");
    assert_ne!(who[0], who[1], "{list}");
    assert_eq!(over(&folder, "GET", "revisions/1", "", "").json()["files"][1]["text"], SITES);
    let fields = format!("If-Match: \"{}\"\r\n", tag(&folder));
    let back = over(&folder, "POST", "revisions/1/restore", &fields, "");
    assert_eq!(back.status, 200, "{}", back.body);
    assert_eq!((server.body("/"), fs::read_to_string(&site).unwrap()), ("one".into(), SITES.into()));
    assert_eq!(over(&folder, "GET", "revisions", "", "").json()[0]["what"], "revision 1 restored");
}

#[test]
fn what_is_not_taken_up_leaves_files_and_server_as_they_were() {
    let folder = Folder::new("refused");
    let server = server(&folder);
    let (main, site) = (folder.path("tidegate.kdl"), folder.path("sites/a.kdl"));
    let before = fs::read_to_string(&main).unwrap();
    let seen = tag(&folder);
    let as_before = |what: &str| {
        assert_eq!(fs::read_to_string(&main).unwrap(), before, "{what}");
        assert_eq!(fs::read_to_string(&site).unwrap(), SITES, "{what}");
        assert_eq!((tag(&folder), server.body("/")), (seen.clone(), "one".to_owned()), "{what}");
        let list = over(&folder, "GET", "revisions", "", "").json();
        assert_eq!(list.as_array().unwrap().len(), 1, "{what}: {list}");
    };
    let mistaken = put(&folder, &seen, &[(&site, &SITES.replace("respond", "respnd"))], None);
    assert_eq!(mistaken.status, 422, "{}", mistaken.body);
    assert!(mistaken.head.contains("application/problem+json"), "{}", mistaken.head);
    let told = &mistaken.json()["diagnostics"][0];
    assert_eq!((told["line"].as_u64(), told["column"].as_u64()), (Some(3), Some(5)), "{told}");
    assert_eq!(told["file"], site.to_str().unwrap());
    as_before("a mistake");
    // Nothing is wrong with the texts, and the server cannot do it all the same.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let more = format!("{before}listen \"{}\"\n", taken.local_addr().unwrap());
    let refused = put(&folder, &seen, &[(&main, &more), (&site, &SITES.replace("one", "two"))], None);
    assert_eq!(refused.status, 422, "{}", refused.body);
    assert!(refused.body.contains("cannot listen"), "{}", refused.body);
    as_before("an address that is taken");
    for name in ["/etc/passwd", "sites/a.kdl", "/tmp/../etc/passwd", ""] {
        let other = put(&folder, &seen, &[(Path::new(name), "x")], None);
        assert_eq!(other.status, 403, "{name}: {}", other.body);
    }
    let other = folder.path("sites/b.kdl");
    assert_eq!(put(&folder, &seen, &[(&other, "site { respond 204 }\n")], None).status, 403);
    assert!(!other.exists());
    as_before("a file of no settings");
    // The second of two files cannot be written: the first one is as it was.
    fs::set_permissions(folder.path("sites"), fs::Permissions::from_mode(0o777)).unwrap();
    let next = format!("{before}// more\n");
    let open = put(&folder, &seen, &[(&main, &next), (&site, &SITES.replace("one", "two"))], None);
    assert_eq!(open.status, 500, "{}", open.body);
    as_before("a folder that everybody may write to");
    let check = json!({ "files": [{ "path": site, "text": SITES.replace("one", "two") }] }).to_string();
    let checked = over(&folder, "POST", "settings/check", JSON, &check).json();
    assert_eq!(checked["changes"]["sites"], json!([{ "name": "localhost", "what": "changed" }]), "{checked}");
    assert!(checked["diff"].as_str().unwrap().contains("+    respond 200 \"two\""), "{checked}");
    as_before("a check");
}

/// A change of one file that waits to be confirmed, beside a file that somebody else writes.
struct Unconfirmed {
    site: PathBuf,
    /// What it holds now.
    two: String,
    other: PathBuf,
}

/// Revision 3, which nobody confirms within its second.
fn change_for_a_second(folder: &Folder, server: &Server<'_>) -> Unconfirmed {
    let (site, other) = (folder.path("sites/a.kdl"), folder.path("sites/b.kdl"));
    fs::write(&other, "site \"b.test\" { respond 200 \"b\" }\n").unwrap();
    assert_eq!(server.tell(&["reload"]).code, Some(0));
    let two = SITES.replace("one", "two");
    assert_eq!(put(folder, &tag(folder), &[(&site, &two)], Some(1)).status, 200);
    Unconfirmed { site, two, other }
}

/// Whatever is in the way at that moment, what somebody else has written meanwhile stays.
#[test]
fn what_nobody_confirms_goes_later_where_it_cannot_go_at_once() {
    let folder = Folder::new("confirm-later");
    let mut server = server(&folder);
    let Unconfirmed { site, two, other } = change_for_a_second(&folder, &server);
    // A folder that everybody may write to is not written to.
    let sites = folder.path("sites");
    fs::set_permissions(&sites, fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(&other, "site \"b.test\" { respond 200 \"by hand\" }\n").unwrap();
    server.line("cannot be put back, which is tried again");
    assert_eq!(server.body("/"), "two");
    // Nobody is told that it stays while it goes.
    let late = over(&folder, "POST", "settings/confirm", JSON, &json!({ "revision": 3 }).to_string());
    assert_eq!(late.status, 409, "{}", late.body);
    fs::set_permissions(&sites, fs::Permissions::from_mode(0o755)).unwrap();
    wait_for(|| (server.body("/") == "one").then_some(()), "the settings before");
    assert_eq!(fs::read_to_string(&site).unwrap(), SITES);
    assert!(fs::read_to_string(&other).unwrap().contains("by hand"), "it was none of that change");
    // A file of the change that somebody has changed again is not lost either.
    // The settings before are in force a moment before nothing is said to be on its way any more.
    let next = || match put(&folder, &tag(&folder), &[(&site, &two)], Some(1)).status {
        409 => None,
        status => Some(status),
    };
    assert_eq!(wait_for(next, "the next change"), 200);
    fs::write(&site, two.replace("two", "three")).unwrap();
    let said = server.line("was changed by somebody else since revision");
    assert!(said.contains("what it has changed stays"), "{said}");
    assert!(fs::read_to_string(&site).unwrap().contains("three"));
    assert_eq!(server.body("/"), "two", "what is half written is taken up by who writes it");
    let is_told = |last: &Value| {
        last["what"].as_str().is_some_and(|what| what.ends_with("not confirmed, and not put back"))
    };
    let last = || Some(over(&folder, "GET", "revisions", "", "").json()[0].clone()).filter(is_told);
    let last = wait_for(last, "the revision to tell what became of it");
    let confirm = json!({ "revision": last["revision"] }).to_string();
    assert_eq!(over(&folder, "POST", "settings/confirm", JSON, &confirm).status, 404);
    assert_eq!(put(&folder, &tag(&folder), &[(&site, SITES)], None).status, 200, "nothing waits any more");
    assert_eq!(server.body("/"), "one");
}

/// Another file is half written at that moment: what nobody has confirmed goes all the same, and no site that is served with it.
#[test]
fn what_somebody_else_writes_takes_no_site_away() {
    let folder = Folder::new("confirm-by-hand");
    let mut server = server(&folder);
    let Unconfirmed { other, .. } = change_for_a_second(&folder, &server);
    fs::write(&other, "// site \"b.test\" is being written\n").unwrap();
    let said = server.line("nobody has confirmed revision 3");
    assert!(said.contains("sites/b.kdl holds, which somebody else has changed"), "{said}");
    assert_eq!(server.body("/"), "one");
    assert_eq!(through(&server, "GET", "/", "Host: b.test\r\n", "").body, "b", "it is served still");
    let last = over(&folder, "GET", "revisions", "", "").json()[0].clone();
    assert!(last["what"].as_str().unwrap().contains("sites/b.kdl holds by hand"), "{last}");
}

/// What the route let in once it would perhaps not let in again.
#[test]
fn a_stream_of_a_browser_ends_with_a_revision() {
    let folder = Folder::new("streams-end");
    let server = server(&folder);
    let open = |name: &str| {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.set_read_timeout(Some(WAIT)).unwrap();
        let head = format!(
            "GET /.console/api/v1/{name} HTTP/1.1\r\nHost: localhost\r\n{ANNA}Connection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut stream = BufReader::new(stream);
        let begun = stream.by_ref().lines().map_while(Result::ok).any(|line| line.starts_with("retry:"));
        assert!(begun, "{name}: no stream");
        stream
    };
    let mut streams = ["tail", "events"].map(open);
    let site = folder.path("sites/a.kdl");
    fs::write(
        &site,
        SITES.replace("login basic \"staff\" }", "login basic \"staff\"; deny \"127.0.0.0/8\" }"),
    )
    .unwrap();
    assert_eq!(server.tell(&["reload"]).code, Some(0));
    for stream in &mut streams {
        let mut rest = String::new();
        stream.read_to_string(&mut rest).unwrap();
    }
    assert_eq!(through(&server, "GET", "/.console/api/v1/events", ANNA, "").status, 403);
}

/// The process that answers is another one then: whoever has changed that hears of it first.
#[test]
fn a_change_of_the_api_itself_is_answered() {
    let folder = Folder::new("admin-itself");
    let _server = server(&folder);
    let main = folder.path("tidegate.kdl");
    let text = fs::read_to_string(&main).unwrap();
    let less = text.replace("; listen \"127.0.0.1:0\" token-file=\"token\" }", " }");
    assert_ne!(less, text);
    let answer = put(&folder, &tag(&folder), &[(&main, &less)], None);
    assert_eq!((answer.status, answer.json()["revision"].as_u64()), (200, Some(2)), "{}", answer.body);
}

/// However many of one there are, those of another are seen.
#[test]
fn every_change_is_a_line_of_the_log() {
    let folder = Folder::new("audit");
    let mut server = server(&folder);
    for _ in 0..30 {
        over(&folder, "DELETE", "bans/192.0.2.7", JSON, "");
    }
    for _ in 0..30 {
        server.line("admin: root from the admin socket wants `lift 192.0.2.7`: refused");
    }
}

#[test]
fn what_nobody_confirms_goes() {
    let folder = Folder::new("confirm");
    let mut server = server(&folder);
    let site = folder.path("sites/a.kdl");
    let two = SITES.replace("one", "two");
    let answer = put(&folder, &tag(&folder), &[(&site, &two)], Some(1));
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(answer.json()["confirm_by"].is_string(), "{}", answer.body);
    assert_eq!(put(&folder, &tag(&folder), &[(&site, SITES)], None).status, 409);
    wait_for(|| (server.body("/") == "one").then_some(()), "the settings before");
    assert_eq!(fs::read_to_string(&site).unwrap(), SITES);
    let answer = put(&folder, &tag(&folder), &[(&site, &two)], Some(600));
    let revision = answer.json()["revision"].clone();
    let confirm = |revision: &Value| {
        over(&folder, "POST", "settings/confirm", JSON, &json!({ "revision": revision }).to_string()).status
    };
    assert_eq!(confirm(&json!(1)), 404);
    assert_eq!((confirm(&revision), confirm(&revision)), (204, 404));
    let three = SITES.replace("one", "three");
    assert_eq!(put(&folder, &tag(&folder), &[(&site, &three)], Some(600)).status, 200);
    assert_eq!(server.body("/"), "three");
    server.signal(Signal::TERM);
    server.wait();
    assert_eq!(
        fs::read_to_string(&site).unwrap(),
        two,
        "a server that ends leaves nothing that nobody has confirmed"
    );
    assert!(!folder.path("admin.sock").exists());
}

#[test]
fn a_browser_comes_through_a_route_with_a_login_and_means_it() {
    let folder = Folder::new("route");
    let mut server = server(&folder);
    let api = "/.console/api/v1";
    assert_eq!(through(&server, "GET", &format!("{api}/session"), "", "").status, 401);
    assert_eq!(through(&server, "GET", "/shows/api/v1/session", "", "").status, 404, "it only shows");
    let session = through(&server, "GET", &format!("{api}/session"), ANNA, "");
    assert_eq!(session.json()["user"], "anna", "{}", session.body);
    // Who asks is said by the server, whatever the client says.
    let forged = format!("{ANNA}Tidegate-User: root\r\ntidegate-client: ::1\r\nTidegate_User: root\r\n");
    assert_eq!(through(&server, "GET", &format!("{api}/session"), &forged, "").json()["user"], "anna");
    let csrf = session.json()["csrf"].as_str().unwrap().to_owned();
    let with = |more: &str| format!("{ANNA}X-Tidegate-CSRF: {csrf}\r\n{JSON}{more}");
    let reopen = format!("{api}/logs/reopen");
    for (fields, status) in [
        (ANNA.to_owned(), 403),
        (format!("{ANNA}X-Tidegate-CSRF: {}\r\n", "0".repeat(64)), 403),
        (format!("{ANNA}X-Tidegate-CSRF: {csrf}\r\nX-Tidegate-CSRF: {csrf}\r\n"), 403),
        (with("Sec-Fetch-Site: cross-site\r\n"), 403),
        (with("Sec-Fetch-Site: same-site\r\n"), 403),
        (with("Origin: http://evil.example\r\n"), 403),
        (with("Sec-Fetch-Site: same-origin\r\n"), 204),
    ] {
        let answer = through(&server, "POST", &reopen, &fields, "");
        assert_eq!(answer.status, status, "{fields}{}", answer.body);
    }
    assert_eq!(through(&server, "TRACE", &reopen, &with(""), "").status, 405);
    let site = folder.path("sites/a.kdl");
    let settings = through(&server, "GET", &format!("{api}/settings"), ANNA, "").json();
    let body = json!({ "files": [{ "path": site, "text": SITES.replace("one", "two") }] }).to_string();
    let put = |fields: &str, body: &str| through(&server, "PUT", &format!("{api}/settings"), fields, body);
    let matching = format!("If-Match: \"{}\"\r\n", settings["etag"].as_str().unwrap());
    let plain = format!("{ANNA}X-Tidegate-CSRF: {csrf}\r\nContent-Type: text/plain\r\n{matching}");
    assert_eq!(put(&plain, &body).status, 415);
    assert_eq!(put(&format!("{ANNA}{JSON}{matching}"), &body).status, 403);
    assert_eq!(put(&with(&matching), "{\"files\":").status, 400);
    assert_eq!(put(&with(&matching), &"x".repeat(5 << 20)).status, 413);
    assert_eq!(server.body("/"), "one");
    assert_eq!(put(&with(&matching), &body).status, 200);
    assert_eq!(server.body("/"), "two");
    server.line("admin: anna from 127.0.0.1 has changed the settings: revision 2");
}

/// Where a server listens for who has the token.
fn address_of(server: &Server<'_>) -> String {
    let said = server.seen.iter().find(|line| line.contains("the admin API listens on")).unwrap();
    said.split("http://").nth(1).unwrap().split(',').next().unwrap().to_owned()
}

#[test]
fn strangers_at_the_address_get_nothing() {
    let folder = Folder::new("token");
    let server = server(&folder);
    let address = address_of(&server);
    let to = |fields: &str| {
        let stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(WAIT)).unwrap();
        ask(stream, "GET", "/api/v1/session", fields, "").status
    };
    let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
    for (fields, status) in [
        (String::new(), 401),
        ("Authorization: Bearer\r\n".to_owned(), 401),
        (bearer.replace("abcdef\r", "abcdee\r"), 401),
        (bearer.replace("Bearer", "Basic"), 401),
        (format!("{bearer}{bearer}"), 401),
        ("Tidegate-User: root\r\n".to_owned(), 401),
        (format!("{bearer}Host: evil.example\r\n"), 403),
        (format!("{bearer}Host: 127.0.0.1.evil.example:9443\r\n"), 403),
        (format!("{bearer}Origin: null\r\n"), 403),
        (format!("{bearer}Sec-Fetch-Site: none\r\n"), 403),
        (format!("{bearer}Host: 127.0.0.1:9443\r\n"), 200),
        (bearer, 200),
    ] {
        assert_eq!(to(&fields), status, "{fields}");
    }
    let mode = fs::metadata(folder.path("admin.sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// The process of the admin API of a server.
fn admin_process(server: &Server<'_>) -> Option<Pid> {
    let parent = format!("PPid:\t{}\n", server.child.id());
    fs::read_dir("/proc").unwrap().filter_map(Result::ok).find_map(|entry| {
        let said = fs::read_to_string(entry.path().join("cmdline")).ok()?;
        let status = fs::read_to_string(entry.path().join("status")).ok()?;
        let is_it = said.split('\0').nth(1) == Some("admin") && status.contains(&parent);
        is_it.then(|| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))?
    })
}

#[test]
fn one_that_crashes_is_started_again_and_costs_nobody_a_request() {
    let folder = Folder::new("crash");
    let mut server = server(&folder);
    let load = running::Load::on(&server.address);
    let first = wait_for(|| admin_process(&server), "the process");
    kill_process(first, Signal::KILL).unwrap();
    server.line("the process of the admin API has ended");
    assert_eq!(over(&folder, "GET", "session", "", "").status, 200, "who connects meanwhile waits");
    assert_ne!(admin_process(&server), Some(first));
    load.end();
}

#[test]
fn streams_tell_and_are_few() {
    let folder = Folder::new("streams");
    let server = server(&folder);
    let open = |path: &str| {
        let mut stream = UnixStream::connect(folder.path("admin.sock")).unwrap();
        stream.set_read_timeout(Some(WAIT)).unwrap();
        write!(stream, "GET /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        BufReader::new(stream)
    };
    let line_with = |stream: &mut BufReader<UnixStream>, text: &str| {
        let found = stream.lines().map_while(Result::ok).find(|line| line.contains(text));
        found.unwrap_or_else(|| panic!("no line with {text}"))
    };
    let mut tail = open("tail?site=localhost&status=2xx");
    line_with(&mut tail, "text/event-stream");
    let mut events = open("events");
    line_with(&mut events, "text/event-stream");
    get(&server.address, "/told").unwrap();
    assert!(line_with(&mut tail, "data: ").contains("\"target\":\"/told\""));
    assert_eq!(server.tell(&["reload"]).code, Some(0));
    line_with(&mut events, "event: revision");
    assert!(line_with(&mut events, "data: ").contains("\"revision\":2"));
    assert_eq!(over(&folder, "GET", "tail?status=x", "", "").status, 400);
    let mut others: Vec<_> = (0..14).map(|_| open("events")).collect();
    others.iter_mut().for_each(|stream| drop(line_with(stream, "text/event-stream")));
    assert_eq!(over(&folder, "GET", "events", "", "").status, 503);
    others.pop();
    wait_for(
        || {
            let mut one = open("events");
            let mut first = String::new();
            one.read_line(&mut first).unwrap();
            first.contains(" 200 ").then_some(())
        },
        "a place for a stream",
    );
}

/// How long somebody watches is nobody's time: a stream counts as a request without any.
#[test]
fn a_stream_costs_no_time() {
    let folder = Folder::new("stream-time");
    let server = server(&folder);
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(WAIT)).unwrap();
    write!(stream, "GET /.console/api/v1/events HTTP/1.1\r\nHost: localhost\r\n{ANNA}\r\n").unwrap();
    let mut stream = BufReader::new(stream);
    let mut lines = stream.by_ref().lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("text/event-stream")));
    let json = |what: &[&str]| serde_json::from_str::<Value>(&server.tell(what).stdout).unwrap();
    let age = || json(&["status", "requests", "--json"])["requests"][0]["age"].as_f64().unwrap();
    let begun = age();
    wait_for(|| (age() > begun + 1.0).then_some(()), "a stream that has been open for a second");
    drop(stream);
    let counted = || {
        let route = json(&["status", "--json"])["sites"][0]["routes"][0].clone();
        (route["requests"] == 1).then_some(route)
    };
    let route = wait_for(counted, "the end of the stream");
    assert!(route["seconds"].as_f64().unwrap() <= begun, "{route}");
    let slow = json(&["status", "slow", "--json"]);
    let took = |row: &Value| row["took"].as_f64().unwrap();
    assert!(slow["requests"].as_array().unwrap().iter().all(|row| took(row) <= begun), "{slow}");
}

/// Every path of the document is one that answers, with a problem where nothing is there to be asked.
#[test]
fn sites_and_the_level_of_the_log() {
    let folder = Folder::new("admin-sites");
    let server = server(&folder);
    assert_eq!(get(&server.address, "/").unwrap(), "one");
    let told = over(&folder, "GET", "sites", "", "").json();
    let site = &told["sites"][0];
    assert_eq!((&site["name"], &site["left_out"]), (&"localhost".into(), &Value::Null), "{told}");
    // A route of a folder answers for its name without the slash as well.
    assert_eq!((&site["requests"], site["routes"].as_array().map(Vec::len)), (&1.into(), Some(5)), "{told}");
    for (body, status) in [("{\"level\":\"debug\"}", 204), ("{\"level\":\"loud\"}", 400), ("{}", 400)] {
        let answer = over(&folder, "PATCH", "logs", JSON, body);
        assert_eq!(answer.status, status, "{body}: {}", answer.body);
    }
    let settings = over(&folder, "GET", "settings/effective", "", "").body;
    assert!(settings.contains("\"until_reload\":{\"level\":\"debug\"}"), "{settings}");
}

/// What would be passed over may be what narrows an order, so nothing is done.
#[test]
fn a_member_that_is_not_known_is_refused() {
    let folder = Folder::new("admin-members");
    let server = server(&folder);
    let conditional = format!("{JSON}If-Match: \"{}\"\r\n", tag(&folder));
    for (method, path, body) in [
        ("POST", "caches/purge", r#"{"what":"all","hosts":"a.test"}"#),
        ("POST", "caches/purge", r#"{"what":{"tag":{"name":"a","hosts":"a.test"}}}"#),
        ("PUT", "settings", r#"{"files":[],"confirm":60}"#),
        ("PUT", "settings", r#"{"files":[{"path":"/a","text":"","mode":7}]}"#),
        ("POST", "settings/check", r#"{"files":[],"strict":true}"#),
        ("POST", "settings/confirm", r#"{"revision":1,"by":"anna"}"#),
        ("POST", "revisions/1/restore", r#"{"files":[]}"#),
        ("POST", "pools/php/restart", r#"{"gently":true}"#),
        ("PATCH", "upstreams/a/members/b", r#"{"way":"drain","for":"5m"}"#),
        ("POST", "requests/cancel", r#"{"selection":"site=localhost","dry-run":true}"#),
        ("PATCH", "logs", r#"{"level":"debug","site":"localhost"}"#),
        ("POST", "logs/reopen", r#"{"log":"access"}"#),
        ("DELETE", "bans/192.0.2.7", r#"{"table":"logins"}"#),
        ("GET", "tail?staus=5xx", ""),
        ("GET", "explain?url=http://localhost/&usr=anna", ""),
        ("GET", "history?of=6h", ""),
    ] {
        let answer = over(&folder, method, path, &conditional, body);
        assert_eq!(answer.status, 400, "{method} {path} {body}: {}", answer.body);
        let detail = answer.json()["detail"].as_str().unwrap_or_default().to_owned();
        let is_clear = detail.contains("unknown field `") && !detail.contains('\n');
        assert!(is_clear, "{method} {path} {body}: {detail}");
    }
    for (body, why) in [
        (r#"{"what":"al"}"#, r#"; write `{"what":{"url":"https://example.com/news"}}`"#),
        (r#"{"what":{"url":"/news"}}"#, "\"/news\" is no URL: write it with scheme and host"),
    ] {
        let answer = over(&folder, "POST", "caches/purge", JSON, body);
        let detail = answer.json()["detail"].as_str().unwrap_or_default().to_owned();
        assert!(answer.status == 400 && detail.contains(why), "{body}: {} {detail}", answer.status);
    }
    // An object is no list, whose members would be told apart by their order alone; within it, too.
    for (method, path, body, why) in [
        ("PUT", "settings", r#"[[{"path":"/a","text":""}],60]"#, "an object is expected"),
        ("PUT", "settings", r#"{"files":[["/a",""]]}"#, "an object is expected"),
        ("PUT", "settings", r#"{"files":[],"confirm_within":"1m"}"#, "a whole number is expected"),
        ("POST", "settings/check", r#"[[]]"#, "an object is expected"),
        ("POST", "settings/confirm", "[1]", "an object is expected"),
        ("POST", "revisions/1/restore", "[1]", "an object is expected"),
        ("PATCH", "logs", r#"["debug"]"#, "an object is expected"),
        ("PATCH", "upstreams/a/members/b", r#"["drain",null]"#, "an object is expected"),
        ("POST", "requests/cancel", "[null,null,true]", "an object is expected"),
        ("POST", "caches/purge", r#"["all"]"#, "an object is expected"),
        ("POST", "caches/purge", r#"{"what":{"tag":["a",null]}}"#, "an object is expected"),
        ("POST", "caches/purge", r#"{"what":{"group":["a"]}}"#, "an object is expected"),
        ("POST", "logs/reopen", "[]", "an object is expected"),
        ("GET", "explain?url=http://localhost/&from=x", "", "`from` is not the address of a client"),
        (
            "GET",
            "explain?url=http://localhost/&method=%0a",
            "",
            "a control character is no part of a method or a URL",
        ),
        ("GET", "explain?url=http://localhost/&method=a%20b", "", "`a b` is no method"),
        ("GET", "explain?url=/%zz", "", "/%zz"),
    ] {
        let answer = over(&folder, method, path, &conditional, body);
        assert_eq!(answer.status, 400, "{method} {path} {body}: {}", answer.body);
        let detail = answer.json()["detail"].as_str().unwrap_or_default().to_owned();
        let is_clear = detail.contains(why) && !detail.contains(['\n', '<']) && !detail.contains("struct ");
        assert!(is_clear, "{method} {path} {body}: {detail}");
    }
    assert_eq!(tag(&folder), conditional.split('"').nth(1).unwrap_or_default(), "nothing was written");
    // Clients that always send something send an object without members.
    assert_eq!(over(&folder, "POST", "logs/reopen", JSON, "{}").status, 204);
    assert_eq!(over(&folder, "POST", "logs/reopen", JSON, "[1]").status, 400);
    assert_eq!(get(&server.address, "/").unwrap(), "one");
}

#[test]
fn every_path_of_the_document_answers() {
    let folder = Folder::new("openapi");
    let _server = server(&folder);
    let document = over(&folder, "GET", "openapi.json", "", "").json();
    let mut count = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, described) in methods.as_object().unwrap() {
            if ["/api/v1/tail", "/api/v1/events"].contains(&path.as_str()) {
                continue; // they do not end
            }
            let asked: String = path
                .split(['{', '}'])
                .enumerate()
                .map(|(at, part)| if at % 2 == 1 { "7" } else { part })
                .collect();
            let name = asked.strip_prefix("/api/v1/").unwrap();
            let body = if described["requestBody"].is_object() { "{}" } else { "" };
            let answer = over(&folder, &method.to_ascii_uppercase(), name, JSON, body);
            let is_known = answer.status != 405 && !answer.body.contains("there is nothing at");
            assert!(is_known && answer.status != 500, "{method} {path}: {} {}", answer.status, answer.body);
            if answer.status >= 400 {
                assert!(answer.head.contains("application/problem+json"), "{method} {path}: {}", answer.head);
                let told = answer.json();
                assert!(told["detail"].is_string() && told["status"] == answer.status, "{told}");
            }
            count += 1;
        }
    }
    assert!(count > 20, "only {count} were asked for");
    for (path, why) in [
        ("nothing", "there is nothing at"),
        ("caches", "define no store"),
        ("tail?site=b.test", "no site is called"),
        ("tail?route=/x", "no route is called"),
    ] {
        let missing = over(&folder, "GET", path, "", "");
        assert!(missing.status == 404 && missing.body.contains(why), "{path}: {}", missing.body);
    }
    let nameless = over(&folder, "GET", "explain", "", "");
    assert_eq!(nameless.status, 400);
    assert!(nameless.body.contains("`url` is missing"), "{}", nameless.body);
    assert_eq!(over(&folder, "DELETE", "settings", "", "").status, 405);
}

/// Hundreds of requests that the document allows, and as many that it does not: each is answered as the document says. Where the tool
/// is missing the test says so and passes on a contributor's machine; with `CI` set it fails.
#[test]
fn the_document_is_what_the_server_does() {
    let tools =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/python/schemathesis/bin/schemathesis");
    if !tools.is_file() {
        assert!(std::env::var_os("CI").is_none(), "schemathesis is missing (cargo xtask tools)");
        eprintln!("not run: schemathesis is missing (cargo xtask tools)");
        return;
    }
    let folder = Folder::new("schemathesis");
    let server = server(&folder);
    let document = folder.write("openapi.json", &over(&folder, "GET", "openapi.json", "", "").body);
    let output = Command::new(tools)
        .arg("--config-file")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/schemathesis.toml"))
        .arg("run")
        .arg(&document)
        .args(["--url", &format!("http://{}", address_of(&server))])
        .args(["--header", &format!("Authorization: Bearer {TOKEN}")])
        .args(["--exclude-path-regex", "/(tail|events)$"]) // they do not end
        .args(["--phases", "examples,coverage,fuzzing", "--max-examples", "5", "--seed", "1", "--no-color"])
        .current_dir(&folder.0)
        .env("HOME", &folder.0)
        .output_in_time();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(get(&server.address, "/").unwrap(), "one", "nobody has changed the settings");
}
