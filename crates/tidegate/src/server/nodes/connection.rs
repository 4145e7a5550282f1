//! The connection to the store of limits: the client library writes the questions and parses the answers, this bounds both
//! what it reads and how long it waits.
//!
//! The library's own connection reads whatever it is sent: the length of a bulk or of an array is the peer's word, and takes as
//! much memory as the peer cares to send. All that we ask is answered in less than [`LONGEST`]; what sends more is no store of
//! ours. After an error the connection is no good any more: what it still sends answers an earlier question.

use redis::{Cmd, ConnectionLike, Parser, Pipeline, RedisError, RedisResult, Value};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tidegate_config::settings::LimitStore;

/// The most bytes of the answers to one question. The longest is a page of the log of bans, a thousand events of one or two
/// hundred bytes each.
const LONGEST: usize = 1 << 20;

/// A connection to a store, logged in.
pub(super) struct Connection {
    stream: TcpStream,
    parser: Parser,
    /// How long the store may take to read one question and answer it.
    patience: Duration,
    database: i64,
    is_open: bool,
}

impl Connection {
    /// Connects and logs in.
    ///
    /// # Errors
    /// The store does not answer in time, or refuses the login.
    pub(super) fn open(store: &LimitStore, patience: Duration) -> RedisResult<Connection> {
        let stream = TcpStream::connect_timeout(&store.address, patience)?;
        stream.set_nodelay(true)?;
        let database = i64::from(store.database);
        let mut connection = Connection { stream, parser: Parser::new(), patience, database, is_open: true };
        let mut login = redis::pipe();
        if let Some(password) = &store.password {
            let auth = login.cmd("AUTH");
            if let Some(user) = &store.user {
                auth.arg(user);
            }
            auth.arg(password);
        }
        if database != 0 {
            login.cmd("SELECT").arg(database);
        }
        if !login.is_empty() {
            connection.ask(&login)?;
        }
        Ok(connection)
    }

    /// What the store answers to each of these commands. The first that is refused is the error.
    ///
    /// # Errors
    /// A command is refused, or the connection is no good any more: the answers do not come in time, are too long, or are none.
    pub(super) fn ask(&mut self, question: &Pipeline) -> RedisResult<Vec<Value>> {
        let answers = self.req_packed_commands(&question.get_packed_pipeline(), 0, question.len())?;
        answers.into_iter().map(Value::extract_error).collect()
    }

    fn exchange(&mut self, question: &[u8], count: usize) -> RedisResult<Vec<Value>> {
        let mut bounded =
            BoundedStream { stream: &self.stream, deadline: Instant::now() + self.patience, left: LONGEST };
        bounded.write_all(question)?;
        let mut answers = Vec::with_capacity(count);
        for _ in 0..count {
            answers.push(self.parser.parse_value(&mut bounded).map_err(in_words)?);
        }
        Ok(answers)
    }
}

impl ConnectionLike for Connection {
    fn req_packed_command(&mut self, command: &[u8]) -> RedisResult<Value> {
        Ok(self.req_packed_commands(command, 0, 1)?.pop().unwrap_or(Value::Nil))
    }

    fn req_packed_commands(
        &mut self,
        commands: &[u8],
        offset: usize,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        let answers = self.exchange(commands, offset + count);
        self.is_open &= answers.is_ok();
        Ok(answers?.split_off(offset))
    }

    fn get_db(&self) -> i64 {
        self.database
    }

    fn check_connection(&mut self) -> bool {
        Cmd::new().arg("PING").exec(self).is_ok()
    }

    fn is_open(&self) -> bool {
        self.is_open
    }
}

/// Writes one question and reads its answers, as many bytes of them as there may be, until they have to be there.
struct BoundedStream<'a> {
    stream: &'a TcpStream,
    deadline: Instant,
    left: usize,
}

impl BoundedStream<'_> {
    /// What is left of the time.
    fn patience(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(too_late()) } else { Ok(left) }
    }
}

impl Write for BoundedStream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.patience()?))?;
        self.stream.write(bytes).map_err(in_time)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for BoundedStream<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let patience = self.patience()?;
        if self.left == 0 {
            let what = format!("its answer is longer than {} KiB, so it is none of a store", LONGEST >> 10);
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        self.stream.set_read_timeout(Some(patience))?;
        let room = into.len().min(self.left);
        let count = self.stream.read(into.get_mut(..room).unwrap_or_default()).map_err(in_time)?;
        self.left -= count;
        Ok(count)
    }
}

/// The kernel calls it EAGAIN, `Resource temporarily unavailable`.
fn in_time(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { too_late() } else { error }
}

