//! A connection to a server of a directory, for a thread that may wait.
//!
//! Everything on it has to be over by a deadline, whatever the server does: connecting, TLS, each request. How much an
//! answer may hold is bounded, too. An answer that belongs to no question ends the connection.

use super::message::{self, Answer, Entry, Kind, Malformed, Search};
use rasn_ldap::ResultCode;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};
use thiserror::Error;
use tidegate_config::settings::{DirectorySecurity, DirectoryServer};
use tidegate_io::socket::Received;
use tidegate_tls::{ClientSession, ClientSessionError, Connector};

/// The most that all answers to a question may hold, bytes.
const MOST: usize = 8 << 20;

/// Why a server has not answered.
#[derive(Debug, Error)]
pub enum Fault {
    /// Its name is not known.
    #[error("its name cannot be looked up: {0}")]
    Name(io::Error),
    /// There is no connection.
    #[error("it cannot be reached: {0}")]
    Unreachable(io::Error),
    /// TLS is not possible.
    #[error(transparent)]
    Tls(#[from] ClientSessionError),
    /// TLS cannot be spoken by these settings.
    #[error("TLS cannot be spoken with it: {0}")]
    Terms(String),
    /// It takes too long.
    #[error("it does not answer in time")]
    Silent,
    /// It has closed the connection.
    #[error("it has closed the connection")]
    Closed,
    /// The connection has failed.
    #[error("the connection has failed: {0}")]
    Io(io::Error),
    /// What it says cannot be read.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// What it says belongs to nothing that was asked.
    #[error("it answers what was not asked")]
    Unasked,
    /// It says more than anybody wants to know.
    #[error("its answer is longer than it may be")]
    TooMuch,
    /// It will not.
    #[error("it has answered {code:?} to {what}{}", said(.text))]
    Refused {
        /// What was asked.
        what: &'static str,
        /// Its answer.
        code: ResultCode,
        /// What it says of it.
        text: String,
    },
}

/// What a directory says, short and on one line.
fn said(text: &str) -> String {
    let text: String = text.chars().take(200).collect();
    if text.is_empty() { String::new() } else { format!(" ({})", text.escape_debug()) }
}

impl Fault {
    /// Whether the server should be left alone for a while: it is not this one question that it fails.
    pub fn is_of_server(&self) -> bool {
        match self {
            Fault::Refused { what, code, .. } => {
                *what != SEARCH && *what != LOGIN
                    || matches!(
                        code,
                        ResultCode::Busy | ResultCode::Unavailable | ResultCode::Referral | ResultCode::Other
                    )
            }
            // Of one user there is too much.
            Fault::TooMuch => false,
            _ => true,
        }
    }

    /// Whether the connection can still be used: what was asked has been answered to the end.
    pub fn leaves_connection(&self) -> bool {
        matches!(self, Fault::Refused { .. }) && !self.is_of_server()
    }

    /// Whether a connection that was kept may have been closed meanwhile.
    pub fn may_be_age(&self) -> bool {
        matches!(self, Fault::Closed | Fault::Io(_))
    }
}

const SEARCH: &str = "a search";
const LOGIN: &str = "the password of a user";

/// A connection to a directory.
pub struct Connection {
    socket: TcpStream,
    tls: Option<Box<ClientSession>>,
    input: Vec<u8>,
    last_id: u32,
    deadline: Instant,
}

impl Connection {
    /// Connects. With TLS nothing is said before that is established.
    ///
    /// # Errors
    /// That is not possible, or not in time.
    pub fn open(
        server: &DirectoryServer,
        connector: Option<&Arc<Connector>>,
        deadline: Instant,
    ) -> Result<Connection, Fault> {
        let socket = connect((server.host.as_str(), server.port), deadline)?;
        let _ = socket.set_nodelay(true); // slower without, no worse
        let mut connection = Connection { socket, tls: None, input: Vec::new(), last_id: 0, deadline };
        let tls = match &server.security {
            DirectorySecurity::None => return Ok(connection),
            DirectorySecurity::Tls(tls) => tls,
            DirectorySecurity::StartTls(tls) => {
                connection.ask_for_tls()?;
                tls
            }
        };
        let connector = connector.ok_or_else(|| Fault::Terms("there are no terms for it".into()))?;
        let name = Connector::name(&tls.name).map_err(|error| Fault::Terms(error.to_string()))?;
        connection.begin_tls(ClientSession::new(connector, name)?)?;
        Ok(connection)
    }

