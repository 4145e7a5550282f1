//! The server: its start and end, other commands, and what must come true of it in time.

use super::{Failure, Player};
use crate::client::{Address, Client, WAIT};
use crate::condition::{Condition, GetCheck, Output, TextCheck, member};
use crate::process::wait_for_exit;
use crate::response::{read, show};
use crate::step::{ServerAction, Source};
use crate::tls;
use crate::token::{substitute, substitute_text};
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long `expect` waits, and how often it looks.
const PATIENCE: Duration = Duration::from_secs(5);
const INTERVAL: Duration = Duration::from_millis(10);

impl Player<'_> {
    pub(super) fn config(&mut self, text: &[u8]) -> Result<(), String> {
        let text = substitute(text, &self.variables)?;
        let listens = |line: &&str| line.trim_start().starts_with("listen ");
        self.listeners = String::from_utf8_lossy(&text).lines().filter(listens).count();
        std::fs::write(&self.place.config, text)
            .map_err(|error| format!("{}: {error}", self.place.config.display()))
    }

    /// Starts the server unless it runs already, and waits until all its listeners are ready.
    pub(super) fn start(&mut self) -> Result<(), String> {
        if self.running.is_some() {
            return Ok(());
        }
        self.running = Some(self.launch.launch(&self.place, self.log.clone())?);
        let count = self.listeners.max(1);
        let deadline = Instant::now() + WAIT;
        while self.addresses().len() < count {
            if let Some(code) = self.exit_code()? {
                return Err(format!("the server ended with {code} instead of starting"));
            }
            if Instant::now() >= deadline {
                let have = self.addresses().len();
                return Err(format!("{have} of {count} lines `listening on ...` within {WAIT:?}"));
            }
            self.log.wait_for(INTERVAL, |lines| (addresses(lines).len() >= count).then_some(()));
        }
        for (number, address) in (1..).zip(self.addresses()) {
            if let Address::Tcp(address) = address {
                let name = if number == 1 { "PORT".to_owned() } else { format!("PORT{number}") };
                self.variables.insert(name, address.port().to_string().into_bytes());
            }
        }
        Ok(())
    }

    /// The server has ended; another one may be started in its folder.
    fn begin_anew(&mut self) -> Result<(), String> {
        if self.log.text().contains("panicked at") {
            return Err("the server has panicked".to_owned());
        }
        (self.running, self.log, self.may_end) = (None, Arc::default(), false);
        Ok(())
    }

    pub(super) fn addresses(&self) -> Vec<Address> {
        self.log.wait_for(Duration::ZERO, |lines| Some(addresses(lines))).unwrap_or_default()
    }

    pub(super) fn exit_code(&mut self) -> Result<Option<i32>, String> {
        match &mut self.running {
            Some(running) => running.exit_code(),
            None => Err("the server was not started".to_owned()),
        }
    }

    pub(super) fn server(&mut self, action: ServerAction) -> Result<(), String> {
        match action {
            ServerAction::Start => {
                if self.running.is_some() && self.exit_code()?.is_some() {
                    self.begin_anew()?;
                }
                self.start()
            }
            ServerAction::Signal(signal) => {
                self.start()?;
                self.may_end |= signal == crate::process::Signal::Terminate;
                self.running.as_mut().map_or(Ok(()), |running| running.signal(signal))
            }
            ServerAction::Exit(expected) => {
                self.may_end = true;
                let running = self.running.as_mut().ok_or("the server was not started")?;
                match wait_for_exit(running.as_mut())? {
                    Some(code) if code == expected => Ok(()),
                    Some(code) => Err(format!("the server ended with {code}")),
                    None => Err(format!("the server still runs after {WAIT:?}")),
                }
            }
        }
    }

    pub(super) fn run(&mut self, arguments: &[String], checks: &[(Source, Output)]) -> Result<(), Failure> {
        let fill = |argument: &String| substitute_text(argument, &self.variables);
        let arguments = arguments.iter().map(fill).collect::<Result<Vec<_>, _>>()?;
        let outcome = self.launch.command(&arguments, &self.place)?;
        for (source, check) in checks {
            let holds = match check {
                Output::Exit(code) => *code == outcome.code,
                Output::Stdout(check) => check.holds(outcome.stdout.as_bytes(), &self.variables)?,
                Output::Stderr(check) => check.holds(outcome.stderr.as_bytes(), &self.variables)?,
            };
            if !holds {
                let message = format!(
                    "exit code {}\nstandard output:\n{}\nstandard error:\n{}",
                    outcome.code, outcome.stdout, outcome.stderr
                );
                return Err(Failure { source: Some(source.clone()), message });
            }
        }
        Ok(())
    }

    pub(super) fn expect(&mut self, condition: &Condition) -> Result<(), String> {
        if !matches!(condition, Condition::File { .. }) {
            self.start()?;
        }
        // A certificate has the time that its test needs before.
        let patience = if matches!(condition, Condition::Expired { .. }) { WAIT } else { PATIENCE };
        let deadline = Instant::now() + patience;
        loop {
            let found = match self.holds(condition) {
                Ok(()) => return Ok(()),
                Err(found) => found,
            };
            let is_once = matches!(
                condition,
                Condition::Log(TextCheck::Lacks(_)) | Condition::File { check: TextCheck::Lacks(_), .. }
            );
            if is_once || Instant::now() >= deadline {
                return Err(found);
            }
            // A pause between two looks; the deadline is what counts.
            std::thread::park_timeout(INTERVAL);
        }
    }

    fn holds(&self, condition: &Condition) -> Result<(), String> {
        let variables = &self.variables;
        match condition {
            Condition::Stats { path, relation, value } => {
                let arguments = ["status", "--json", "--control", &self.place.control.display().to_string()]
                    .map(str::to_owned);
                let outcome = self.launch.command(&arguments, &self.place)?;
                let report: Value = serde_json::from_str(&outcome.stdout).map_err(|error| {
                    format!("`tidegate status`: {error}\n{}{}", outcome.stdout, outcome.stderr)
                })?;
                let found = member(&report, path).ok_or_else(|| format!("`{path}` is not in {report}"))?;
                if relation.holds(found, value) { Ok(()) } else { Err(format!("it is {found}")) }
            }
            Condition::Log(check) => match check.holds(self.log.text().as_bytes(), variables)? {
                true => Ok(()),
                false => Err("the log (below) is otherwise".to_owned()),
            },
            Condition::File { path, check } => {
                let path = self.folder.join(path)?;
                let text = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                if check.holds(&text, variables)? { Ok(()) } else { Err(format!("it holds {}", show(&text))) }
            }
            Condition::Expired { certificate } => match tls::has_expired(certificate, self.folder.path())? {
                true => Ok(()),
                false => Err("it is still good".to_owned()),
            },
            Condition::Get { target, host, check } => {
                let address = self.addresses().first().cloned().ok_or("there is no listener")?;
                let mut client = Client::connect(&address, None)?;
                let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
                client.send(&substitute(request.as_bytes(), variables)?)?;
                let response = read(&mut client, true, Instant::now() + WAIT)?;
                let holds = match check {
                    GetCheck::Status(status) => *status == response.status,
                    GetCheck::Body(check) => check.holds(&response.body, variables)?,
                };
                if holds { Ok(()) } else { Err(format!("received:\n{}", response.describe())) }
            }
        }
    }
}

/// The addresses in lines `listening on http://ADDRESS:PORT` and `listening on unix:PATH`.
pub(crate) fn addresses(lines: &[String]) -> Vec<Address> {
    let parse = |line: &String| {
        let (_, place) = line.split_once("listening on ")?;
        let place = place.trim();
        if let Some(path) = place.strip_prefix("unix:") {
            return Some(Address::Unix(path.into()));
        }
        let address =
            place.strip_prefix("http://").or_else(|| place.strip_prefix("https://"))?.trim_end_matches('/');
        address.parse().ok().map(Address::Tcp)
    };
    lines.iter().filter_map(parse).collect()
}
