//! Beside the log of nginx.

use super::peers::{Folder, bench, logged};
use super::scenarios::scenario;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Where no other test takes a port.
const HOST: &str = "127.0.0.8";

/// nginx with the files of a folder, and its port; what is `in_http` stands there, and `listen` behind its address. `None`, and that
/// it says so, where it is missing.
fn nginx(folder: &Folder, in_http: &str, listen: &str) -> Option<(Ended, u16)> {
    if Command::new("nginx").arg("-v").stderr(Stdio::null()).status().is_err() {
        assert!(std::env::var_os("CI").is_none(), "nginx is missing: cargo xtask tools --for bench");
        eprintln!("NOT TESTED: nginx is missing (cargo xtask tools --for bench)");
        return None;
    }
    let port = TcpListener::bind((HOST, 0)).unwrap().local_addr().unwrap().port();
    let here = folder.0.display();
    let settings = format!(
        "daemon off; master_process off; pid {here}/pid; error_log {here}/error.log;\n\
         events {{ worker_connections 512; }}\n\
         http {{ {in_http} log_format b '$status $bytes_sent $body_bytes_sent';\n\
         access_log {here}/access.log b; client_body_temp_path {here}/b; proxy_temp_path {here}/p;\n\
         fastcgi_temp_path {here}/f; uwsgi_temp_path {here}/u; scgi_temp_path {here}/s;\n\
         server {{ listen {HOST}:{port}{listen}; root {here}; }} }}\n"
    );
    let settings = folder.write("nginx.conf", settings);
    let nginx = Command::new("nginx")
        .args(["-p", &here.to_string(), "-c", &settings])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let nginx = Ended(nginx.unwrap());
    let deadline = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect((HOST, port)).is_err() {
        assert!(Instant::now() < deadline, "nginx does not listen");
        std::thread::park_timeout(Duration::from_millis(5));
    }
    Some((nginx, port))
}

/// Waits for so many lines more than `before`; how many there are.
fn lines_of(log: &Path, before: usize, count: usize) -> usize {
    // nginx writes a line when a request is over for it, which may be after the answer was read.
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let lines = logged(log) - before;
        if lines >= count || Instant::now() > deadline {
            return lines;
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// Users whose server says goodbye after a few requests, and takes two at once: none is lost, none is made twice.
#[test]
fn users_of_http2_are_answered_once_each_by_nginx() {
    let folder = Folder::new();
    let in_http = "keepalive_requests 7; http2_max_concurrent_streams 2;";
    let Some((_nginx, port)) = nginx(&folder, in_http, " http2") else { return };
    let images: String = (0..9).map(|number| format!("<img src=/{number}.png>")).collect();
    folder.write("page", images);
    (0..9).for_each(|number| drop(folder.write(&format!("{number}.png"), "picture")));
    let steps = "users 5 { steady \"1s\" }; think fixed \"5ms\"; client h2 cold=\"100%\"
        sequence page up; op page { get \"/page\" { assets } }
        op up { post \"/page\" { part a \"b\"; upload f size=\"200KiB\"; expect status=405 } }";
    let file = scenario(&folder, &format!("http://{HOST}:{port}"), steps);
    let report = bench(&["run", &file, "--no-host", "--json", "--no-keep"]).json();
    assert_eq!(report["failed_operations"], serde_json::json!([]), "{report:#}");
    let requests = &report["requests"];
    let asked = requests["answered"].as_u64().unwrap() + requests["unmeasured"].as_u64().unwrap();
    assert_eq!(lines_of(&folder.0.join("access.log"), 0, asked as usize) as u64, asked);
    // Seven on each; what goodbyes turn away, and what was too much before anybody knew, is told, and no fault.
    assert!(requests["connects"].as_u64().is_some_and(|count| count >= asked / 7), "{requests}");
    assert!(requests["sent_again"].as_u64().is_some_and(|count| count > 0), "{requests}");
    assert_eq!(requests["sent_again"], requests["sent_again_excused"], "{requests}");
    assert_ne!(report["verdict"], "FAIL", "{report:#}");
}

/// Requests and bytes equal the access log, for kept and closed connections and for errors.
#[test]
fn figures_equal_the_access_log_of_nginx() {
    let folder = Folder::new();
    folder.write("1k", [b'x'; 1_024]);
    let Some((_nginx, port)) = nginx(&folder, "keepalive_requests 37;", "") else { return };
    let log = folder.0.join("access.log");
    let url = format!("http://{HOST}:{port}/1k");
    let missing = format!("http://{HOST}:{port}/missing");
    for extra in [&[][..], &["--no-keepalive"], &["--pipeline", "4"]] {
        let before = logged(&log);
        let run = ["hit", "-n", "1000", "-c", "10", "--json", url.as_str(), missing.as_str()];
        let report = bench(&[&run[..], extra].concat()).json();
        let lines = lines_of(&log, before, 1_000);
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
