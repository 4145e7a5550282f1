//! Clients that do not stop: what becomes of their requests while processes come and go.

use super::{Server, WAIT, join, wait_for};
use rustix::process::Pid;
use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;

/// What became of the requests of one client.
#[derive(Default, Debug)]
pub struct Tally {
    pub answers: usize,
    /// Connections that could not be made.
    pub refused: Vec<String>,
    /// Requests that were under way on a connection.
    pub broken: Vec<String>,
}

/// Sends POST after POST on one connection, and makes another when it has ended or the server says that it
/// will.
pub struct Posts {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Tally>>,
}

impl Posts {
    pub fn on(address: &str, clients: usize) -> Posts {
        let is_over = Arc::new(AtomicBool::new(false));
        let start = |_| {
            let (over, address) = (is_over.clone(), address.to_owned());
            std::thread::spawn(move || post_until(&over, &address))
        };
        Posts { threads: (0..clients).map(start).collect(), is_over }
    }

    pub fn end(self) -> Tally {
        self.is_over.store(true, SeqCst);
        let mut all = Tally::default();
        for thread in self.threads {
            let tally = join(thread, "a client to leave");
            all.answers += tally.answers;
            all.refused.extend(tally.refused);
            all.broken.extend(tally.broken);
        }
        assert!(all.answers > 0);
        all
    }

    /// None may have failed.
    pub fn end_whole(self) {
        let tally = self.end();
        assert!(tally.refused.is_empty() && tally.broken.is_empty(), "{tally:?}");
    }
}

fn post_until(is_over: &AtomicBool, address: &str) -> Tally {
    let mut tally = Tally::default();
    let mut kept: Option<BufReader<TcpStream>> = None;
    while !is_over.load(SeqCst) {
        let mut connection = match kept.take() {
            Some(connection) => connection,
            None => match TcpStream::connect(address) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(WAIT)).unwrap();
                    BufReader::new(stream)
                }
                Err(error) => {
                    tally.refused.push(error.to_string());
                    continue;
                }
            },
        };
        match post(&mut connection) {
            Ok(stays) => {
                tally.answers += 1;
                kept = stays.then_some(connection);
            }
            Err(error) => tally.broken.push(error.to_string()),
        }
    }
    tally
}

/// Whether the connection stays.
fn post(connection: &mut BufReader<TcpStream>) -> std::io::Result<bool> {
    connection.get_mut().write_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody")?;
    let (mut length, mut stays, mut line) = (0, true, String::new());
    loop {
        line.clear();
        if connection.read_line(&mut line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        match line.trim_end().to_ascii_lowercase().split_once(": ") {
            Some(("content-length", value)) => length = value.parse().map_err(Error::other)?,
            Some(("connection", value)) => stays = value != "close",
            Some(_) => {}
            None if line == "\r\n" => break,
            None if line.starts_with("HTTP/1.1 200") => {}
            None => return Err(Error::other(line)),
        }
    }
    connection.read_exact(&mut vec![0; length])?;
    Ok(stays)
}

pub fn is_running(pid: Pid) -> bool {
    tidegate_testkit::is_running(pid.as_raw_nonzero().get() as u32)
}

/// Waits until `count` processes serve, none of them `not`.
pub fn serving(server: &Server<'_>, count: usize, not: &[Pid]) -> Vec<Pid> {
    let serve = || {
        let all = server.status()["server"]["processes"].as_array().unwrap().clone();
        let serve = all.iter().filter(|process| process["state"] == "serving");
        let pids: Vec<Pid> = serve.filter_map(|p| Pid::from_raw(p["pid"].as_i64()? as i32)).collect();
        (pids.len() == count && !pids.iter().any(|pid| not.contains(pid))).then_some(pids)
    };
    wait_for(serve, "the server processes to serve")
}
