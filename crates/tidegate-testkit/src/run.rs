//! Plays a transcript against a server: makes the files, starts it, is its clients, compares.
//!
//! Every wait is bounded: ten seconds for what a client sends or receives and for the server's start and end,
//! five for what `expect` waits for. A failure names the line of the transcript, what was expected and what
//! came instead, and shows what the server wrote.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::backend::{Backend, read_fastcgi, read_scgi};
use crate::client::{Address, Client, Filled, WAIT};
use crate::condition::{Condition, GetCheck, Output, TextCheck, member};
use crate::fixture::{Contents, Fixture, Folder, counting};
use crate::h2::{self, Http2};
use crate::pattern::contains;
use crate::process::{Launch, Log, Place, Running, wait_for_exit};
use crate::response::{Response, read, read_request, show};
use crate::sha256::hex_digest;
use crate::step::{
    Action, BodyCheck, Check, Ending, Expected, Http2Step, Message, ServerAction, Source, Step,
};
use crate::tls::{self, TlsOptions};
use crate::token::{Variables, substitute, substitute_text};
use crate::transcript::Transcript;

/// How long `expect` waits, and how often it looks.
const PATIENCE: Duration = Duration::from_secs(5);
const INTERVAL: Duration = Duration::from_millis(10);

impl Transcript {
    /// Plays the transcript against a server of its own, in a folder of its own. The error is the whole
    /// message for whoever has to find out why.
    pub fn run(&self, launch: &dyn Launch) -> Result<(), String> {
        let mut player = Player::new(launch)?;
        let played = self.steps.iter().try_for_each(|step| {
            player.play(step).map_err(|failure| {
                let source = failure.source.unwrap_or_else(|| step.source.clone());
                format!("line {}: {}\n{}", source.line, source.text, failure.message)
            })
        });
        played.and_then(|()| player.finish()).map_err(|message| {
            let said: String = player.log.text().lines().map(|line| format!("  {line}\n")).collect();
            let said = if said.is_empty() { "  (nothing)\n".to_owned() } else { said };
            format!("{}\n{message}\nthe server wrote:\n{said}", self.title())
        })
    }
}

struct Failure {
    /// The line at fault where it is not the step's first.
    source: Option<Source>,
    message: String,
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Failure { source: None, message }
    }
}

struct Player<'a> {
    launch: &'a dyn Launch,
    // Before the folder: the server ends first.
    running: Option<Box<dyn Running>>,
    may_end: bool,
    clients: BTreeMap<String, Participant>,
    current: Option<String>,
    backends: BTreeMap<String, Backend>,
    log: Arc<Log>,
    listeners: usize,
    variables: Variables,
    place: Place,
    folder: Folder,
}

struct Participant {
    listener: usize,
    receive_buffer: Option<usize>,
    tls: Option<(Arc<rustls::ClientConfig>, TlsOptions)>,
    connection: Option<Client>,
    /// How it speaks HTTP/2, if it does, and the present connection's state of that.
    h2: Option<h2::Options>,
    http2: Option<Http2>,
    is_new: bool,
    last: Option<Response>,
}

impl<'a> Player<'a> {
    fn new(launch: &'a dyn Launch) -> Result<Self, String> {
        let folder = Folder::create()?;
        let place = Place {
            folder: folder.path().to_owned(),
            config: folder.path().join("tidegate.kdl"),
            control: folder.path().join("control"),
        };
        let text = |path: &std::path::Path| path.display().to_string().into_bytes();
        let variables = Variables::from([
            ("DIR".to_owned(), text(&place.folder)),
            ("CONFIG".to_owned(), text(&place.config)),
            ("CONTROL".to_owned(), text(&place.control)),
        ]);
        Ok(Player {
            launch,
            running: None,
            may_end: false,
            clients: BTreeMap::new(),
            current: None,
            backends: BTreeMap::new(),
            log: Arc::default(),
            listeners: 0,
            variables,
            place,
            folder,
        })
    }

