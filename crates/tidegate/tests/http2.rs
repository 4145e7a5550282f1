//! The clients of HTTP/2 that people use, and h2spec, against the real server.
//!
//! Where a client is not installed the test says so and passes on a contributor's machine; with `CI` set it
//! fails. `cargo xtask tools` installs them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const BINARY: &str = env!("CARGO_BIN_EXE_tidegate");

/// A server of a folder that speaks HTTP/2 with who begins with it.
struct Served {
    folder: PathBuf,
    child: Child,
    address: String,
}

impl Served {
    fn new(name: &str) -> Served {
        let folder = std::env::temp_dir().join(format!("tidegate-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let root = folder.join("root");
        fs::create_dir_all(&root).unwrap();
        fs::write(root.join("index.html"), "<p>hello, hello").unwrap();
        fs::write(root.join("small"), bytes(1024)).unwrap();
        fs::write(root.join("large"), bytes(3 << 20)).unwrap();
        let config = folder.join("tidegate.kdl");
        let site = format!("site {{ root \"{}\" }}", root.display());
        fs::write(&config, format!("listen \"127.0.0.1:0\" {{ h2c }}\n{site}\n")).unwrap();
        let mut child = Command::new(BINARY)
            .arg("serve")
            .args([Path::new("--config"), &config, Path::new("--control"), &folder.join("control")])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let said = lines.find_map(|line| line.strip_prefix("listening on http://").map(str::to_owned));
        std::thread::spawn(move || lines.for_each(drop));
        Served { folder, child, address: said.unwrap().trim_end_matches('/').to_owned() }
    }

    /// What a client prints; it must succeed.
    fn client(&self, program: &Path, arguments: &[&str]) -> String {
        let arguments =
            arguments.iter().map(|argument| argument.replace("URL", &format!("http://{}", self.address)));
        let output = Command::new(program).args(arguments).current_dir(&self.folder).output().unwrap();
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
    let (host, port) = served.address.rsplit_once(':').unwrap();
    let text = served.client(
        &program,
        &["--host", host, "--port", port, "--timeout", "10", "--max-header-length", "4000"],
    );
    let last = text.lines().rev().find(|line| line.contains("tests,")).unwrap_or_default();
    assert!(last.contains(" 0 skipped") && last.contains(" 0 failed"), "{text}");
}

#[test]
fn curl() {
    let Some(program) = find("curl") else { return };
    let served = Served::new("curl-h2");
    let curl = |arguments: &[&str]| {
        let common = ["--silent", "--show-error", "--max-time", "20", "--http2-prior-knowledge"];
        served.client(&program, &[&common, arguments].concat())
    };
    assert_eq!(curl(&["URL/"]), "<p>hello, hello");
    assert_eq!(
        curl(&["--output", "/dev/null", "--write-out", "%{http_code} %{http_version}", "URL/none"]),
        "404 2"
    );
    curl(&["--output", "large", "URL/large"]);
    assert!(fs::read(served.folder.join("large")).unwrap() == bytes(3 << 20));
    let upload =
        ["--data-binary", "@root/large", "--output", "/dev/null", "--write-out", "%{http_code}", "URL/small"];
    assert_eq!(curl(&upload), "405");
}

#[test]
fn nghttp() {
    let Some(program) = find("nghttp") else { return };
    let served = Served::new("nghttp");
    let text = served.client(&program, &["--stat", "--null-out", "--multiply=50", "URL/small", "URL/large"]);
    assert_eq!(text.lines().filter(|line| line.trim_end().ends_with("/small")).count(), 50, "{text}");
    assert_eq!(text.lines().filter(|line| line.contains(" 200 ")).count(), 100, "{text}");
}

#[test]
fn h2load() {
    let Some(program) = find("h2load") else { return };
    let served = Served::new("h2load");
    let text = served.client(&program, &["-n", "5000", "-c", "5", "-m", "32", "URL/small"]);
    assert!(text.contains("5000 succeeded, 0 failed, 0 errored, 0 timeout"), "{text}");
    let text = served.client(&program, &["-n", "20", "-c", "2", "-m", "10", "-w", "10", "URL/large"]);
    assert!(text.contains("20 succeeded, 0 failed, 0 errored, 0 timeout"), "{text}");
}
