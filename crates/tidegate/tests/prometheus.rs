//! A real Prometheus scrapes a server, and is asked what it has understood.

mod running;

use running::{Folder, Server, exchange_with, get, wait_for};
use serde_json::Value;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

/// A Prometheus of this test, which ends with it.
struct Prometheus {
    process: Child,
    address: String,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Prometheus {
    /// One that scrapes a server at `/.perf` once a second; `None` where it is not installed.
    fn scraping(server: &Server<'_>, folder: &Folder) -> Option<Prometheus> {
        let config = format!(
            "global: {{ scrape_interval: 1s }}\nscrape_configs:\n  - job_name: tidegate\n    metrics_path: /.perf\n    \
             static_configs: [{{ targets: [\"{}\"] }}]\n",
            server.address
        );
        let config = folder.write("prometheus.yml", &config);
        // Prometheus tells no port that it was given: a free one is taken, and somebody else may be faster.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let started = Command::new("prometheus")
            .arg(format!("--config.file={config}"))
            .arg(format!("--storage.tsdb.path={}", folder.path("tsdb").display()))
            .arg(format!("--web.listen-address={address}"))
            .args(["--enable-feature=native-histograms", "--log.level=error"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match started {
            Ok(process) => Some(Prometheus { process, address }),
            Err(_) => {
                assert!(std::env::var_os("CI").is_none(), "prometheus is missing: cargo xtask tools");
                eprintln!("NOT TESTED: prometheus is missing (cargo xtask tools)");
                None
            }
        }
    }

    /// The value of an expression that has one; `None` where there is nothing yet.
    fn value(&self, expression: &str) -> Option<f64> {
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let stream = TcpStream::connect(&self.address).ok()?;
        let body = exchange_with("prometheus", stream, &format!("/api/v1/query?query={encoded}")).ok()?;
        let body: Value = serde_json::from_str(&body).ok()?;
        assert_eq!(body["status"], "success", "{expression}: {body}");
        body["data"]["result"][0]["value"][1].as_str()?.parse().ok()
    }
}

#[test]
fn native_histograms_reach_a_real_prometheus() {
    let folder = Folder::new("prometheus-native");
    let text = "workers 2\nlisten \"127.0.0.1:0\"\n\
                site { route \"/.perf\" { status }; route \"/a\\\"b/*\" { respond 200 \"x\" }; respond 404 }\n";
    let server = Server::with_config(&folder, text);
    for number in 0..7 {
        get(&server.address, &format!("/a%22b/{number}")).unwrap();
    }
    let Some(prometheus) = Prometheus::scraping(&server, &folder) else { return };
    let times = "tidegate_request_duration_seconds{route=\"/a\\\"b/*\"}";
    // Only of a native histogram is there a count by this name.
    let count = format!("histogram_count({times})");
    let is_counted = || prometheus.value(&count).filter(|count| *count >= 7.0);
    assert_eq!(wait_for(is_counted, "Prometheus to scrape"), 7.0);
    let told = |expression: &str| prometheus.value(expression).unwrap_or_else(|| panic!("{expression}"));
    let status: Value = server.status();
    let routes = status["sites"][0]["routes"].as_array().unwrap();
    let route = routes.iter().find(|route| route["route"] == "/a\"b/*").unwrap();
    let ours = route["duration"]["p50"].as_f64().unwrap_or_else(|| panic!("{route}"));
    let median = told(&format!("histogram_quantile(0.5, {times})"));
    assert!(median <= ours * 1.0001 && median >= ours / 1.2, "{median} of Prometheus, {ours} of our own");
    let below = told(&format!("histogram_fraction(0, 64, {times})"));
    assert!((below - 1.0).abs() < 1e-9, "{below}");
    assert!(told("histogram_count(tidegate_latency_seconds)") >= 7.0);
    assert_eq!(told("tidegate_requests_total{route=\"/a\\\"b/*\",class=\"2xx\"}"), 7.0);
}