    fn play(&mut self, step: &Step) -> Result<(), Failure> {
        match &step.action {
            Action::Fixture(fixture) => self.fixture(fixture)?,
            Action::Config(text) => self.config(text)?,
            Action::Client { name, listener, receive_buffer, tls, h2 } => {
                self.start()?;
                let participant = self.clients.entry(name.clone()).or_insert(Participant {
                    listener: 1,
                    receive_buffer: None,
                    tls: None,
                    connection: None,
                    h2: None,
                    http2: None,
                    is_new: true,
                    last: None,
                });
                participant.listener = listener.unwrap_or(participant.listener);
                participant.receive_buffer = receive_buffer.or(participant.receive_buffer);
                participant.h2 = h2.or(participant.h2);
                if let Some(options) = tls {
                    let config = tls::config(options, &self.place.folder)?;
                    participant.tls = Some((config, options.clone()));
                }
                self.current = Some(name.clone());
                if participant.is_new {
                    self.connect(&[])?;
                }
            }
            Action::Certificate(made) => tls::make(made, &self.place.folder)?,
            Action::Tls(check) => {
                let folder = self.place.folder.clone();
                let connection = self.connection()?;
                let stream = connection.tls().ok_or("the client does not speak TLS".to_owned())?;
                tls::check(stream, check, &folder)?;
            }
            Action::Backend { name, is_unix } => self.backend(name, *is_unix)?,
            Action::Accept(name) => self.accept(name.as_ref())?,
            Action::AcceptNobody => {
                if self.current_backend()?.1.accept(Instant::now())?.is_some() {
                    return Err("the server has connected".to_owned().into());
                }
            }
            Action::FastCgi(records) => {
                let bytes = records.encode(|text| substitute(text, &self.variables))?;
                self.connection()?.send(&bytes)?;
            }
            Action::Http2(step) => self.http2(step)?,
            Action::Connect { early } => {
                let early = substitute(early, &self.variables)?;
                self.connect(&early)?;
            }
            Action::Send { bytes, times } => {
                let bytes = substitute(bytes, &self.variables)?.repeat(usize::try_from(*times).unwrap_or(0));
                self.connection()?.send(&bytes)?;
            }
            Action::SendCounting(length) => self.connection()?.send(&counting(*length))?,
            Action::Shutdown => self.connection()?.shutdown()?,
            Action::Close => drop(self.participant()?.connection.take()),
            Action::Reset => {
                let connection =
                    self.participant()?.connection.take().ok_or("the client is not connected".to_owned())?;
                connection.reset()?;
            }
            Action::Response(expected) => self.response(expected)?,
            Action::Raw(bytes) => self.raw(bytes)?,
            Action::Take(count) => self.take(*count)?,
            Action::Ending(ending) => self.ending(*ending)?,
            Action::Save { name, field } => {
                let last = self.participant()?.last.as_ref().ok_or("no response yet".to_owned())?;
                let value = last.values(field).next().map(str::to_owned);
                let value =
                    value.ok_or_else(|| format!("the last response has no {field}:\n{}", last.describe()))?;
                self.variables.insert(name.clone(), value.into_bytes());
            }
            Action::Server(action) => self.server(*action)?,
            Action::Run { arguments, checks } => self.run(arguments, checks)?,
            Action::Expect(condition) => self.expect(condition)?,
        }
        Ok(())
    }

    fn backend(&mut self, name: &str, is_unix: bool) -> Result<(), String> {
        if !self.backends.contains_key(name) {
            let socket = is_unix.then(|| self.place.folder.join(format!("{name}.sock")));
            let backend = Backend::listen(socket.as_deref())?;
            self.variables.insert(name.to_owned(), backend.address()?.into_bytes());
            self.backends.insert(name.to_owned(), backend);
        }
        self.current = Some(name.to_owned());
        Ok(())
    }

    fn current_backend(&self) -> Result<(&String, &Backend), String> {
        let found = self.current.as_ref().and_then(|name| self.backends.get_key_value(name));
        found.ok_or_else(|| "`accept` belongs below `backend`".to_owned())
    }

    fn accept(&mut self, name: Option<&String>) -> Result<(), String> {
        self.start()?;
        let (backend_name, backend) = self.current_backend()?;
        let connection = backend.accept(Instant::now() + WAIT)?;
        let connection = connection.ok_or_else(|| format!("nobody has connected within {WAIT:?}"))?;
        let name = name.unwrap_or(backend_name).clone();
        let participant = Participant {
            listener: 1,
            receive_buffer: None,
            tls: None,
            connection: Some(connection),
            h2: None,
            http2: None,
            is_new: false,
            last: None,
        };
        self.clients.insert(name.clone(), participant);
        self.current = Some(name);
        Ok(())
    }

