//! The clients of HTTP/2 that people use, a browser among them, and h2spec, against the real server: over TLS,
//! and on a listener that takes HTTP/2 from who begins with it.
//!
//! Where a client is not installed the test says so and passes on a contributor's machine; with `CI` set it
//! fails. `cargo xtask tools` installs them.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use tidegate_testkit::{InTime, accept, join, receive, wait_for};

const BINARY: &str = env!("CARGO_BIN_EXE_tidegate");

/// A server of a folder.
struct Served {
    folder: PathBuf,
    child: Child,
    /// Of the plain listener, and of the one with TLS.
    addresses: [String; 2],
}

/// The page that tells a browser's side of it.
const PAGE: &str = r#"<!doctype html><link rel=icon href=data:,><link rel=stylesheet href=/style.css><script src=/script.js></script>
<img src=/image.svg><p id=said>nothing</p>
<script>addEventListener("load", () => {
    const of = kind => performance.getEntriesByType(kind).map(entry => entry.nextHopProtocol);
    said.textContent = [...of("navigation"), ...of("resource")].join(" ");
})</script>
"#;

/// A folder with a certificate in it.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("tidegate-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("root")).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    fs::write(folder.join("site.pem"), certificate.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(folder.join("site.key"), key.serialize_pem()).unwrap();
    folder
}

impl Served {
    fn new(name: &str) -> Served {
        let folder = folder(name);
        let root = folder.join("root");
        for (name, content) in [
            ("index.html", &b"<p>hello, hello"[..]),
            ("page.html", PAGE.as_bytes()),
            ("style.css", b"p { color: green }"),
            ("script.js", b"'use strict'"),
            ("image.svg", b"<svg xmlns='http://www.w3.org/2000/svg'/>"),
            ("small", &bytes(1024)),
            ("large", &bytes(3 << 20)),
        ] {
            fs::write(root.join(name), content).unwrap();
        }
        let sites = "site { root \"root\" }\n\
            site \"old.test\" { root \"root\"; tls { protocols \"http/1.1\" } }\n";
        Served::start(folder, sites)
    }

    fn start(folder: PathBuf, sites: &str) -> Served {
        let config = folder.join("tidegate.kdl");
        let listeners = "listen \"127.0.0.1:0\" { h2c }\n\
            listen \"127.0.0.1:0\" { tls certificate=\"site.pem\" key=\"site.key\" }\n";
        fs::write(&config, format!("{listeners}{sites}")).unwrap();
        let mut child = Command::new(BINARY)
            .arg("serve")
            .args([Path::new("--config"), &config, Path::new("--control"), &folder.join("control")])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let addresses = ["http://", "https://"].map(|scheme| {
            let start = format!("listening on {scheme}");
            let said = lines.find_map(|line| line.strip_prefix(&start).map(str::to_owned)).unwrap();
            said.trim_end_matches('/').to_owned()
        });
        std::thread::spawn(move || lines.for_each(drop));
        Served { folder, child, addresses }
    }

    /// What a client prints; it must succeed. `PLAIN` and `TLS` in an argument are addresses.
    fn client(&self, program: &Path, arguments: &[&str]) -> String {
        let [plain, tls] = &self.addresses;
        let arguments = arguments.iter().map(|argument| argument.replace("PLAIN", plain).replace("TLS", tls));
        let output = Command::new(program).args(arguments).current_dir(&self.folder).output_in_time();
        let text =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{}: {text}", program.display());
        text
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Bytes that differ from place to place.
fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 % 251) as u8).collect()
}

fn find(program: &str) -> Option<PathBuf> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(tools).chain(std::env::split_paths(&path));
    let found = folders.map(|folder| folder.join(program)).find(|path| path.is_file());
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "{program} is missing: cargo xtask tools");
        eprintln!("NOT TESTED: {program} is missing (cargo xtask tools)");
    }
    found
}

