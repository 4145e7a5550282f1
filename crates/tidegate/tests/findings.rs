//! What limits a real server: provoked, told in every form, kept over a reload; and nothing where nothing does.
//!
//! The server looks every ten seconds, and ten events between two looks raise a finding: these tests make so many and wait.

mod running;

use running::{Folder, Server, WAIT, wait_for};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// What is told of findings.
fn findings(server: &Server<'_>) -> Value {
    let said = server.tell(&["status", "findings", "--json"]);
    serde_json::from_str(&said.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", said.stdout, said.stderr))
}

fn finding(told: &Value, name: &str) -> Option<Value> {
    told["findings"].as_array().unwrap().iter().find(|finding| finding["name"] == name).cloned()
}

/// A limit that has turned somebody away.
fn limit(told: &Value, name: &str) -> Option<Value> {
    told["turned_away"].as_array().unwrap().iter().find(|limit| limit["limit"] == name).cloned()
}

/// Whether it is told, be it beside its cause.
fn is_told(told: &Value, name: &str) -> bool {
    let beside = |finding: &Value| {
        let seen = finding["also_seen"].as_array().cloned().unwrap_or_default();
        seen.iter().any(|seen| seen.as_str().is_some_and(|seen| seen.starts_with(&format!("{name} ("))))
    };
    finding(told, name).is_some() || told["findings"].as_array().unwrap().iter().any(beside)
}

fn send(server: &Server<'_>, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(WAIT)).unwrap();
    // Who is refused may be so before it has sent all of it.
    let _ = stream.write_all(text.as_bytes());
    stream
}

fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n")
}

