//! Agents on machines of their own, as far as one machine can have them: network namespaces with addresses that are not loopback.

use super::super::peers::{BINARY, Folder};
use super::{Running, scenario};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use tidegate_testkit::InTime;

/// A bridge in a namespace, with others around it: the first has 10.79.0.1, the next .2, and so on.
struct Machines {
    names: Vec<String>,
}

fn ip(arguments: &str) -> Result<(), String> {
    let mut ip = Command::new("ip");
    let output = ip.args(arguments.split(' ')).stdout(Stdio::null()).stderr(Stdio::piped()).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("ip: {error}")),
    }
}

impl Machines {
    /// None, and why, where this machine lets nobody make namespaces.
    fn new(count: usize) -> Result<Machines, String> {
        let mut machines = Machines { names: Vec::new() };
        for number in 0..count {
            let name = format!("tg{}x{number}", std::process::id());
            ip(&format!("netns add {name}"))?;
            machines.names.push(name.clone());
            let hub = &machines.names[0];
            let mut steps = vec![format!("-n {name} link set lo up")];
            if number == 0 {
                steps.extend([
                    format!("-n {hub} link add hub0 type bridge"),
                    format!("-n {hub} addr add 10.79.0.1/24 dev hub0"),
                    format!("-n {hub} link set hub0 up"),
                ]);
            } else {
                steps.extend([
                    format!("-n {name} link add eth0 type veth peer name port{number} netns {hub}"),
                    format!("-n {hub} link set port{number} master hub0 up"),
                    format!("-n {name} addr add 10.79.0.{}/24 dev eth0", number + 1),
                    format!("-n {name} link set eth0 up"),
                ]);
            }
            for step in steps {
                ip(&step).unwrap_or_else(|why| panic!("a namespace was made, and is of no use: {why}"));
            }
        }
        Ok(machines)
    }

    /// Tidegate on one of them.
    fn tidegate(&self, number: usize) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[number], BINARY]);
        command.env("TIDEGATE_RUNS", concat!(env!("CARGO_TARGET_TMPDIR"), "/runs"));
        command
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

/// Ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn three_machines_do_what_one_does_and_one_that_is_killed_is_named() {
    let machines = match Machines::new(4) {
        Ok(machines) => machines,
        Err(why) => {
            // Past what the harness keeps to itself of a test that passes.
            let _ = writeln!(
                std::io::stderr(),
                "NOT TESTED: agents in network namespaces, which cannot be made here: {why}"
            );
            return;
        }
    };
    let folder = Folder::new();
    folder.write("1k", [b'x'; 1_024]);
    let mut server = machines.tidegate(0);
    server
        .args(["serve", "--listen", "10.79.0.1:0", "--control"])
        .arg(folder.0.join("control"))
        .arg(&folder.0);
    let mut server = Server(server.stderr(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(server.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    let url = lines.find_map(|line| line.strip_prefix("listening on ").map(str::to_owned)).unwrap();
    std::thread::spawn(move || lines.for_each(drop));

    let keys = folder.0.join("keys");
    let keys = keys.to_str().unwrap();
    let mut command = machines.tidegate(0);
    assert!(command.args(["bench", "agent-keys", keys, "--agents", "3"]).output_in_time().status.success());
    let agents = || -> Vec<Running> {
        let agent =
            |number: usize| {
                let address = format!("10.79.0.{}:7400", number + 1);
                let (key, name) = (format!("{keys}/agent-{number}"), format!("machine-{number}"));
                let mut agent = machines.tidegate(number);
                Running::of(agent.args([
                    "bench", "agent", "--listen", &address, "--keys", &key, "--name", &name, "--once",
                ]))
            };
        (1..=3).map(agent).collect()
    };
    let ours = format!("{keys}/controller");
    let run = |path: &str, over: &[&str]| {
        let mut run = machines.tidegate(0);
        Running::of(run.args(["bench", "run", path, "--no-keep", "--json"]).args(over))
    };
    let over = ["--agents", "10.79.0.2:7400,10.79.0.3:7400,10.79.0.4:7400", "--keys", &ours];

    // What is due is the same, user by user: so are operations, requests, answers and times that were recorded.
    let path = scenario(&folder, &url, "2s");
    let one = run(&path, &[]).end().json();
    let started = agents();
    let three = run(&path, &over).end();
    let json = three.json();
    let counts = |json: &Value| {
        let requests = &json["requests"];
        let of = [
            &json["operations"][0]["ended"],
            &json["response"]["count"],
            &requests["answered"],
            &requests["bytes"],
        ];
        (of.map(Value::clone), requests["statuses"].clone(), json["generator"]["lateness"]["count"].clone())
    };
    assert_eq!(counts(&one), counts(&json), "{}", three.stderr);
    assert_eq!(json["operations"][0]["ended"], 120);
    for (number, agent) in (1..).zip(started) {
        let agent = agent.end();
        assert!(
            agent.code == 0 && agent.stderr.contains("done, 40 operations"),
            "{number}: {}",
            agent.stderr
        );
    }

    let path = scenario(&folder, &url, "60s");
    let mut started = agents();
    let controller = run(&path, &over);
    controller.line("they start in");
    started[1].child.kill().unwrap();
    let killed = controller.end();
    assert_eq!(killed.code, 98, "{}", killed.stderr);
    let json = killed.json();
    assert_eq!(json["verdict"], "INVALID");
    let reasons = json["reasons"].to_string();
    assert!(reasons.contains("agent 2 (machine-2, 10.79.0.3:7400) was lost"), "{reasons}");
}