/// The parser tells of bytes by their numbers.
fn in_words(error: RedisError) -> RedisError {
    if error.kind() != redis::ErrorKind::Parse {
        return error;
    }
    let what = "what it sends is no answer of a Redis, so something else listens there: look at the address";
    io::Error::new(io::ErrorKind::InvalidData, what).into()
}

fn too_late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "its answer takes too long")
}

#[cfg(test)]
mod tests {
    use super::super::ban_log::tests::{redis, store};
    use super::*;
    use std::net::TcpListener;
    use tidegate_testkit::join;

    /// What a store that sends these bytes without end, or a byte at a time, makes of a question.
    fn asked(first: &'static [u8], then: &'static [u8], patience: Duration) -> RedisError {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let lies = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let _ = client.read(&mut [0; 1024]);
            let block = then.repeat(1 + (64 << 10) / then.len());
            let _ = client.write_all(first);
            let mut sent = 0_usize;
            while client.write_all(&block).is_ok() {
                sent += block.len();
                assert!(sent < 64 << 20, "it is read without end");
            }
        });
        let mut connection = Connection::open(&LimitStore { address, ..store() }, patience).unwrap();
        let error = redis::cmd("PING").query::<Value>(&mut connection).unwrap_err();
        assert!(!connection.is_open());
        drop(connection);
        join(lies, "the store that lies");
        error
    }

    /// Each write goes on, and all of them together take longer than there is time.
    #[test]
    fn a_store_that_reads_byte_by_byte_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let reads = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            for _ in 0..4 << 20 {
                if !client.read(&mut [0]).is_ok_and(|count| count > 0) {
                    return;
                }
            }
        });
        let patience = Duration::from_millis(100);
        let mut connection = Connection::open(&LimitStore { address, ..store() }, patience).unwrap();
        let question = vec![b'x'; 32 << 20];
        let error = redis::cmd("PING").arg(question).query::<Value>(&mut connection).unwrap_err();
        assert!(error.to_string().contains("takes too long"), "{error}");
        drop(connection);
        join(reads, "the store that reads");
    }

    #[test]
    fn no_answer_is_read_without_a_bound() {
        let long = Duration::from_secs(3600);
        for (first, then) in [
            ("$400000000\r\n", "x"),            // a bulk
            ("*1000000000\r\n", ":1\r\n"),      // an array
            ("*1000000000\r\n", "$1\r\nx\r\n"), // of bulks
            ("+", "x"),                         // a line
            ("-ERR ", "x"),                     // an error
            ("%1000000000\r\n", "#t\r\n"),      // a map
        ] {
            let error = asked(first.as_bytes(), then.as_bytes(), long);
            assert_eq!(
                error.to_string(),
                "its answer is longer than 1024 KiB, so it is none of a store",
                "{first}"
            );
        }
        // Arrays in arrays, and what is no length.
        for (first, then) in
            [("", "*4096\r\n"), ("", "*-5"), ("*18446744073709551615\r\n", ":1\r\n"), ("", "HTTP/1.1 ")]
        {
            let error = asked(first.as_bytes(), then.as_bytes(), long);
            let told = error.to_string();
            assert!(
                told.len() < 1000 && !told.contains('\n') && !error.is_timeout(),
                "{first}{then}: {told}"
            );
        }
    }

    #[test]
    fn a_store_that_hangs_is_waited_for_once() {
        let Some((_redis, mut pausing)) = redis() else { return };
        redis::cmd("CLIENT").arg("PAUSE").arg(3_600_000).exec(&mut pausing).unwrap();
        pausing.patience = Duration::from_millis(20);
        let mut question = redis::pipe();
        for _ in 0..20_000 {
            question.cmd("PING");
        }
        let asked = std::thread::spawn(move || pausing.ask(&question));
        assert!(join(asked, "the end of waiting").unwrap_err().is_timeout());
    }

    #[test]
    fn a_store_that_answers_byte_by_byte_is_not_waited_for_longer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (enough, ends) = std::sync::mpsc::channel::<()>();
        let drips = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            // Each byte comes well before the patience is over, all of them never do.
            let pause = Duration::from_millis(2);
            while ends.recv_timeout(pause) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                if client.write_all(b"+").is_err() {
                    break;
                }
            }
        });
        let store = LimitStore { address, ..store() };
        let mut connection = Connection::open(&store, Duration::from_millis(200)).unwrap();
        let asked = std::thread::spawn(move || redis::cmd("PING").query::<Value>(&mut connection));
        assert!(join(asked, "the end of waiting").unwrap_err().is_timeout());
        drop(enough);
        join(drips, "the store that drips");
    }
}