#[test]
fn what_limits_a_server_is_said() {
    let folder = Folder::new("findings");
    // It takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let away = tidegate_testkit::NOBODY;
    let text = format!(
        "workers 1\nlisten \"127.0.0.1:0\"\n\
         limits {{ connections 20; in-flight 2; queue length=2 age=\"1m\" }}\n\
         pool \"bad\" {{ command \"/bin/false\" }}\n\
         site \"a.test\" {{\n\
         route \"/app/*\" {{ proxy \"http://{}\" {{ timeout \"1s\" }} }}\n\
         route \"/away/*\" {{ proxy \"http://{away}\" }}\n\
         route \"/one/*\" {{ proxy \"http://{}\" {{ connections 1; queue length=0; timeout \"1s\" }} }}\n\
         route \"/bad/*\" {{ proxy \"http://bad\" }}\n\
         route \"/once\" {{ limit \"once\" requests=\"1/h\"; respond 200 }}\n\
         route \"/.perf\" {{ status }}\n\
         respond 200 \"fine\" }}\n",
        silent.local_addr().unwrap(),
        silent.local_addr().unwrap()
    );
    let server = Server::with_config(&folder, &text);
    let nothing = server.tell(&["status", "findings"]).stdout;
    assert!(nothing.starts_with("nothing limits this server at the moment\n"), "{nothing}");

    let wanted = ["connections-limit", "queue-full", "application-slow", "application-down", "pool-crashes"];
    let told = wait_for(
        || {
            // Two of ten have a place, two wait, and nobody is answered within the second.
            let all = |count, path: &str| {
                let waiting: Vec<TcpStream> = (0..count).map(|_| send(&server, &request(path))).collect();
                for mut stream in waiting {
                    let _ = stream.read_to_end(&mut Vec::new());
                }
            };
            all(10, "/app/x");
            all(3, "/away/x");
            all(2, "/one/x");
            // Heads that do not end hold their connections.
            let held: Vec<TcpStream> = (0..30).map(|_| send(&server, "GET / HTTP/1.1\r\n")).collect();
            drop(held);
            (0..2).for_each(|_| drop(send(&server, &request("/once")).read_to_end(&mut Vec::new())));
            let told = findings(&server);
            // Those two may have found no place yet, since the server had not seen the connections before them end.
            let is_all = wanted.iter().all(|name| is_told(&told, name));
            let limits = ["limit once", "queue of route a.test /one/*"];
            (is_all && limits.iter().all(|name| limit(&told, name).is_some())).then_some(told)
        },
        "the findings",
    );

    let full = finding(&told, "connections-limit").unwrap();
    assert_eq!((&full["setting"], &full["old"]), (&"limits connections".into(), &"20".into()), "{full}");
    assert!(full["new"].as_str().unwrap().parse::<u64>().unwrap() >= 30, "{full}");
    assert_eq!(full["page"], "docs/findings.md#connections-limit");
    let client = "; of all requests of the last minutes 100 % come from the client 127.0.0.1";
    assert!(full["sentence"].as_str().unwrap().ends_with(client), "{full}");
    let slow = finding(&told, "application-slow").unwrap();
    assert_eq!(
        (&slow["subject"], &slow["also_seen"][0]),
        (&"a.test /app/*".into(), &"queue-full (the server)".into())
    );
    let down = finding(&told, "application-down").unwrap();
    assert_eq!(down["subject"], away.to_string(), "{down}");
    assert!(down["sentence"].as_str().unwrap().contains("(route a.test /away/*)"), "{down}");
    let crashes = finding(&told, "pool-crashes").unwrap();
    assert!(crashes["sentence"].as_str().unwrap().contains("ended with status 1"), "{crashes}");

    let turned = |name: &str| limit(&told, name).unwrap_or_else(|| panic!("{name}: {told}"));
    assert!(turned("limit once")["setting"].as_str().unwrap().ends_with("tidegate.kdl:10"), "{told}");
    assert!(turned("limits queue length")["count"].as_u64().unwrap() >= 6);
    assert!(turned("queue of route a.test /one/*")["setting"].as_str().unwrap().ends_with("tidegate.kdl:8"));
    let setting = |name: &str| turned(name)["setting"].as_str().unwrap().to_owned();
    assert!(
        setting("limits connections").starts_with("connections 20 (")
            && setting("limits connections").ends_with("tidegate.kdl:3)"),
        "{told}"
    );

    // The same in every form, on the page as well.
    let outcome = server.tell(&["reload"]);
    assert_eq!(outcome.code, Some(0), "{}{}", outcome.stdout, outcome.stderr);
    let status = server.status();
    assert_eq!(
        finding(&status, "pool-crashes").map(|finding| finding["since"].clone()),
        Some(crashes["since"].clone())
    );
    let metric = "tidegate_finding{finding=\"pool-crashes\",subject=\"bad\"} 1\n";
    assert!(server.tell(&["status", "--prometheus"]).stdout.contains(metric));
    assert!(
        server.tell(&["status", "--xml"]).stdout.contains("<finding name=\"pool-crashes\" subject=\"bad\"")
    );
    let text = server.tell(&["status"]).stdout;
    let (first, second) = (text.find("\nFindings:\n"), text.find("\nServer:\n"));
    assert!(first.is_some() && first < second, "{text}");
    let view = wait_for(
        || {
            let mut answer = String::new();
            send(&server, &request("/.perf?findings")).read_to_string(&mut answer).ok()?;
            answer.starts_with("HTTP/1.1 200 ").then_some(answer)
        },
        "the status page",
    );
    assert!(view.contains("pool-crashes: pool bad: "), "{view}");
}

/// Always there, so that whoever reads it need not ask whether it is.
#[test]
fn a_server_that_is_well_says_so() {
    let folder = Folder::new("findings-none");
    let mut server = Server::with_config(&folder, &running::site("fine"));
    (0..200).for_each(|_| assert_eq!(server.body("/"), "fine"));
    let status = server.status();
    assert_eq!(
        (&status["findings"], &status["turned_away"]),
        (&serde_json::json!([]), &serde_json::json!([]))
    );
    assert!(!server.tell(&["status", "--prometheus"]).stdout.contains("tidegate_finding"));
    assert!(!server.tell(&["status"]).stdout.contains("Findings:"));
    let wrong = server.tell(&["status", "findings", "list"]);
    assert_eq!(wrong.code, Some(2), "{}", wrong.stderr);
    assert_eq!(server.tell(&["stop"]).code, Some(0));
    assert!(server.wait().success());
}
