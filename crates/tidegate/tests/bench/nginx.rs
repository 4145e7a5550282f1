//! Beside the log of nginx.

use super::peers::{Folder, bench, logged};
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Where no other test takes a port.
const HOST: &str = "127.0.0.8";

/// Requests and bytes equal the access log, for kept and closed connections and for errors.
#[test]
fn figures_equal_the_access_log_of_nginx() {
    if Command::new("nginx").arg("-v").stderr(Stdio::null()).status().is_err() {
        assert!(std::env::var_os("CI").is_none(), "nginx is missing: cargo xtask tools --for bench");
        eprintln!("NOT TESTED: nginx is missing (cargo xtask tools --for bench)");
        return;
    }
    let folder = Folder::new();
    folder.write("1k", [b'x'; 1_024]);
    let port = TcpListener::bind((HOST, 0)).unwrap().local_addr().unwrap().port();
    let here = folder.0.display();
    let settings = format!(
        "daemon off; master_process off; pid {here}/pid; error_log {here}/error.log;\n\
         events {{ worker_connections 512; }}\n\
         http {{ keepalive_requests 37; log_format b '$status $bytes_sent $body_bytes_sent';\n\
         access_log {here}/access.log b; client_body_temp_path {here}/b; proxy_temp_path {here}/p;\n\
         fastcgi_temp_path {here}/f; uwsgi_temp_path {here}/u; scgi_temp_path {here}/s;\n\
         server {{ listen {HOST}:{port}; root {here}; }} }}\n"
    );
    let settings = folder.write("nginx.conf", settings);
    let nginx = Command::new("nginx")
        .args(["-p", &here.to_string(), "-c", &settings])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _nginx = Ended(nginx.unwrap());
    let deadline = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect((HOST, port)).is_err() {
        assert!(Instant::now() < deadline, "nginx does not listen");
        std::thread::park_timeout(Duration::from_millis(5));
    }
    let log = folder.0.join("access.log");
    let url = format!("http://{HOST}:{port}/1k");
    let missing = format!("http://{HOST}:{port}/missing");
    for extra in [&[][..], &["--no-keepalive"], &["--pipeline", "4"]] {
        let before = logged(&log);
        let run = ["hit", "-n", "1000", "-c", "10", "--json", url.as_str(), missing.as_str()];
        let report = bench(&[&run[..], extra].concat()).json();
        // nginx writes a line when a request is over for it, which may be after the answer was read.
        let deadline = Instant::now() + Duration::from_secs(20);
        let lines = loop {
            let lines = logged(&log) - before;
            if lines >= 1_000 || Instant::now() > deadline {
                break lines;
            }
            std::thread::park_timeout(Duration::from_millis(5));
        };
        assert_eq!((&report["requests"], lines), (&1_000.into(), 1_000), "{extra:?}");
        let (mut bytes, mut bodies, mut missing) = (0, 0, 0);
        for line in fs::read_to_string(&log).unwrap().lines().skip(before) {
            let fields: Vec<u64> = line.split(' ').map(|field| field.parse().unwrap()).collect();
            bytes += fields[1];
            bodies += fields[2];
            missing += u64::from(fields[0] == 404);
        }
        assert_eq!((&report["bytes"], &report["body_bytes"]), (&bytes.into(), &bodies.into()), "{extra:?}");
        assert_eq!(report["errors"]["status"], missing, "{extra:?}");
    }
}

/// A process that ends with the test, also where that fails.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