#[test]
fn h2spec() {
    let Some(program) = find("h2spec") else { return };
    let served = Served::new("h2spec");
    for (address, options) in
        [(&served.addresses[0], &[][..]), (&served.addresses[1], &["--tls", "--insecure"])]
    {
        let (host, port) = address.rsplit_once(':').unwrap();
        let fixed = ["--host", host, "--port", port, "--timeout", "10", "--max-header-length", "4000"];
        let text = served.client(&program, &[&fixed, options].concat());
        let last = text.lines().rev().find(|line| line.contains("tests,")).unwrap_or_default();
        assert!(last.contains("145 passed, 0 skipped, 0 failed"), "{options:?}: {text}");
    }
}

#[test]
fn curl() {
    let Some(program) = find("curl") else { return };
    let served = Served::new("curl-h2");
    for (url, how) in [("http://PLAIN", "--http2-prior-knowledge"), ("https://TLS", "--http2")] {
        let curl = |arguments: &[&str], path: &str| {
            let common = ["--silent", "--show-error", "--max-time", "20", "--insecure", how];
            served.client(&program, &[&common, arguments, &[&format!("{url}{path}")]].concat())
        };
        assert_eq!(curl(&[], "/"), "<p>hello, hello");
        let said = ["--output", "/dev/null", "--write-out", "%{http_code} %{http_version}"];
        assert_eq!(curl(&said, "/none"), "404 2");
        curl(&["--output", "large"], "/large");
        assert!(fs::read(served.folder.join("large")).unwrap() == bytes(3 << 20));
        assert_eq!(curl(&[&["--data-binary", "@root/large"], &said[..]].concat(), "/small"), "405 2");
    }
    // Who does not ask for it, or asks a site that has it not, gets HTTP/1.1.
    let version = ["--silent", "--insecure", "--output", "/dev/null", "--write-out", "%{http_version}"];
    assert_eq!(served.client(&program, &[&version[..], &["--http1.1", "https://TLS/"]].concat()), "1.1");
    let port = served.addresses[1].rsplit(':').next().unwrap();
    let (url, resolve) = (format!("https://old.test:{port}/"), format!("old.test:{port}:127.0.0.1"));
    let old = ["--http2", "--resolve", &resolve, &url];
    assert_eq!(served.client(&program, &[&version[..], &old].concat()), "1.1");
}

#[test]
fn nghttp() {
    let Some(program) = find("nghttp") else { return };
    let served = Served::new("nghttp");
    for url in ["http://PLAIN", "https://TLS"] {
        let (small, large) = (format!("{url}/small"), format!("{url}/large"));
        let text = served
            .client(&program, &["--no-verify-peer", "--stat", "--null-out", "--multiply=50", &small, &large]);
        assert_eq!(text.lines().filter(|line| line.trim_end().ends_with("/small")).count(), 50, "{text}");
        assert_eq!(text.lines().filter(|line| line.contains(" 200 ")).count(), 100, "{text}");
    }
}

#[test]
fn h2load() {
    let Some(program) = find("h2load") else { return };
    let served = Served::new("h2load");
    for url in ["http://PLAIN", "https://TLS"] {
        let (small, large) = (format!("{url}/small"), format!("{url}/large"));
        let text = served.client(&program, &["-n", "5000", "-c", "5", "-m", "32", &small]);
        assert!(text.contains("5000 succeeded, 0 failed, 0 errored, 0 timeout"), "{text}");
        let text = served.client(&program, &["-n", "20", "-c", "2", "-m", "10", "-w", "10", &large]);
        assert!(text.contains("20 succeeded, 0 failed, 0 errored, 0 timeout"), "{text}");
    }
}

