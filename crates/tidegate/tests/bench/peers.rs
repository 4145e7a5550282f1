//! Those that the generator is run against, and how it is run.

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use tidegate_testkit::InTime;

pub const BINARY: &str = env!("CARGO_BIN_EXE_tidegate");

pub struct Outcome {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Outcome {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|_| panic!("{}\n{}", self.stdout, self.stderr))
    }
}

/// `tidegate bench` with what tests do not look at kept out of the sources.
pub fn command() -> Command {
    let mut command = Command::new(BINARY);
    command.arg("bench").env("TIDEGATE_RUNS", concat!(env!("CARGO_TARGET_TMPDIR"), "/runs"));
    command
}

/// Runs `tidegate bench`. The generator may share its processor with other tests, so figures may be INVALID;
/// counts hold all the same.
pub fn bench(arguments: &[&str]) -> Outcome {
    let output = command().args(arguments).stdin(Stdio::null()).output_in_time();
    Outcome {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, SeqCst);
        let path = std::env::temp_dir().join(format!("tidegate-bench-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        fs::write(self.0.join(name), content).unwrap();
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A Tidegate server of a folder.
pub struct Served {
    pub folder: Folder,
    pub child: Child,
    pub url: String,
}

impl Served {
    pub fn new() -> Served {
        let folder = Folder::new();
        folder.write("1k", [b'x'; 1_024]);
        folder.write("100k", (0..100 << 10).map(|at| (at * 31 % 251) as u8).collect::<Vec<_>>());
        let mut child = Command::new(BINARY)
            .args(["serve", "--listen", "127.0.0.1:0", "--control"])
            .arg(folder.0.join("control"))
            .arg(&folder.0)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let url = lines.find_map(|line| line.strip_prefix("listening on ").map(str::to_owned)).unwrap();
        std::thread::spawn(move || lines.for_each(drop));
        Served { folder, child, url }
    }

    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A peer by script: `serve` is called for each connection, with its number.
pub fn peer(serve: impl Fn(usize, TcpStream) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let serve = std::sync::Arc::new(serve);
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
            let serve = serve.clone();
            std::thread::spawn(move || serve(number, stream));
        }
    });
    url
}

/// Reads one request head; false at the end.
pub fn request(stream: &mut TcpStream) -> bool {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return false,
        }
    }
    true
}

/// An answer with a body.
pub fn answer(stream: &mut TcpStream, status: &str, body: &str) {
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
    let _ = stream.write_all(format!("{head}{body}").as_bytes());
}

pub fn logged(log: &Path) -> usize {
    fs::read_to_string(log).map_or(0, |text| text.lines().count())
}
