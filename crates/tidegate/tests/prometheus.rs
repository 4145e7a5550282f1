//! A real Prometheus scrapes a server, and is asked what it has understood.

mod running;

use running::{Folder, Server, exchange_with, get, wait_for};
use serde_json::Value;
use std::io::{Read, Write};
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
        // Prometheus tells no port that it was given: a free one is taken, where no other test takes any.
        let address = TcpListener::bind("127.0.0.8:0").unwrap().local_addr().unwrap().to_string();
        let started = Command::new("prometheus")
            .arg(format!("--config.file={config}"))
            .arg(format!("--storage.tsdb.path={}", folder.path("tsdb").display()))
            .arg(format!("--web.listen-address={address}"))
            .args(["--enable-feature=native-histograms,exemplar-storage", "--log.level=error"])
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
        let body = self.ask(&format!("/api/v1/query?query={}", encoded(expression)))?;
        assert_eq!(body["status"], "success", "{expression}: {body}");
        body["data"]["result"][0]["value"][1].as_str()?.parse().ok()
    }

    /// The traces that stand for values of a metric; `None` where there is nothing yet.
    fn traces(&self, selector: &str) -> Option<Vec<String>> {
        let range = "start=2020-01-01T00:00:00Z&end=2100-01-01T00:00:00Z";
        let body = self.ask(&format!("/api/v1/query_exemplars?query={}&{range}", encoded(selector)))?;
        let exemplars = body["data"][0]["exemplars"].as_array()?.iter();
        Some(exemplars.filter_map(|one| one["labels"]["trace_id"].as_str().map(str::to_owned)).collect())
    }

    fn ask(&self, path: &str) -> Option<Value> {
        let stream = TcpStream::connect(&self.address).ok()?;
        let answer = exchange_with("prometheus", stream, path);
        let is_query_wrong =
            answer.as_ref().is_err_and(|error| error.to_string().contains("400 Bad Request"));
        assert!(!is_query_wrong, "{path}: {answer:?}");
        serde_json::from_str(&answer.ok()?).ok()
    }
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

#[test]
fn native_histograms_reach_a_real_prometheus() {
    let folder = Folder::new("prometheus-native");
    let log = folder.path("a.log");
    let text = format!(
        "workers 2\nlisten \"127.0.0.1:0\"\ntrace-context begin sample=\"100%\"\n\
         access-log \"{}\" format=\"{{trace-id}} {{path}}\"\n\
         site {{ route \"/.perf\" {{ status }}; route \"/a\\\"b/*\" {{ respond 200 \"x\" }}; respond 404 }}\n",
        log.display()
    );
    let server = Server::with_config(&folder, &text);
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
    let traces = wait_for(|| prometheus.traces(times), "Prometheus to have exemplars");
    let logged = wait_for(|| std::fs::read_to_string(&log).ok().filter(|log| !log.is_empty()), "the log");
    assert!(traces.iter().all(|trace| logged.contains(&format!("{trace} /a"))), "{traces:?} of {logged}");
    assert!(told("histogram_count(tidegate_latency_seconds)") >= 7.0);
    assert_eq!(told("tidegate_requests_total{route=\"/a\\\"b/*\",class=\"2xx\"}"), 7.0);
}

// ---------------------------------------------------------------- the dashboard

/// The queries of the dashboard for Grafana, with its variables filled in.
fn queries() -> Vec<String> {
    let dashboard = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/grafana/tidegate.json");
    let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(dashboard).unwrap()).unwrap();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let targets = list(&dashboard["panels"]).into_iter().flat_map(|panel| list(&panel["targets"]));
    let variables = list(&dashboard["templating"]["list"]).into_iter();
    let asked = variables.filter_map(|variable| {
        let query = variable["query"].as_str()?.strip_prefix("label_values(")?.strip_suffix(')')?.to_owned();
        let (metric, label) = query.split_once(", ")?;
        Some(format!("count by ({label}) ({metric})"))
    });
    let filled =
        |text: &str| text.replace("$__rate_interval", "1m").replace("$site", ".*").replace("$instance", ".*");
    let queries: Vec<String> =
        targets.map(|target| filled(target["expr"].as_str().unwrap())).chain(asked).collect();
    assert!(queries.len() > 20 && !queries.iter().any(|query| query.contains('$')), "{queries:?}");
    queries
}