#[test]
fn chromium() {
    let Some(program) = find("chromium") else { return };
    let served = Served::new("chromium");
    let profile = format!("--user-data-dir={}", served.folder.join("profile").display());
    let fixed = ["--headless", "--no-sandbox", "--disable-gpu", "--ignore-certificate-errors", "--dump-dom"];
    let open = || {
        let more = ["--enable-logging=stderr", "--virtual-time-budget=4000", "--timeout=20000", &profile];
        served.client(&program, &[&fixed[..], &more, &["https://TLS/page.html"]].concat())
    };
    // The browser's time is its own and may end before the answers are there: it is asked again, a few times.
    let is_done = |text: &String| text.contains("<p id=\"said\">h2 h2 h2 h2</p>");
    let text = (0..5).map(|_| open()).find(is_done).unwrap_or_else(open);
    assert!(is_done(&text) && !text.contains("CONSOLE"), "{text}");
}

/// gRPC's own client and server, with the server between them: HTTP/2 on both sides, plain and over TLS.
#[test]
fn grpc() {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/python/grpcio/bin/python");
    if !python.is_file() {
        assert!(std::env::var_os("CI").is_none(), "grpcio is missing: cargo xtask tools");
        return eprintln!("NOT TESTED: grpcio is missing (cargo xtask tools)");
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/http2_peers/calls.py");
    let folder = folder("grpc");
    let start = |pair: &[&str]| {
        let mut child = Command::new(&python)
            .arg(&script)
            .args(["serve", "0"])
            .args(pair)
            .current_dir(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        (child, port.trim().to_owned())
    };
    let (mut plain, plain_port) = start(&[]);
    let (mut secure, secure_port) = start(&["site.pem", "site.key"]);
    let sites = format!(
        "site {{ proxy \"h2c://127.0.0.1:{plain_port}\" }}\n\
        site \"localhost\" {{ proxy \"h2://127.0.0.1:{secure_port}\" {{ tls name=\"localhost\" roots=\"site.pem\" }} }}\n"
    );
    let served = Served::start(folder.clone(), &sites);
    let script = script.to_str().unwrap();
    for target in [&["PLAIN"][..], &["TLS", "site.pem"]] {
        let text = served.client(&python, &[&[script, "call"], target].concat());
        assert!(text.contains("all is well"), "{text}");
    }
    for server in [&mut plain, &mut secure] {
        drop(server.stdin.take()); // it ends
        wait_for(|| server.try_wait().unwrap(), "an application to end");
    }
}

/// The process that serves a connection is replaced: its client is told, and what is under way is finished
/// (FAULTS 46).
#[test]
fn an_upgrade_says_goaway_and_finishes() {
    let Some(program) = find("nghttp") else { return };
    let backend = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = backend.local_addr().unwrap().port();
    let (asked, was_asked) = channel();
    let (answer, may_answer) = channel::<()>();
    let application = std::thread::spawn(move || {
        let mut stream = accept(&backend, "a request");
        let mut head = BufReader::new(stream.try_clone().unwrap()).lines();
        while head.next().is_some_and(|line| !line.unwrap().is_empty()) {}
        asked.send(()).unwrap();
        receive(&may_answer, "the upgrade");
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nlate").unwrap();
    });
    let mut served =
        Served::start(folder("upgrade-h2"), &format!("site {{ proxy \"http://127.0.0.1:{port}\" }}"));
    let url = format!("https://{}/", served.addresses[1]);
    let client = Command::new(program)
        .args(["-v", "--no-verify-peer", &url])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    receive(&was_asked, "the request");
    let control = served.folder.join("control");
    let tell = |word: &str| {
        let outcome = Command::new(BINARY).arg(word).arg("--control").arg(&control).output_in_time();
        assert!(outcome.status.success(), "{word}: {}", String::from_utf8_lossy(&outcome.stderr));
    };
    tell("upgrade");
    answer.send(()).unwrap();
    let output = client.output_in_time();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("recv GOAWAY frame") && said.contains("late"), "{said}");
    join(application, "the application to end");
    tell("stop");
    wait_for(|| served.child.try_wait().unwrap(), "the server to end");
}
