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

/// What the application says of a path: from nothing to more than a piece of a file.
fn content(number: u64) -> Vec<u8> {
    let len = [0, 10, 4000, 70_000, 300_000][number as usize % 5] + number;
    (0..len).map(|at| b'a' + ((at * 7 + at / 251 + number) % 26) as u8).collect()
}

/// An application that answers each connection once.
fn application() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            count.fetch_add(1, SeqCst);
            std::thread::spawn(move || drop(answer(stream)));
        }
    });
    (address, asked)
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    while !lines.next().transpose()?.unwrap_or_default().is_empty() {}
    let number = first.split(['/', ' ']).find_map(|word| word.parse().ok()).unwrap_or(0);
    let content = content(number);
    let head = format!(
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        content.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(&content)
}

/// Asks for a path; the content as far as it came. Whoever is killed meanwhile says nothing, or no more.
fn ask(address: &str, number: u64) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(WAIT))?;
    write!(stream, "GET /{number} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    let end = stream.read_to_end(&mut answer);
    let head = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let is_right = answer.starts_with(b"HTTP/1.1 200 ");
    match head {
        Some(head) if is_right => Ok(answer.split_off(head + 4)),
        _ => Err(end.err().unwrap_or_else(|| std::io::Error::other(String::from_utf8_lossy(&answer)))),
    }
}

#[test]
fn a_killed_server_process_leaves_no_wrong_byte_in_its_cache() {
    let folder = Folder::new("cache-kill");
    let (application, asked) = application();
    let config = format!(
        "workers 2\nlisten \"127.0.0.1:0\"\n\
         cache \"main\" {{ memory \"1MiB\"; disk \"{}\" size=\"16MiB\" }}\n\
         site {{ proxy \"http://{application}\"; cache \"main\" }}\n",
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
                    let Ok(received) = ask(&address, number) else { continue };
                    assert!(content(number).starts_with(&received), "/{number}: {} bytes", received.len());
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
    for number in 0..PATHS {
        assert_eq!(ask(&server.address, number).unwrap(), content(number), "/{number}");
    }
    // 1 MiB of memory, and 9 processes: without the disk each of them would have asked for nearly everything.
    let (asked, answers) = (asked.load(SeqCst), answers.load(SeqCst));
    assert!(asked < answers / 3, "{asked} of {answers} were asked for");
    let verified = server.tell(&["cache", "verify"]);
    assert!(verified.stdout.contains(", 0 are broken"), "{}{}", verified.stdout, verified.stderr);
}