    /// By when what is asked from now on has to be answered.
    pub fn set_deadline(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }

    fn ask_for_tls(&mut self) -> Result<(), Fault> {
        let id = self.next_id();
        self.send(&message::start_tls(id)?)?;
        match self.answer(id, &mut 0)?.kind {
            Kind::Extended(ResultCode::Success, _) if self.input.is_empty() => Ok(()),
            // Whoever stands between could have put it there.
            Kind::Extended(ResultCode::Success, _) => Err(Fault::Unasked),
            Kind::Extended(code, text) => Err(Fault::Refused { what: "StartTLS", code, text }),
            _ => Err(Fault::Unasked),
        }
    }

    fn begin_tls(&mut self, mut session: ClientSession) -> Result<(), Fault> {
        session.advance(|bytes| write(&self.socket, bytes, self.deadline)).map_err(of_tls)?;
        while session.is_handshaking() {
            let received = session.receive(&mut [], |buffer| read(&self.socket, buffer, self.deadline));
            if received.map_err(of_tls)? == Received::End {
                return Err(Fault::Closed);
            }
            session.advance(|bytes| write(&self.socket, bytes, self.deadline)).map_err(of_tls)?;
        }
        self.tls = Some(Box::new(session));
        Ok(())
    }

    /// Asks whether this is the password of an entry. `Ok(false)`: it is not, or the entry may not log in.
    ///
    /// # Errors
    /// That was not answered.
    pub fn is_password(&mut self, dn: &str, password: &[u8]) -> Result<bool, Fault> {
        // Without either a directory would let in anybody as nobody (RFC 4513 sections 5.1.1 and 5.1.2).
        if dn.is_empty() || password.is_empty() {
            return Ok(false);
        }
        let (code, text) = self.bind(dn, password)?;
        match code {
            ResultCode::Success => Ok(true),
            ResultCode::InvalidCredentials
            | ResultCode::InappropriateAuthentication
            | ResultCode::InsufficientAccessRights
            | ResultCode::UnwillingToPerform
            | ResultCode::ConstraintViolation
            | ResultCode::NoSuchObject => Ok(false),
            code => Err(Fault::Refused { what: LOGIN, code, text }),
        }
    }

    /// Becomes who may search.
    ///
    /// # Errors
    /// It may not, or that was not answered.
    pub fn become_searcher(&mut self, dn: &str, password: &str) -> Result<(), Fault> {
        if password.is_empty() {
            return Err(Fault::Terms("there is no password to search with".into()));
        }
        match self.bind(dn, password.as_bytes())? {
            (ResultCode::Success, _) => Ok(()),
            (code, text) => {
                Err(Fault::Refused { what: "the password that searches are made with", code, text })
            }
        }
    }

    fn bind(&mut self, dn: &str, password: &[u8]) -> Result<(ResultCode, String), Fault> {
        let id = self.next_id();
        self.send(&message::bind(id, dn, password)?)?;
        match self.answer(id, &mut 0)?.kind {
            Kind::Bound(code, text) => Ok((code, text)),
            _ => Err(Fault::Unasked),
        }
    }

    /// Searches. `None`: what was to be searched below is not there.
    ///
    /// # Errors
    /// That was not answered, or not to the end, or there are more entries than `search.most`.
    pub fn search(&mut self, search: &Search<'_>) -> Result<Option<Vec<Entry>>, Fault> {
        let id = self.next_id();
        self.send(&message::search(id, search)?)?;
        let (mut entries, mut read) = (Vec::new(), 0);
        let most = usize::try_from(search.most).unwrap_or(usize::MAX);
        loop {
            match self.answer(id, &mut read)?.kind {
                Kind::Entry(_) if entries.len() >= most => return Err(Fault::TooMuch),
                Kind::Entry(entry) => entries.push(entry),
                Kind::Elsewhere => {}
                Kind::Searched(ResultCode::Success, _) => return Ok(Some(entries)),
                Kind::Searched(ResultCode::NoSuchObject, _) => return Ok(None),
                // There are more, and those that came are all that was asked for.
                Kind::Searched(ResultCode::SizeLimitExceeded, _) if entries.len() >= most => {
                    return Ok(Some(entries));
                }
                Kind::Searched(code, text) => return Err(Fault::Refused { what: SEARCH, code, text }),
                Kind::Bound(..) | Kind::Extended(..) => return Err(Fault::Unasked),
            }
        }
    }

