//! A server process that is killed while its cache fills, again and again: no client gets a byte that its application has not sent.

mod running;

use running::posts::serving;
use running::{Folder, Server, WAIT, wait_for};
use rustix::process::{Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

const KILLS: usize = 8;
const CLIENTS: u64 = 3;
const PATHS: u64 = 40;
/// Answers between two kills.
const ANSWERS: usize = 120;

/// What the application says of a path: from nothing to more than the memory holds.
fn content(number: u64) -> Vec<u8> {
    let len = if number % 20 == 19 { 2_000_000 } else { [0, 10, 4000, 70_000, 300_000][number as usize % 5] };
    let len = len + number;
    (0..len).map(|at| b'a' + ((at * 7 + at / 251 + number) % 26) as u8).collect()
}

/// What an application has done.
#[derive(Default)]
struct Application {
    asked: AtomicUsize,
    /// Rests that it was asked for.
    rests: AtomicUsize,
    is_reliable: AtomicBool,
}

/// An application that answers each connection once, and breaks off in the middle of many answers that are long.
fn application() -> (String, Arc<Application>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let application = Arc::new(Application::default());
    let shared = application.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let shared = shared.clone();
            std::thread::spawn(move || drop(shared.answer(stream)));
        }
    });
    (address, application)
}

impl Application {
    fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        self.asked.fetch_add(1, SeqCst);
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        let first = lines.next().transpose()?.unwrap_or_default();
        let mut range = None;
        for line in lines.map_while(Result::ok).take_while(|line| !line.is_empty()) {
            let line = line.to_ascii_lowercase();
            range = line.strip_prefix("range: bytes=").map(str::to_owned).or(range);
        }
        let number = first.split(['/', ' ']).find_map(|word| word.parse().ok()).unwrap_or(0);
        let content = content(number);
        let fields = format!("Cache-Control: max-age=600\r\nETag: \"{number}\"\r\nConnection: close\r\n");
        let bounds = range.as_deref().and_then(|range| range.split_once('-'));
        let bounds = bounds.map(|(first, last)| (first.parse().unwrap_or(0), last.parse().ok()));
        let sent = match bounds.filter(|(first, _)| *first < content.len()) {
            Some((first, last)) => {
                self.rests.fetch_add(1, SeqCst);
                let end = last.map_or(content.len(), |last: usize| (last + 1).min(content.len()));
                let (len, whole) = (end - first, content.len());
                let range = format!("Content-Range: bytes {first}-{}/{whole}\r\n", end - 1);
                write!(
                    stream,
                    "HTTP/1.1 206 Partial Content\r\n{fields}{range}Content-Length: {len}\r\n\r\n"
                )?;
                &content[first..end]
            }
            None => {
                write!(stream, "HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n", content.len())?;
                &content[..]
            }
        };
        let breaks = sent.len() > 50_000 && !self.is_reliable.load(SeqCst) && fastrand::u8(..3) > 0;
        let count = if breaks { fastrand::usize(..sent.len()) } else { sent.len() };
        stream.write_all(&sent[..count])
    }
}

/// Asks for a path, or some bytes of it from one on; the content as far as it came. Whoever is killed meanwhile says nothing, or no more.
fn ask(address: &str, number: u64, from: Option<usize>) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(WAIT))?;
    let range = from.map(|from| format!("Range: bytes={from}-{}\r\n", from + 999)).unwrap_or_default();
    write!(stream, "GET /{number} HTTP/1.1\r\nHost: a\r\n{range}Connection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    let end = stream.read_to_end(&mut answer);
    let head = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let status: &[u8] = if from.is_some() { b"HTTP/1.1 206 " } else { b"HTTP/1.1 200 " };
    let is_right = answer.starts_with(status);
    match head {
        Some(head) if is_right => Ok(answer.split_off(head + 4)),
        _ => Err(end.err().unwrap_or_else(|| std::io::Error::other(String::from_utf8_lossy(&answer)))),
    }
}

#[test]
fn a_killed_server_process_leaves_no_wrong_byte_in_its_cache() {
    let folder = Folder::new("cache-kill");
    let (address, application) = application();
    let config = format!(
        "workers 2\nlisten \"127.0.0.1:0\"\n\
         cache \"main\" {{ memory \"1MiB\"; disk \"{}\" size=\"16MiB\" }}\n\
         site {{ proxy \"http://{address}\"; cache \"main\" }}\n",
        folder.path("cache").display()
    );
    let server = Server::with_config(&folder, &config);
    let (answers, has_ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|seed| {
            let (address, answers, has_ended) = (server.address.clone(), answers.clone(), has_ended.clone());
            std::thread::spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                while !has_ended.load(SeqCst) {
                    let number = random.u64(..PATHS);
                    let content = content(number);
                    let from = (random.u8(..4) == 0 && content.len() > 2000)
                        .then(|| random.usize(..content.len() - 1000));
                    let Ok(received) = ask(&address, number, from) else { continue };
                    let expected = &content[from.unwrap_or(0)..];
                    assert!(expected.starts_with(&received), "/{number}: {} bytes", received.len());
                    answers.fetch_add(1, SeqCst);
                }
            })
        })
        .collect();
    let mut pids = serving(&server, 1, &[]);
    for kill in 1..=KILLS {
        let is_enough = || (answers.load(SeqCst) >= kill * ANSWERS).then_some(());
        wait_for(is_enough, "answers between two kills");
        let killed = pids[0];
        kill_process(killed, Signal::KILL).unwrap();
        pids = serving(&server, 1, &[killed]);
    }
    has_ended.store(true, SeqCst);
    clients.into_iter().for_each(|client| client.join().unwrap());
    application.is_reliable.store(true, SeqCst);
    for number in 0..PATHS {
        assert_eq!(ask(&server.address, number, None).unwrap(), content(number), "/{number}");
    }
    // 1 MiB of memory, and 9 processes: without the disk each of them would have asked for nearly everything.
    assert!(application.rests.load(SeqCst) > 0, "nothing was gone on with");
    let (asked, answers) = (application.asked.load(SeqCst), answers.load(SeqCst));
    assert!(asked < answers / 3, "{asked} of {answers} were asked for");
    let verified = server.tell(&["cache", "verify"]);
    assert!(verified.stdout.contains(", none is broken"), "{}{}", verified.stdout, verified.stderr);
}
