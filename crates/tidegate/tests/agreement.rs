//! What the server says of itself is what a load generator has counted: two sites and an application that is not there, under load,
//! by every form that figures have.

mod running;

use running::{Folder, Server, exchange_with, run, wait_for};
use serde_json::Value;
use std::net::TcpStream;

/// A run of the generator.
struct Ran {
    host: &'static str,
    route: &'static str,
    class: &'static str,
    requests: u64,
    report: Value,
}

impl Ran {
    fn count(&self, name: &str) -> u64 {
        self.report[name].as_u64().unwrap_or_else(|| panic!("{name}: {}", self.report))
    }

    /// Seconds of all requests together.
    fn seconds(&self) -> f64 {
        self.report["latency"]["mean"].as_f64().unwrap() * self.requests as f64
    }
}

#[test]
fn every_form_agrees_with_the_generator() {
    let folder = Folder::new("agreement");
    let text = format!(
        "workers 2\nlisten \"127.0.0.1:0\"\n\
         site \"a.test\" {{ route \"/x\" {{ respond 200 \"hello\" }}; route \"/app/*\" {{ proxy \"http://{}\" }}; respond 404 }}\n\
         site \"b.test\" {{ respond 200 \"bee\" }}\n\
         site \"c.test\" {{ route \"/.perf\" {{ status }}; route \"/.console/*\" {{ console }}; respond 404 }}\n",
        tidegate_testkit::NOBODY
    );
    let server = Server::with_config(&folder, &text);
    let runs: Vec<Ran> = std::thread::scope(|scope| {
        let runs = [
            ("a.test", "/x", "/x", "2xx", 3000),
            ("a.test", "/app/*", "/app/1", "5xx", 500),
            ("a.test", "/*", "/none", "4xx", 700),
            ("b.test", "/*", "/", "2xx", 2000),
        ];
        let (address, folder) = (&server.address, &folder);
        let runs = runs.map(|(host, route, path, class, requests)| {
            scope.spawn(move || {
                let (field, count) = (format!("Host: {host}"), requests.to_string());
                let url = format!("http://{address}{path}");
                let arguments =
                    ["bench", "hit", "-c", "3", "-n", &count, "-H", &field, "--json", "--no-host", &url];
                let said = run(folder, &arguments);
                let report = serde_json::from_str(&said.stdout)
                    .unwrap_or_else(|error| panic!("{error}: {}{}", said.stdout, said.stderr));
                Ran { host, route, class, requests, report }
            })
        });
        runs.map(|run| run.join().unwrap()).into()
    });
    for ran in &runs {
        assert_eq!(ran.count("answered"), ran.requests, "{}", ran.report);
    }
    let all: u64 = runs.iter().map(|ran| ran.requests).sum();
    // The last of them is counted a moment after its client has it.
    let status = wait_for(
        || Some(server.status()).filter(|told| told["stats"]["latency"]["count"] == all),
        "all requests to be counted",
    );
    // The reports are asked for over the socket, so that nothing is counted meanwhile.
    let metrics = server.tell(&["status", "--prometheus"]).stdout;
    let xml = server.tell(&["status", "--xml"]).stdout;
    let text = server.tell(&["status"]).stdout;
    let console = get_json(&server, "/.console/api/status");
    for ran in &runs {
        let Ran { host, route, class, requests, .. } = ran;
        let [received, sent] = ["bytes_sent", "bytes"].map(|name| ran.count(name));
        for told in [&status, &console] {
            let told = route_of(told, host, route);
            assert_eq!(told["requests"], *requests, "{told}");
            assert_eq!(told["responses"][class], *requests, "{told}");
            assert_eq!(
                (&told["received_bytes"], &told["sent_bytes"]),
                (&received.into(), &sent.into()),
                "{told}"
            );
            // What a request takes here is a part of what its client waits.
            assert_eq!(told["duration"]["count"], *requests);
            assert!(
                told["duration"]["sum"].as_f64().unwrap() <= ran.seconds(),
                "{told} {}",
                ran.report["latency"]
            );
        }
        for line in [
            format!(
                "tidegate_requests_total{{site=\"{host}\",route=\"{route}\",class=\"{class}\"}} {requests}\n"
            ),
            format!("tidegate_request_bytes_total{{site=\"{host}\",route=\"{route}\"}} {received}\n"),
            format!("tidegate_response_bytes_total{{site=\"{host}\",route=\"{route}\"}} {sent}\n"),
            format!(
                "tidegate_request_duration_seconds_count{{site=\"{host}\",route=\"{route}\"}} {requests}\n"
            ),
        ] {
            assert!(metrics.contains(&line), "{line}{metrics}");
        }
        assert!(text.contains(&format!("{requests} requests, ")), "{text}");
        let bucket = format!(
            "countRequests=\"{requests}\" countBytesReceived=\"{received}\" countBytesTransmitted=\"{sent}\""
        );
        assert!(xml.contains(&bucket), "{bucket}: {xml}");
    }
    let sum = |name: &str| runs.iter().map(|ran| ran.count(name)).sum::<u64>();
    let whole = [("sent_bytes", sum("bytes")), ("received_bytes", sum("bytes_sent"))];
    for (name, count) in whole {
        assert_eq!(status["stats"][name], count, "{name}");
        assert!(metrics.contains(&format!("tidegate_{name}_total {count}\n")), "{name}: {metrics}");
    }
    for (status_code, count) in [("200", 5000), ("404", 700), ("502", 500)] {
        assert_eq!(status["stats"]["responses"]["codes"][status_code], count);
    }
}

/// What the console shows, before its own question is counted.
fn get_json(server: &Server<'_>, path: &str) -> Value {
    let answer = exchange_with("c.test", TcpStream::connect(&server.address).unwrap(), path).unwrap();
    serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

fn route_of(report: &Value, site: &str, route: &str) -> Value {
    let named = |list: &Value, key: &str, name: &str| {
        let mut list = list.as_array().unwrap().iter();
        list.find(|one| one[key] == name).cloned().unwrap_or_else(|| panic!("{name}: {report}"))
    };
    named(&named(&report["sites"], "name", site)["routes"], "route", route)
}