/// The metrics of a query, and the labels that it names, of which each is one of the first metric that stands before it or behind.
fn names(query: &str) -> (Vec<&str>, Vec<&str>) {
    let metrics = regex::Regex::new("tidegate_[a-z0-9_]+").unwrap();
    let labels = regex::Regex::new(r#"by \(([a-z, ]+)\)|([a-z_]+)=~?""#).unwrap();
    let named = labels.captures_iter(query).filter_map(|found| found.get(1).or(found.get(2)));
    let labels = named.flat_map(|names| names.as_str().split(", ")).collect();
    (metrics.find_iter(query).map(|found| found.as_str()).collect(), labels)
}

/// Every metric of the dashboard is there, and has the labels that it is asked by; and Prometheus understands every query.
#[test]
fn the_dashboard_asks_for_what_there_is() {
    let folder = Folder::new("prometheus-dashboard");
    let application = TcpListener::bind("127.0.0.1:0").unwrap();
    let text = format!(
        "workers 1\nlisten \"127.0.0.1:0\"\nlimit \"all\" requests=\"1000/s\"\n\
         pool \"bad\" {{ command \"/bin/false\" }}\ncache \"main\" {{ memory \"1MiB\"; disk \"{}\" size=\"8MiB\" }}\n\
         site {{ route \"/bad\" {{ cache \"main\"; proxy \"http://bad\" }}; route \"/.perf\" {{ status }}; route \"/app\" {{ proxy \"http://{}\" {{ connections 1 }} }}; respond 404 }}\n",
        folder.path("cache").display(),
        application.local_addr().unwrap()
    );
    let server = Server::with_config(&folder, &text);
    let answer = |mut stream: TcpStream| {
        let mut head = [0; 4096];
        let _ = stream.read(&mut head).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
    };
    let begin = || {
        let address = server.address.clone();
        std::thread::spawn(move || get(&address, "/app").unwrap())
    };
    let clients = [begin(), begin()];
    let first = application.accept().unwrap().0;
    // The second waits for the first.
    let is_queued = || server.status()["stats"]["gateway_queued"]["current"] == 1;
    wait_for(|| is_queued().then_some(()), "one that waits");
    answer(first);
    answer(application.accept().unwrap().0);
    clients.into_iter().for_each(|client| drop(tidegate_testkit::join(client, "a client")));
    // A pool whose processes end at once is a finding.
    let parts = ["tidegate_request_queue_seconds_bucket", "\ntidegate_finding{"];
    let is_told = |said: &String| parts.iter().all(|part| said.contains(part));
    let said = wait_for(
        || Some(server.tell(&["status", "--prometheus"]).stdout).filter(is_told),
        "the request to be counted, and the finding",
    );
    for query in queries() {
        let (metrics, labels) = names(&query);
        let lines: Vec<&str> = metrics
            .iter()
            .flat_map(|metric| {
                let is_of =
                    |line: &&str| line.strip_prefix(metric).is_some_and(|rest| rest.starts_with(['{', ' ']));
                let lines: Vec<_> = said.lines().filter(is_of).collect();
                assert!(!lines.is_empty(), "there is no {metric}: {query}");
                lines
            })
            .collect();
        // What Prometheus itself says of each series.
        for label in labels.into_iter().filter(|label| *label != "instance") {
            let is_there = lines.iter().any(|line| line.contains(&format!("{label}=\"")));
            assert!(is_there, "no series has the label {label}: {query}");
        }
    }
    let Some(prometheus) = Prometheus::scraping(&server, &folder) else { return };
    wait_for(|| prometheus.value("tidegate_build_info"), "Prometheus to scrape");
    queries().iter().for_each(|query| {
        let _ = prometheus.value(query); // which fails where Prometheus does not understand it
    });
}
