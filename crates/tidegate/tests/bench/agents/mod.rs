//! A scenario over several agents: three processes on loopback addresses, against Tidegate.

mod links;
mod namespaces;
mod ssh;

use super::peers::{Folder, Outcome, Served, bench, command};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// A process whose standard error is read line by line.
pub(super) struct Running {
    child: Child,
    lines: Receiver<String>,
    stdout: Option<std::thread::JoinHandle<String>>,
}

impl Running {
    pub(super) fn new(arguments: &[&str]) -> Running {
        Running::of(command().args(arguments))
    }

    fn of(command: &mut Command) -> Running {
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || {
            stderr.lines().map_while(Result::ok).for_each(|line| drop(sender.send(line)));
        });
        let mut stdout = child.stdout.take().unwrap();
        let stdout = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stdout.read_to_string(&mut text);
            text
        });
        Running { child, lines, stdout: Some(stdout) }
    }

    /// The first line of standard error with this in it.
    fn line(&self, part: &str) -> String {
        let mut seen = Vec::new();
        loop {
            match self.lines.recv_timeout(Duration::from_secs(60)) {
                Ok(line) if line.contains(part) => return line,
                Ok(line) => seen.push(line),
                Err(_) => panic!("waited in vain for {part:?}: {seen:?}"),
            }
        }
    }

    pub fn end(mut self) -> Outcome {
        let code = self.child.wait().unwrap().code().unwrap_or(-1);
        let stdout = self.stdout.take().unwrap().join().unwrap();
        let stderr: Vec<String> = self.lines.iter().collect();
        Outcome { code, stdout, stderr: stderr.join("\n") }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A controller that waits for so many, and where.
pub(super) fn controller(scenario: &str, agents: usize, more: &[&str]) -> (Running, String) {
    let agents = agents.to_string();
    let mut arguments =
        vec!["run", scenario, "--listen-agents", "127.0.0.1:0", "--agents", &agents, "--no-keep", "--json"];
    arguments.extend(more);
    let running = Running::new(&arguments);
    let address = running.line("waiting for").rsplit(' ').next().unwrap().to_owned();
    (running, address)
}

fn scenario(folder: &Folder, url: &str, steady: &str) -> String {
    let text = format!(
        "target \"{url}\"\nusers 12 {{ steady \"{steady}\" }}\ncycle fixed \"200ms\"\nmix {{ a 1 }}\nop a {{ get \"/1k\" }}\n"
    );
    folder.write("agents.kdl", text)
}

/// Operations that ended, and those of each agent.
fn operations(json: &Value) -> u64 {
    json["operations"].as_array().unwrap().iter().map(|operation| operation["ended"].as_u64().unwrap()).sum()
}

#[test]
fn three_agents_with_keys_do_what_one_does() {
    let (served, folder) = (Served::new(), Folder::new());
    let scenario = scenario(&folder, &served.url, "2s");
    let keys = folder.0.join("keys");
    let keys = keys.to_str().unwrap();
    let made = bench(&["agent-keys", keys, "--agents", "3"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let again = bench(&["agent-keys", keys, "--agents", "3"]);
    assert!(again.code == 1 && again.stderr.contains("keys is there already: "), "{}", again.stderr);
    let ours = format!("{keys}/controller");
    let (controller, address) = controller(&scenario, 3, &["--keys", &ours]);

    // Who has no key, or the keys of another authority, is refused and does not count.
    let plain = bench(&["agent", "--join", &address, "--insecure-loopback"]);
    assert_eq!(plain.code, 1, "{}", plain.stderr);
    let foreign = folder.0.join("foreign");
    assert_eq!(bench(&["agent-keys", foreign.to_str().unwrap(), "--agents", "1"]).code, 0);
    let foreign = foreign.join("agent-1");
    let refused = bench(&["agent", "--join", &address, "--keys", foreign.to_str().unwrap()]);
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    assert!(refused.stderr.contains("certificate"), "{}", refused.stderr);

    let agents: Vec<Running> = (1..=3)
        .map(|number| {
            let key = format!("{keys}/agent-{number}");
            let index = (number - 1).to_string();
            Running::new(&["agent", "--join", &address, "--keys", &key, "--index", &index, "--threads", "2"])
        })
        .collect();
    let done = controller.end();
    let json = done.json();
    // 12 users, and a start each 200 ms over 2 s.
    assert_eq!(operations(&json), 120, "{}\n{}", done.stdout, done.stderr);
    assert_eq!(json["agents"].as_array().unwrap().len(), 3, "{}", done.stdout);
    assert_eq!(json["generator"]["threads"], 6, "{}", done.stdout);
    for agent in agents {
        let agent = agent.end();
        assert_eq!(agent.code, 0, "{}", agent.stderr);
        assert!(agent.stderr.contains("done, 40 operations"), "{}", agent.stderr);
    }
}

#[test]
fn an_agent_that_is_killed_makes_the_run_invalid() {
    let (served, folder) = (Served::new(), Folder::new());
    let scenario = scenario(&folder, &served.url, "60s");
    let mut agents: Vec<Running> = Vec::new();
    let mut addresses = Vec::new();
    for number in 2..=4 {
        // Agents of their own addresses; what is free there, a listener says that is closed again.
        let place = TcpListener::bind(format!("127.0.0.{number}:0")).unwrap();
        let address = place.local_addr().unwrap().to_string();
        drop(place);
        let name = format!("east-{number}");
        agents.push(Running::new(&["agent", "--listen", &address, "--insecure-loopback", "--name", &name]));
        addresses.push(address);
    }
    let list = addresses.join(",");
    let run = ["run", &scenario, "--agents", &list, "--insecure-loopback", "--no-keep", "--json"];
    let controller = Running::new(&run);
    controller.line("they start in");
    let busy = bench(&run);
    assert_eq!(busy.code, 1, "{}", busy.stdout);
    assert!(busy.stderr.contains("it has another controller"), "{}", busy.stderr);
    agents[1].child.kill().unwrap();
    let done = controller.end();
    assert_eq!(done.code, 98, "{}\n{}", done.stdout, done.stderr);
    let json = done.json();
    assert_eq!(json["verdict"], "INVALID");
    let reasons = json["reasons"].to_string();
    assert!(reasons.contains("(east-3, 127.0.0.3:") && reasons.contains("was lost"), "{reasons}");
    assert!(reasons.contains("silent for 10.0 s, its link was lost and not made again"), "{reasons}");
    // The others have ended as well, and serve the next.
    agents[0].line("done,");
    agents[2].line("done,");
}

#[test]
fn agents_end_with_their_controller_and_refuse_another_scenario() {
    let (served, folder) = (Served::new(), Folder::new());
    let path = scenario(&folder, &served.url, "60s");
    let (mut gone, address) = controller(&path, 1, &["--insecure-loopback"]);
    let agent = Running::new(&["agent", "--join", &address, "--insecure-loopback"]);
    agent.line("the load starts in");
    gone.child.kill().unwrap();
    let agent = agent.end();
    assert_eq!(agent.code, 1, "{}", agent.stderr);
    for part in ["the load goes on", "the controller is gone: it has been silent for 10 s"] {
        assert!(agent.stderr.contains(part), "{part}: {}", agent.stderr);
    }

    // A file that is another one at the agent is named.
    let (names, script) = ("name\nann\n", "export const id = () => 1;");
    folder.write("names.csv", names);
    folder.write("who.js", script);
    let text = format!(
        "target \"{}\"\nusers 1 {{ steady \"1s\" }}\nthink fixed \"1s\"\ndata who file=\"names.csv\"\nscript \"who.js\"\n\
         flow {{ call id id; get \"/{{who.name}}/{{id}}\" }}\n",
        served.url
    );
    let path = folder.write("data.kdl", text);
    let elsewhere = Folder::new();
    for (other_names, other_script, part) in [
        ("name\nbob\n", script, "the file of `data who` is another one there"),
        (names, "export const id = (", "who.js:1:"),
        (names, "export const no = 1;", "who.js exports no `id`"),
    ] {
        elsewhere.write("names.csv", other_names);
        elsewhere.write("who.js", other_script);
        let (controller, address) = controller(&path, 1, &["--insecure-loopback"]);
        let at = elsewhere.0.to_str().unwrap();
        let agent = bench(&["agent", "--join", &address, "--insecure-loopback", "--folder", at]);
        let done = controller.end();
        assert_eq!((agent.code, done.code), (1, 1), "{}\n{}", agent.stderr, done.stderr);
        assert!(done.stderr.contains(part), "{part}: {}", done.stderr);
    }
}

#[test]
fn what_goes_ill_together_is_said() {
    let folder = Folder::new();
    let path = scenario(&folder, "http://127.0.0.1:1", "1s");
    let table: [(&[&str], &str); 8] = [
        (&["run", &path, "--agents", "ssh:-oProxyCommand=x"], "`ssh:user@host:port`"),
        (
            &["run", &path, "--agents", "127.0.0.1:1,127.0.0.1:1", "--insecure-loopback"],
            "--agents has 127.0.0.1:1 twice",
        ),
        (&["agent", "--stdio", "--listen", "127.0.0.1:0"], "cannot be used with"),
        (&["run", &path, "--agents", "127.0.0.1:1"], "bench agent-keys"),
        (&["run", &path, "--agents", "3", "--insecure-loopback"], "a number goes with --listen-agents"),
        (
            &["run", &path, "--listen-agents", "127.0.0.1:0", "--agents", "a:1", "--insecure-loopback"],
            "--agents is a number",
        ),
        (&["run", &path, "--agents", "127.0.0.1:1", "--threads", "2", "--insecure-loopback"], "bench agent"),
        (&["agent", "--listen", "0.0.0.0:0", "--insecure-loopback"], "a loopback address"),
    ];
    for (arguments, part) in table {
        let outcome = bench(arguments);
        assert_eq!(outcome.code, 2, "{arguments:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(part), "{arguments:?}: {}", outcome.stderr);
    }
    let missing = Path::new("/nonexistent");
    let outcome = bench(&["agent", "--listen", "127.0.0.1:0", "--keys", missing.to_str().unwrap()]);
    assert_eq!(outcome.code, 1);
    assert!(outcome.stderr.contains("cannot read /nonexistent/cert.pem"), "{}", outcome.stderr);
}

/// A script is read by each agent and has to be the controller's; systems are the controller's alone.
#[test]
fn agents_have_the_script_and_leave_systems_alone() {
    let (served, folder) = (Served::new(), Folder::new());
    for agent in ["same", "other"] {
        std::fs::create_dir_all(folder.0.join(agent)).unwrap();
    }
    let script = "export const query = ({ user }) => `u${user}`;";
    folder.write("s.js", script);
    folder.write("same/s.js", script);
    folder.write("other/s.js", "export const query = () => 1;");
    folder.write("x.template", "new");
    let here = folder.0.display();
    let text = format!(
        "target \"{}\"\nusers 4 {{ steady \"1s\" }}\ncycle fixed \"200ms\"\nscript \"s.js\"\n\
         flow {{ call query q; get \"/1k?{{q}}\" }}\n\
         system web {{ configure \"{here}/x.conf\" from=\"x.template\"; reset \"cat {here}/x.conf >> {here}/seen\" }}\n",
        served.url
    );
    let scenario = folder.write("agents.kdl", text);
    for (agent, is_right) in [("other", false), ("same", true)] {
        let (controller, address) = controller(&scenario, 1, &["--insecure-loopback"]);
        let below = folder.0.join(agent).display().to_string();
        let agent =
            Running::new(&["agent", "--join", &address, "--insecure-loopback", "--folder", &below]).end();
        let done = controller.end();
        if is_right {
            assert_eq!(operations(&done.json()), 20, "{}{}", done.stdout, done.stderr);
        } else {
            assert_eq!((agent.code, done.code), (1, 1), "{}", done.stderr);
            let which = "its scenario is not that of the controller: the script s.js is another one there";
            assert!(done.stderr.contains(which), "{}", done.stderr);
        }
    }
    assert_eq!(std::fs::read_to_string(folder.0.join("seen")).unwrap(), "newnew");
    assert!(!folder.0.join("x.conf").exists());
}

/// Its thread would burn a processor beside the next run: such an agent tells what it has, and ends.
#[test]
fn an_agent_whose_script_cannot_be_ended_says_so_and_ends() {
    let (served, folder) = (Served::new(), Folder::new());
    let script = "export const hang = ({ user }) => { const all = []; if (user === 1) all.length = 4294967295; all.reverse(); };";
    folder.write("s.js", script);
    let text = format!(
        "target \"{}\"\nusers 2 {{ steady \"1500ms\" }}\ncycle fixed \"200ms\"\nscript \"s.js\"\n\
         flow {{ call hang; get \"/1k\" }}\n",
        served.url
    );
    let scenario = folder.write("agents.kdl", text);
    let place = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = place.local_addr().unwrap().to_string();
    drop(place);
    let below = folder.0.display().to_string();
    let agent = ["agent", "--listen", &address, "--insecure-loopback", "--threads", "2", "--folder", &below];
    let agent = Running::new(&agent);
    let run = [
        "run",
        &scenario,
        "--agents",
        &address,
        "--insecure-loopback",
        "--no-keep",
        "--json",
        "--grace",
        "1s",
    ];
    let done = bench(&run);
    assert_eq!(done.code, 98, "{}", done.stderr);
    for part in ["a worker of agent 1 ", "a call of `hang` (s.js:1:", "cannot be ended"] {
        assert!(done.stderr.contains(part), "{part}: {}", done.stderr);
    }
    assert!(operations(&done.json()) > 2, "{}", done.stdout);
    let agent = agent.end();
    assert_eq!(agent.code, 1, "{}", agent.stderr);
    assert!(
        agent.stderr.contains("cannot be ended, and would go on at the cost of the next run"),
        "{}",
        agent.stderr
    );
}
