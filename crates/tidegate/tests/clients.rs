//! The clients that people use, against the real server: curl, wget, Python's `http.client`, OpenSSL.
//!
//! Where a client is not installed the test says so and passes on a contributor's machine; with `CI` set it
//! fails. `cargo xtask tools` installs them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tidegate_testkit::InTime;

const BINARY: &str = env!("CARGO_BIN_EXE_tidegate");

/// A server of a folder, and room beside it.
struct Served {
    folder: PathBuf,
    child: Child,
    url: String,
}

impl Served {
    /// Serves `fill`'s files with these directives for the site; `None` where the client is missing.
    fn new(client: &str, directives: &str, fill: impl FnOnce(&Path)) -> Option<Served> {
        if !is_there(client) {
            return None;
        }
        let folder = std::env::temp_dir().join(format!("tidegate-{}-{client}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let root = folder.join("root");
        fs::create_dir_all(&root).unwrap();
        fill(&root);
        let config = folder.join("tidegate.kdl");
        let root = root.display();
        fs::write(&config, format!("listen \"127.0.0.1:0\"\nsite {{ root \"{root}\"; {directives} }}\n"))
            .unwrap();
        Some(Served::start(folder))
    }

    /// Serves what `text` says from a folder; `None` where the client is missing.
    fn with(client: &str, folder: PathBuf, text: &str) -> Option<Served> {
        if !is_there(client) {
            return None;
        }
        fs::write(folder.join("tidegate.kdl"), text).unwrap();
        Some(Served::start(folder))
    }

    fn start(folder: PathBuf) -> Served {
        let config = folder.join("tidegate.kdl");
        let mut child = Command::new(BINARY)
            .arg("serve")
            .args([Path::new("--config"), &config, Path::new("--control"), &folder.join("control")])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let url = lines.find_map(|line| line.strip_prefix("listening on ").map(str::to_owned)).unwrap();
        std::thread::spawn(move || lines.for_each(drop));
        Served { folder, child, url }
    }

    /// Runs the client beside the root; `URL` in an argument is the address of the server.
    fn client(&self, program: &str, arguments: &[&str]) -> Output {
        let arguments = arguments.iter().map(|argument| argument.replace("URL", &self.url));
        Command::new(program).args(arguments).current_dir(&self.folder).output_in_time()
    }

    /// What curl prints, silent and within a time.
    fn curl(&self, arguments: &[&str]) -> String {
        let common = ["--silent", "--show-error", "--max-time", "20"];
        let output = self.client("curl", &[&common, arguments].concat());
        assert!(output.status.success(), "curl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn is_there(client: &str) -> bool {
    if Command::new(client).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok() {
        return true;
    }
    assert!(std::env::var_os("CI").is_none(), "{client} is missing: cargo xtask tools");
    eprintln!("NOT TESTED: {client} is missing (cargo xtask tools)");
    false
}

/// Bytes that differ from place to place.
fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 % 251) as u8).collect()
}

#[test]
fn curl() {
    let fill = |root: &Path| {
        fs::write(root.join("a.txt"), "text that is worth compressing\n".repeat(200)).unwrap();
        fs::write(root.join("large.bin"), bytes(3 << 20)).unwrap();
        fs::create_dir(root.join("folder")).unwrap();
        fs::write(root.join("folder/index.html"), "<p>inside").unwrap();
    };
    let Some(served) = Served::new("curl", "compress \"gzip\" min=\"1KiB\"", fill) else { return };
    let text = fs::read_to_string(served.folder.join("root/a.txt")).unwrap();
    let large = fs::read(served.folder.join("root/large.bin")).unwrap();

    assert_eq!(served.curl(&["URL/a.txt"]), text);
    assert_eq!(served.curl(&["--http1.0", "URL/a.txt"]), text);
    assert_eq!(served.curl(&["--compressed", "URL/a.txt"]), text);
    assert_eq!(served.curl(&["--location", "URL/folder"]), "<p>inside");
    let status = |arguments: &[&str]| {
        served.curl(&[&["--output", "/dev/null", "--write-out", "%{http_code}"], arguments].concat())
    };
    assert_eq!(status(&["--head", "URL/a.txt"]), "200");
    assert_eq!(status(&["URL/none"]), "404");
    assert_eq!(status(&["--path-as-is", "URL/../../../../etc/passwd"]), "400");
    assert_eq!(status(&["--path-as-is", "URL/%2e%2e/%2e%2e/etc/passwd"]), "400");
    assert_eq!(status(&["--upload-file", "root/a.txt", "URL/a.txt"]), "405");
    assert_eq!(
        status(&["--data-binary", "@root/large.bin", "-H", "Expect: 100-continue", "URL/a.txt"]),
        "405"
    );
    served.curl(&["--remote-time", "--output", "once", "URL/a.txt"]);
    assert_eq!(status(&["--time-cond", "once", "URL/a.txt"]), "304");

    // A download that was broken off is taken up where it stopped.
    fs::write(served.folder.join("resumed"), &large[..1_000_000]).unwrap();
    served.curl(&["--continue-at", "-", "--output", "resumed", "URL/large.bin"]);
    assert!(fs::read(served.folder.join("resumed")).unwrap() == large);
    assert_eq!(served.curl(&["--range", "5-9,-4", "URL/a.txt"]).matches("Content-Range").count(), 2);
}

/// A crawl by the listings brings every file home, byte for byte, whatever it is called.
#[test]
fn wget_crawls_a_tree() {
    let fill = |root: &Path| {
        for (name, length) in [
            ("plain.txt", 10),
            ("with space.txt", 20),
            ("a&b;c=d.bin", 300),
            ("100%.bin", 4_000),
            ("quo'te.bin", 50_000),
            ("größe.bin", 70_000),
            ("deep/er/still/file.bin", 2_000_000),
            ("empty", 0),
        ] {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes(length)).unwrap();
        }
    };
    let Some(served) = Served::new("wget", "listing", fill) else { return };
    let options = ["-q", "-r", "-l", "inf", "-np", "-nH", "-e", "robots=off", "-T", "20", "-t", "1"];
    let arguments = [&options[..], &["--restrict-file-names=nocontrol", "-P", "copy", "URL/"]].concat();
    let output = served.client("wget", &arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut waiting = vec![PathBuf::new()];
    let mut compared = 0;
    while let Some(relative) = waiting.pop() {
        for entry in fs::read_dir(served.folder.join("root").join(&relative)).unwrap() {
            let relative = relative.join(entry.unwrap().file_name());
            let (original, copy) =
                (served.folder.join("root").join(&relative), served.folder.join("copy").join(&relative));
            if original.is_dir() {
                waiting.push(relative);
                continue;
            }
            let copy = fs::read(&copy).unwrap_or_else(|error| panic!("{}: {error}", relative.display()));
            assert!(copy == fs::read(&original).unwrap(), "{} differs", relative.display());
            compared += 1;
        }
    }
    assert_eq!(compared, 8);
}

#[test]
fn python() {
    let fill = |root: &Path| fs::write(root.join("a.bin"), bytes(100_000)).unwrap();
    let Some(served) = Served::new("python3", "", fill) else { return };
    let script = r#"
import http.client, sys
host = sys.argv[1].removeprefix("http://")
connection = http.client.HTTPConnection(host, timeout=20)
whole = open("root/a.bin", "rb").read()
for _ in range(50):
    connection.request("GET", "/a.bin")
    answer = connection.getresponse()
    assert answer.status == 200 and answer.read() == whole
    connection.request("HEAD", "/a.bin")
    answer = connection.getresponse()
    assert answer.status == 200 and answer.length == 0 and not answer.read()
    connection.request("POST", "/a.bin", body=iter([b"some", b"chunks"]), encode_chunked=True,
                       headers={"Transfer-Encoding": "chunked"})
    answer = connection.getresponse()
    assert answer.status == 405 and answer.read()
    connection.request("GET", "/a.bin", headers={"Range": "bytes=10-19"})
    answer = connection.getresponse()
    assert answer.status == 206 and answer.read() == whole[10:20]
"#;
    let output = served.client("python3", &["-c", script, "URL"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// OpenSSL's own client, both versions, resumption, client certificates and what it makes of the chain.
#[test]
fn openssl_and_curl_speak_tls() {
    let folder = std::env::temp_dir().join(format!("tidegate-{}-tls", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let keep = |name: &str, certificate: &rcgen::Certificate, key: &rcgen::KeyPair| {
        fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
        fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    };
    let params = rcgen::CertificateParams::new(vec!["a.test".to_owned(), "early.test".to_owned()]).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    keep("site", &params.self_signed(&key).unwrap(), &key);
    let key = rcgen::KeyPair::generate().unwrap();
    let mut above = rcgen::CertificateParams::new(Vec::new()).unwrap();
    above.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    keep("authority", &above.self_signed(&key).unwrap(), &key);
    let issuer = rcgen::Issuer::new(above, key);
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["client".to_owned()]).unwrap();
    keep("client", &params.signed_by(&key, &issuer).unwrap(), &key);
    let text = "listen \"127.0.0.1:0\" { tls certificate=\"site.pem\" key=\"site.key\" }\n\
        site \"a.test\" { root \".\"; tls { client-certificates \"authority.pem\" mode=optional } }\n\
        site \"early.test\" { root \".\"; tls { early-data } }\n";
    let Some(served) = Served::with("openssl", folder, text) else { return };
    fs::write(served.folder.join("large.bin"), bytes(3 << 20)).unwrap();
    let port = served.url.rsplit(':').next().unwrap().to_owned();
    let resolve = format!("a.test:{port}:127.0.0.1");
    for version in ["--tlsv1.3", "--tls-max"] {
        let version = if version == "--tls-max" { &["--tls-max", "1.2"][..] } else { &[version] };
        let url = format!("https://a.test:{port}/large.bin");
        let fixed = ["--cacert", "site.pem", "--resolve", &resolve, "--output", "copy", &url];
        served.curl(&[version, &fixed].concat());
        assert!(fs::read(served.folder.join("copy")).unwrap() == bytes(3 << 20));
    }
    let address = format!("127.0.0.1:{port}");
    let host_of = |options: &[&str]| if options.contains(&"early.test") { "early.test" } else { "a.test" };
    let s_client = |options: &[&str]| {
        let mut child = Command::new("openssl")
            .args(["s_client", "-connect", &address, "-servername", host_of(options), "-CAfile", "site.pem"])
            .args(options.iter().filter(|option| !["-servername", "early.test"].contains(option)))
            .current_dir(&served.folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let request =
            format!("GET /site.pem HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", host_of(options));
        // With early data it may have its answer, and its end, before this has been written: what it says tells.
        match std::io::Write::write_all(child.stdin.as_mut().unwrap(), request.as_bytes()) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
            outcome => outcome.unwrap(),
        }
        // Its input stays open until it has seen the end of the connection.
        let input = child.stdin.take();
        let output = child.output_in_time();
        drop(input);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    for version in ["-tls1_3", "-tls1_2"] {
        let first = s_client(&[version, "-sess_out", "session", "-ign_eof"]);
        assert!(first.contains("200 OK") && first.contains("Verify return code: 0 (ok)"), "{first}");
        let again = s_client(&[version, "-sess_in", "session", "-ign_eof"]);
        assert!(again.contains("Reused, TLSv1."), "{again}");
        let known = s_client(&[version, "-cert", "client.pem", "-key", "client.key", "-ign_eof"]);
        assert!(known.contains("200 OK"), "{known}");
    }
    // What comes with the first packet is answered where it is safe, and else told to come again (FAULTS 25).
    fs::write(served.folder.join("get"), "GET /site.pem HTTP/1.1\r\nHost: early.test\r\n\r\n").unwrap();
    let post = "POST /site.pem HTTP/1.1\r\nHost: early.test\r\nContent-Length: 0\r\n\r\n";
    fs::write(served.folder.join("post"), post).unwrap();
    let other = "GET /site.pem HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";
    fs::write(served.folder.join("other"), other).unwrap();
    let name = ["-tls1_3", "-servername", "early.test", "-ign_eof"];
    let too_early = "HTTP/1.1 425 Too Early";
    for (request, status) in [("get", "HTTP/1.1 200 OK"), ("post", too_early), ("other", too_early)] {
        s_client(&[&name[..], &["-sess_out", "early"]].concat());
        let said = s_client(&[&name[..], &["-sess_in", "early", "-early_data", request]].concat());
        assert!(said.contains("Early data was accepted") && said.contains(status), "{said}");
    }
    let old = s_client(&["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"]);
    assert!(!old.contains("200 OK"), "{old}");
}

/// Nothing that a scanner of TLS knows is found, but that nobody has signed the certificate of a test. What is
/// compared with is Mozilla's recommendation "intermediate".
#[test]
fn sslyze_finds_no_weakness() {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/python/sslyze/bin/sslyze");
    let program = if tools.is_file() { tools.display().to_string() } else { "sslyze".to_owned() };
    let folder = std::env::temp_dir().join(format!("tidegate-{}-sslyze", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    if !(tools.is_file() || is_there("sslyze")) || !is_there("openssl") {
        return;
    }
    for (name, kind) in
        [("ecdsa", &["ec", "-pkeyopt", "ec_paramgen_curve:P-256"][..]), ("rsa", &["rsa:2048"])]
    {
        let status = Command::new("openssl")
            .args(["req", "-x509", "-nodes", "-days", "90", "-subj", "/CN=a.test", "-newkey"])
            .args(kind)
            .args(["-addext", "subjectAltName=DNS:a.test,IP:127.0.0.1"])
            .args(["-addext", "basicConstraints=critical,CA:FALSE"])
            .args(["-keyout", &format!("{name}.key"), "-out", &format!("{name}.pem")])
            .current_dir(&folder)
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success(), "openssl makes a certificate");
    }
    let text = "listen \"127.0.0.1:0\" { tls certificate=\"ecdsa.pem\" key=\"ecdsa.key\" }\n\
        site { respond 200; hsts \"365d\"; tls { certificate \"ecdsa.pem\" key=\"ecdsa.key\"; \
        certificate \"rsa.pem\" key=\"rsa.key\" } }\n";
    let Some(served) = Served::with("openssl", folder, text) else { return };
    let address = served.url.rsplit("//").next().unwrap().to_owned();
    let output = Command::new(program)
        .args(["--mozilla_config=intermediate", &address])
        .stdin(Stdio::null())
        .output_in_time();
    let said = String::from_utf8_lossy(&output.stdout);
    let (scan, compliance) = said.split_once("COMPLIANCE AGAINST").unwrap_or_else(|| panic!("{said}"));
    let findings: Vec<&str> =
        compliance.lines().map(str::trim).filter(|line| line.starts_with("* ")).collect();
    let is_trust = |finding: &&str| finding.starts_with("* certificate_path_validation");
    assert!(findings.iter().all(is_trust), "{findings:#?}\n{said}");
    for weakness in ["VULNERABLE -", "Not OK", "NOT OK", "compression enabled"] {
        assert!(!scan.contains(weakness), "{weakness}: {said}");
    }
    for version in ["SSL 2.0", "SSL 3.0", "TLS 1.0", "TLS 1.1"] {
        let rest = scan.split_once(&format!("* {version} Cipher Suites:")).unwrap().1;
        assert!(
            rest.lines().nth(1).unwrap_or_default().contains("rejected all cipher suites")
                || rest.lines().nth(2).unwrap_or_default().contains("rejected all cipher suites"),
            "{version}: {said}"
        );
    }
    assert_eq!(kinds_of_keys(scan), ["ECPublicKey", "RSAPublicKey"], "both certificates are shown: {said}");
}

/// The kinds of keys that sslyze lists, sorted: it prints them in the order in which its threads came to an end.
fn kinds_of_keys(scan: &str) -> Vec<&str> {
    let list = scan.split_once("Number of cert chains detected:").map_or("", |(_, rest)| rest);
    let list = list.lines().next().unwrap_or_default().split_once('(').map_or("", |(_, kinds)| kinds);
    let mut kinds: Vec<&str> = list.trim_end().trim_end_matches(')').split(',').map(str::trim).collect();
    kinds.sort_unstable();
    kinds
}

#[test]
fn kinds_of_keys_have_no_order() {
    let line = |kinds| {
        format!(" * Certificates Information:\n   Number of cert chains detected:    2 ({kinds})\n\n")
    };
    for kinds in ["ECPublicKey, RSAPublicKey", "RSAPublicKey, ECPublicKey"] {
        assert_eq!(kinds_of_keys(&line(kinds)), ["ECPublicKey", "RSAPublicKey"]);
    }
    assert_ne!(kinds_of_keys(&line("ECPublicKey")), ["ECPublicKey", "RSAPublicKey"]);
    assert_ne!(kinds_of_keys("nothing of the kind"), ["ECPublicKey", "RSAPublicKey"]);
}