    fn fixture(&self, fixture: &Fixture) -> Result<(), String> {
        let mut fixture = fixture.clone();
        match &mut fixture {
            Fixture::File { contents: Contents::Text(bytes), .. } => {
                *bytes = substitute(bytes, &self.variables)?
            }
            Fixture::Link { target, .. } => *target = substitute_text(target, &self.variables)?,
            _ => {}
        }
        self.folder.apply(&fixture)
    }

    fn config(&mut self, text: &[u8]) -> Result<(), String> {
        let text = substitute(text, &self.variables)?;
        let listens = |line: &&str| line.trim_start().starts_with("listen ");
        self.listeners = String::from_utf8_lossy(&text).lines().filter(listens).count();
        std::fs::write(&self.place.config, text)
            .map_err(|error| format!("{}: {error}", self.place.config.display()))
    }

    /// Starts the server unless it runs already, and waits until all its listeners are ready.
    fn start(&mut self) -> Result<(), String> {
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

    fn addresses(&self) -> Vec<Address> {
        self.log.wait_for(Duration::ZERO, |lines| Some(addresses(lines))).unwrap_or_default()
    }

    fn exit_code(&mut self) -> Result<Option<i32>, String> {
        match &mut self.running {
            Some(running) => running.exit_code(),
            None => Err("the server was not started".to_owned()),
        }
    }

    fn participant(&mut self) -> Result<&mut Participant, String> {
        let name = self.current.as_ref().ok_or("no client yet")?;
        self.clients.get_mut(name).ok_or_else(|| "no client yet".to_owned())
    }

    fn connection(&mut self) -> Result<&mut Client, String> {
        let connection = self.participant()?.connection.as_mut();
        connection.ok_or_else(|| "the client is not connected: `connect` first".to_owned())
    }

    fn connect(&mut self, early: &[u8]) -> Result<(), String> {
        let number = self.participant()?.listener;
        let address = self.log.wait_for(WAIT, |lines| addresses(lines).get(number - 1).cloned());
        let address = address.ok_or_else(|| format!("there is no listener {number}"))?;
        let participant = self.participant()?;
        participant.is_new = false;
        let client = Client::connect(&address, participant.receive_buffer)?;
        let mut connection = match &participant.tls {
            None => client,
            Some((config, options)) => match client.secure(config, options, early) {
                Ok(_) if options.must_fail => return Err("the TLS handshake succeeded".to_owned()),
                Err(_) if options.must_fail => return Ok(()),
                outcome => outcome?,
            },
        };
        participant.http2 =
            participant.h2.map(|options| Http2::begin(&mut connection, options)).transpose()?;
        participant.connection = Some(connection);
        Ok(())
    }

    fn response(&mut self, expected: &Expected) -> Result<(), Failure> {
        let until = Instant::now() + WAIT;
        let read = match &expected.message {
            Message::Response => match self.participant() {
                Ok(Participant { connection: Some(client), http2: Some(http2), .. }) => {
                    http2.response(client, until)
                }
                _ => read(self.connection()?, expected.has_body, until),
            },
            Message::Request(_) => read_request(self.connection()?, until),
            Message::FastCgi(_) => read_fastcgi(self.connection()?, until),
            Message::Scgi => read_scgi(self.connection()?, until),
        };
        let response = read.map_err(|problem| format!("expected a message, received:\n{problem}"))?;
        match &expected.message {
            Message::Request(line) if !line.filled(&self.variables)?.matches(response.reason.as_bytes()) => {
                return Err(format!("another request was received:\n{}", response.describe()).into());
            }
            Message::FastCgi(Some(flag)) if *flag != response.reason => {
                return Err(format!("the connection shall {}, not {flag}", response.reason).into());
            }
            _ => {}
        }
        let is_response = expected.message == Message::Response;
        let is_version = expected.version.as_ref().is_none_or(|version| *version == response.version);
        let is_reason =
            expected.reason.as_ref().is_none_or(|reason| reason.matches(response.reason.as_bytes()));
        if is_response && (!is_version || !is_reason || !expected.statuses.contains(&response.status)) {
            return Err(format!("another status was received:\n{}", response.describe()).into());
        }
        for (source, check) in &expected.checks {
            if let Err(message) = self.check(check, &response) {
                let message = format!("{message}\nreceived:\n{}", response.describe());
                return Err(Failure { source: Some(source.clone()), message });
            }
        }
        self.participant()?.last = Some(response);
        Ok(())
    }

    /// What a client of HTTP/2 does, or waits for.
    fn http2(&mut self, step: &Http2Step) -> Result<(), String> {
        let variables = self.variables.clone();
        let participant = self.participant()?;
        let client = participant.connection.as_mut().ok_or("the client is not connected: `connect` first")?;
        let http2 = participant.http2.as_mut().ok_or("the client speaks HTTP/1")?;
        let deadline = Instant::now() + WAIT;
        let is_same = |expected: &String, found: String| match *expected == found {
            true => Ok(()),
            false => Err(format!("the code was {found}")),
        };
        match step {
            Http2Step::Ask { lines, is_open } => {
                let mut bytes = Vec::new();
                for line in lines {
                    bytes.extend(http2.ask(&substitute_text(line, &variables)?, !is_open)?);
                }
                client.send(&bytes)
            }
            Http2Step::Content { bytes, is_end } => {
                let bytes = http2.content(&substitute(bytes, &variables)?, *is_end);
                client.send(&bytes)
            }
            Http2Step::Upload(length) => http2.upload(client, &counting(*length), deadline),
            Http2Step::Fill => http2.fill(client, deadline),
            Http2Step::Frame { kind, flags, stream, payload, times } => {
                let mut bytes = Vec::new();
                h2::push_frame(&mut bytes, *kind, *flags, *stream, payload);
                client.send(&bytes.repeat(usize::try_from(*times).unwrap_or(0)))
            }
            Http2Step::Reset(code) => is_same(code, http2.reset(client, deadline)?),
            Http2Step::Goodbye(code) => is_same(code, http2.goodbye(client, deadline)?),
        }
    }

    fn check(&self, check: &Check, response: &Response) -> Result<(), String> {
        match check {
            Check::Field { name, value } => {
                let value = value.filled(&self.variables)?;
                match response.values(name).any(|received| value.matches(received.as_bytes())) {
                    true => Ok(()),
                    false => Err(format!("no field line `{name}` with this value")),
                }
            }
            Check::NoField { name, value } => {
                let value = value.as_ref().map(|value| value.filled(&self.variables)).transpose()?;
                let is_excluded =
                    |received: &str| value.as_ref().is_none_or(|value| value.matches(received.as_bytes()));
                match response.values(name).any(is_excluded) {
                    true => Err(format!("field `{name}` is there")),
                    false => Ok(()),
                }
            }
            Check::Trailer { name, value } => {
                let mut trailers = response.trailers.iter();
                match trailers
                    .any(|(of, received)| of.eq_ignore_ascii_case(name) && value.matches(received.as_bytes()))
                {
                    true => Ok(()),
                    false => Err(format!("no such trailer field; trailers: {:?}", response.trailers)),
                }
            }
            Check::Body(check) => self.check_body(check, &response.body),
        }
    }

    fn check_body(&self, check: &BodyCheck, body: &[u8]) -> Result<(), String> {
        let fill = |text: &[u8]| substitute(text, &self.variables);
        let holds = match check {
            BodyCheck::Exact(expected) => fill(expected)? == body,
            BodyCheck::Starts(expected) => body.starts_with(&fill(expected)?),
            BodyCheck::Ends(expected) => body.ends_with(&fill(expected)?),
            BodyCheck::Contains(expected) => contains(body, &fill(expected)?),
            BodyCheck::Lacks(expected) => !contains(body, &fill(expected)?),
            BodyCheck::Length(length) => u64::try_from(body.len()) == Ok(*length),
            BodyCheck::Sha256(expected) => {
                let digest = hex_digest(body);
                if digest != *expected {
                    return Err(format!("the digest is {digest}"));
                }
                true
            }
            BodyCheck::File { path, range } => {
                let path = self.folder.join(path)?;
                let file = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                let expected = match range {
                    Some((start, end)) => file.get(*start..*end).ok_or("the file has no such range")?,
                    None => &file,
                };
                if expected != body {
                    let same = expected.iter().zip(body).take_while(|(a, b)| a == b).count();
                    let lengths = (expected.len(), body.len());
                    return Err(format!(
                        "expected {} bytes, received {}, the first {same} agree",
                        lengths.0, lengths.1
                    ));
                }
                true
            }
        };
        if holds { Ok(()) } else { Err(format!("the body of {} bytes is another", body.len())) }
    }

    fn take(&mut self, count: u64) -> Result<(), String> {
        let (mut left, until) = (usize::try_from(count).unwrap_or(usize::MAX), Instant::now() + WAIT);
        let client = self.connection()?;
        loop {
            let taken = left.min(client.received.len());
            client.received.drain(..taken);
            left -= taken;
            if left == 0 {
                return Ok(());
            }
            let filled = client.fill(until)?;
            if filled != Filled::More {
                return Err(format!("{filled:?} {left} bytes before the end"));
            }
        }
    }

    fn raw(&mut self, bytes: &[u8]) -> Result<(), String> {
        let expected = substitute(bytes, &self.variables)?;
        let client = self.connection()?;
        let deadline = Instant::now() + WAIT;
        while client.received.len() < expected.len() {
            let filled = client.fill(deadline)?;
            if filled != Filled::More {
                return Err(format!("{filled:?} after {}", show(&client.received)));
            }
        }
        if !client.received.starts_with(&expected) {
            return Err(format!("received {}", show(&client.received)));
        }
        client.received.drain(..expected.len());
        Ok(())
    }

    fn ending(&mut self, ending: Ending) -> Result<(), String> {
        let client = self.connection()?;
        if ending == Ending::Quiet {
            let filled = client.fill_now()?;
            return match (client.received.is_empty(), filled) {
                (true, Filled::TimedOut) => Ok(()),
                _ => Err(format!("expected nothing, received {} ({filled:?})", show(&client.received))),
            };
        }
        let deadline = Instant::now() + WAIT;
        let ended = loop {
            if ending == Ending::Drained {
                client.received.clear();
            } else if !client.received.is_empty() {
                return Err(format!(
                    "expected the end of the connection, received {}",
                    show(&client.received)
                ));
            }
            match client.fill(deadline)? {
                Filled::More => {}
                ended => break ended,
            }
        };
        match (ending, ended) {
            (Ending::Eof, Filled::Eof) | (Ending::Reset, Filled::Reset) => Ok(()),
            (Ending::Closed | Ending::Drained, Filled::Eof | Filled::Reset) => Ok(()),
            (_, Filled::TimedOut) => Err(format!("the connection is still open after {WAIT:?}")),
            _ => Err(format!("the connection ended with {ended:?}")),
        }
    }

    fn server(&mut self, action: ServerAction) -> Result<(), String> {
        match action {
            ServerAction::Start => self.start(),
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

    fn run(&mut self, arguments: &[String], checks: &[(Source, Output)]) -> Result<(), Failure> {
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

    fn expect(&mut self, condition: &Condition) -> Result<(), String> {
        if !matches!(condition, Condition::File { .. }) {
            self.start()?;
        }
        let deadline = Instant::now() + PATIENCE;
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

    /// What must hold at the end of every transcript.
    fn finish(&mut self) -> Result<(), String> {
        for (name, participant) in &self.clients {
            let left =
                participant.connection.as_ref().map(|client| client.received.as_slice()).unwrap_or_default();
            if let Some(problem) = participant.http2.as_ref().and_then(Http2::unexpected) {
                return Err(format!("at the end: client {name}: {problem}"));
            }
            // What is left of HTTP/2 may be a window that was given back.
            if !left.is_empty() && participant.http2.is_none() {
                return Err(format!(
                    "at the end: client {name} received more than was expected: {}",
                    show(left)
                ));
            }
        }
        if self.running.is_some()
            && !self.may_end
            && let Some(code) = self.exit_code()?
        {
            return Err(format!("at the end: the server had ended by itself with {code}"));
        }
        if self.log.text().contains("panicked at") {
            return Err("at the end: the server has panicked".to_owned());
        }
        Ok(())
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