    fn next_id(&mut self) -> u32 {
        self.last_id = self.last_id % 0x7fff_ffff + 1;
        self.last_id
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let Some(session) = &mut self.tls else {
            return self.socket_write(bytes);
        };
        let deadline = self.deadline;
        let socket = &self.socket;
        let taken = session.send(bytes, |bytes| write(socket, bytes, deadline)).map_err(of_io)?;
        let is_gone = session.flush(|bytes| write(socket, bytes, deadline)).map_err(of_io)?;
        if taken == bytes.len() && is_gone { Ok(()) } else { Err(Fault::Closed) }
    }

    fn socket_write(&self, mut bytes: &[u8]) -> Result<(), Fault> {
        while !bytes.is_empty() {
            let count = write(&self.socket, bytes, self.deadline).map_err(of_io)?;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    /// The next answer, which has to be one to this request. `read` counts the bytes of all answers to it.
    fn answer(&mut self, id: u32, read: &mut usize) -> Result<Answer, Fault> {
        loop {
            if let Some(length) = message::length(&self.input)? {
                let answer = message::decode(&self.input[..length]);
                self.input.drain(..length);
                *read = read.saturating_add(length);
                return match answer? {
                    // It takes its leave (RFC 4511 section 4.4.1).
                    Answer { id: 0, kind: Kind::Extended(..) } => Err(Fault::Closed),
                    _ if *read > MOST => Err(Fault::TooMuch),
                    answer if answer.id == id => Ok(answer),
                    _ => Err(Fault::Unasked),
                };
            }
            self.receive()?;
        }
    }

    fn receive(&mut self) -> Result<(), Fault> {
        let mut buffer = [0; 16 << 10];
        let (socket, deadline) = (&self.socket, self.deadline);
        let received = match &mut self.tls {
            None => read(socket, &mut buffer, deadline).map_err(of_io)?,
            Some(session) => {
                let received = session.receive(&mut buffer, |buffer| read(socket, buffer, deadline));
                let received = received.map_err(of_tls)?;
                session.flush(|bytes| write(socket, bytes, deadline)).map_err(of_io)?;
                received
            }
        };
        match received {
            Received::Bytes { count, .. } => {
                self.input.extend_from_slice(&buffer[..count]);
                Ok(())
            }
            Received::End => Err(Fault::Closed),
            Received::WouldBlock => Err(Fault::Silent),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Nobody waits for it: what the socket does not take at once is not sent.
        self.deadline = Instant::now();
        let id = self.next_id();
        if let Ok(leave) = message::unbind(id)
            && self.socket.set_nonblocking(true).is_ok()
        {
            let _ = match &mut self.tls {
                None => (&self.socket).write(&leave).map(drop),
                Some(session) => session.send(&leave, |bytes| (&self.socket).write(bytes)).map(drop),
            };
        }
    }
}

/// What is left of the time.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn connect(name: (&str, u16), deadline: Instant) -> Result<TcpStream, Fault> {
    let addresses: Vec<SocketAddr> = name.to_socket_addrs().map_err(Fault::Name)?.collect();
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    let count = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
    for (at, address) in (0..count).zip(&addresses) {
        // An address that does not answer leaves the others their share of the time.
        let left = left(deadline).map_err(|_| Fault::Silent)? / (count - at);
        match TcpStream::connect_timeout(address, left.max(Duration::from_millis(1))) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    match last.kind() {
        io::ErrorKind::TimedOut => Err(Fault::Silent),
        _ => Err(Fault::Unreachable(last)),
    }
}

fn read(mut socket: &TcpStream, buffer: &mut [u8], deadline: Instant) -> io::Result<Received> {
    loop {
        socket.set_read_timeout(Some(left(deadline)?))?;
        match socket.read(buffer) {
            Ok(0) => return Ok(Received::End),
            Ok(count) => return Ok(Received::Bytes { count, drained: true }),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn write(mut socket: &TcpStream, bytes: &[u8], deadline: Instant) -> io::Result<usize> {
    loop {
        socket.set_write_timeout(Some(left(deadline)?))?;
        match socket.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => return Ok(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn of_io(error: io::Error) -> Fault {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Fault::Silent,
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
            Fault::Closed
        }
        _ => Fault::Io(error),
    }
}

fn of_tls(error: ClientSessionError) -> Fault {
    match error {
        ClientSessionError::Socket(error) => of_io(error),
        error => Fault::Tls(error),
    }
}
