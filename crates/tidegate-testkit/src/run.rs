//! Plays a transcript against a server: makes the files, starts it, is its clients, compares.
//!
//! Every wait is bounded: ten seconds for what a client sends or receives and for the server's start and end,
//! five for what `expect` waits for. A failure names the line of the transcript, what was expected and what
//! came instead, and shows what the server wrote.

mod receiving;
mod server;

use crate::backend::Backend;
use crate::client::{Client, WAIT};
use crate::dns::NameServer;
use crate::fixture::{Contents, Fixture, Folder, counting};
use crate::h2::Http2;
use crate::process::{Launch, Log, Place, Running};
use crate::response::{Response, show};
use crate::step::{Action, Source, Step};
use crate::tls::TlsOptions;
use crate::token::{Variables, substitute, substitute_text};
use crate::transcript::Transcript;
use crate::{h2, tls};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

pub(crate) use server::addresses;

impl Transcript {
    /// Plays the transcript against a server of its own, in a folder of its own.
    ///
    /// # Errors
    /// No folder could be made, a step failed, or at the end more had come than was expected or the server
    /// had failed. All but the first tell everything that helps to find out why.
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
    name_servers: BTreeMap<String, NameServer>,
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
            name_servers: BTreeMap::new(),
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
            Action::NameServer { name, records } => self.name_server(name, records)?,
            Action::Asked { name, times } => {
                let asked = self.name_servers.get(name).map(NameServer::asked);
                if asked != Some(*times) {
                    return Err(format!("`{name}` was asked {asked:?} times").into());
                }
            }
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
            Action::ConnectInVain => {
                if self.connect(&[]).is_ok() {
                    return Err("the connection was made".to_owned().into());
                }
            }
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

    fn name_server(&mut self, name: &str, records: &[u8]) -> Result<(), String> {
        if !self.name_servers.contains_key(name) {
            let server = NameServer::start()?;
            self.variables.insert(name.to_owned(), server.address().to_string().into_bytes());
            self.name_servers.insert(name.to_owned(), server);
        }
        let records = substitute(records, &self.variables)?;
        let text = String::from_utf8(records).map_err(|_| "records are text".to_owned())?;
        self.name_servers.get(name).map_or(Ok(()), |server| server.say(&text))
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
