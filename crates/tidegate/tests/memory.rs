//! What clients make the server hold stays within `limits memory` and within a cgroup (FAULTS 42, 66): a real server,
//! an application that has much to say, and clients that ask for all of it and read nothing.

mod running;

use running::{Folder, Server, wait_for};
use rustix::process::Pid;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

const MIB: u64 = 1 << 20;
/// Connections, and requests on each.
const CLIENTS: usize = 12;
const HTTP2_CLIENTS: usize = 60;
const STREAMS: u32 = 128;

/// So many looks in a row that see the same are taken for rest.
const REST: u32 = 60;

/// An application that answers with 4 MiB, and ends with the test.
fn application() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            std::thread::spawn(move || {
                let mut request = [0; 4096];
                let _ = stream.read(&mut request);
                let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 4194304\r\n\r\n";
                let _ = stream.write_all(head.as_bytes());
                for _ in 0..64 {
                    if stream.write_all(&[b'x'; 64 << 10]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

/// An application that speaks HTTP/2, answers with as much as it may send unasked, and never ends.
fn http2_application() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            std::thread::spawn(move || answer_streams(stream));
        }
    });
    port
}

fn answer_streams(mut connection: TcpStream) -> std::io::Result<()> {
    let (mut header, mut window) = ([0; 9], 65_535);
    connection.read_exact(&mut [0; 24])?;
    let mut out = Vec::new();
    push_frame(&mut out, 4, 0, 0, &[]);
    loop {
        connection.write_all(&std::mem::take(&mut out))?;
        connection.read_exact(&mut header)?;
        let stream = u32::from_be_bytes(header[5..].try_into().unwrap());
        let mut payload = vec![0; u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize];
        connection.read_exact(&mut payload)?;
        match header[3] {
            4 if header[4] == 0 => {
                for setting in payload.chunks_exact(6).filter(|setting| setting[1] == 4) {
                    window = u32::from_be_bytes(setting[2..].try_into().unwrap()) as usize;
                }
                push_frame(&mut out, 4, 1, 0, &[]);
            }
            1 => {
                push_frame(&mut out, 1, 4, stream, &[0x88]); // :status: 200
                let content = vec![b'x'; window];
                content.chunks(16 << 10).for_each(|piece| push_frame(&mut out, 0, 0, stream, piece));
            }
            _ => {}
        }
    }
}

fn settings(folder: &Folder, limits: &str) -> String {
    let mut text = String::new();
    for line in 0..40_000u64 {
        text.push_str(&format!("line {line} of many, {}\n", line * line % 9973));
    }
    fs::create_dir_all(folder.path("site")).unwrap();
    fs::write(folder.path("site/large.txt"), text).unwrap();
    format!(
        "workers 2\nlisten \"127.0.0.1:0\" {{ h2c }}\n{limits}\nsite {{\n  root \"{}\"\n  compress \"br\" \"gzip\"\n  \
         route \"/app/*\" {{ proxy \"http://127.0.0.1:{}\" }}\n  route \"/http2/*\" {{ proxy \"h2c://127.0.0.1:{}\" }}\n}}\n",
        folder.path("site").display(),
        application(),
        http2_application()
    )
}

fn push_frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Asks for `path` on many streams of one connection, and reads nothing. Its windows are closed, or as they are anyway.
fn hoarder(address: &str, path: &str, is_closed: bool) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    let mut out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    push_frame(&mut out, 4, 0, 0, if is_closed { &[0, 4, 0, 0, 0, 0] } else { &[] });
    let mut block = vec![0x82, 0x86];
    for (name, value) in [(":path", path), (":authority", "x"), ("accept-encoding", "br, gzip")] {
        block.push(0); // literal, not indexed, new name
        for text in [name, value] {
            block.push(text.len() as u8);
            block.extend_from_slice(text.as_bytes());
        }
    }
    for number in 0..STREAMS {
        push_frame(&mut out, 1, 5, 1 + 2 * number, &block);
    }
    let _ = stream.write_all(&out); // one that is not let in has nothing to hoard
    stream
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    wait_for(|| holds().then_some(()), what);
}

/// Bytes of all server processes.
fn resident(server: &Server<'_>) -> u64 {
    server.processes().into_iter().map(resident_of).sum()
}

fn resident_of(process: Pid) -> u64 {
    let statm = fs::read_to_string(format!("/proc/{}/statm", process.as_raw_nonzero())).unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

fn has_come(server: &Server<'_>, requests: u64) -> bool {
    server.status()["stats"]["requests"].as_u64().unwrap_or(0) >= requests
}

/// Lets hoarders ask, and tells the most that was resident until all is at rest.
fn besiege(server: &Server<'_>, path: &str) -> u64 {
    let is_http2 = path.starts_with("/http2");
    let count = if is_http2 { HTTP2_CLIENTS } else { CLIENTS };
    let clients: Vec<TcpStream> = (0..count).map(|_| hoarder(&server.address, path, is_http2)).collect();
    let mut most = 0;
    until("some requests", || {
        most = most.max(resident(server));
        has_come(server, u64::from(STREAMS))
    });
    let (_, most_later) = at_rest(server);
    drop(clients);
    most.max(most_later)
}

/// What is resident once nothing moves, and the most until then.
fn at_rest(server: &Server<'_>) -> (u64, u64) {
    let (mut last, mut most, mut same) = (0, 0, 0);
    until("rest", || {
        let now = resident(server);
        most = most.max(now);
        same = if now.abs_diff(last) < MIB { same + 1 } else { 0 };
        last = now;
        same >= REST
    });
    (last, most)
}

/// Of HTTP/2 applications: beside the 32 MiB, each of 4,096 requests in flight may be sent a window of 16 KiB.
#[test]
fn who_reads_nothing_makes_nothing_grow() {
    for (path, name, most_grown) in
        [("/app/x", "memory-app", 96), ("/large.txt", "memory-files", 96), ("/http2/x", "memory-http2", 96)]
    {
        let folder = Folder::new(name);
        let server = Server::with_config(&folder, &settings(&folder, "limits { memory \"32MiB\" }"));
        let process = server.processes();
        // It goes on setting itself up once it says where it listens.
        let (before, _) = at_rest(&server);
        let most = besiege(&server, path);
        assert!(most < before + most_grown * MIB, "{path}: {} MiB", (most - before) / MIB);
        until("the memory back", || resident(&server) < before + 24 * MIB);
        assert_eq!(server.processes(), process, "{path}");
        until("nothing owned", || server.status()["stats"]["buffer"]["current"] == 0);
    }
}

/// A memory cgroup of its own, where this may be made; removed when dropped.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new(bytes: u64) -> Option<Cgroup> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let line = |prefix: &str| own.lines().find_map(|line| Some(line.split_once(prefix)?.1.to_owned()));
        let name = format!("tidegate-test-{}", std::process::id());
        let (folder, limit) = match line(":memory:/") {
            Some(path) => (Path::new("/sys/fs/cgroup/memory").join(path), "memory.limit_in_bytes"),
            None => (Path::new("/sys/fs/cgroup").join(line("0::/")?), "memory.max"),
        };
        let cgroup = Cgroup(folder.join(name));
        fs::create_dir(&cgroup.0).ok()?;
        fs::write(cgroup.0.join(limit), bytes.to_string()).ok()?;
        Some(cgroup)
    }

    /// How often the kernel has killed for want of memory.
    fn kills(&self) -> u64 {
        let text = ["memory.oom_control", "memory.events"].map(|name| fs::read_to_string(self.0.join(name)));
        let count = text
            .iter()
            .flatten()
            .flat_map(|text| text.lines())
            .find_map(|line| line.strip_prefix("oom_kill "));
        count.and_then(|count| count.trim().parse().ok()).expect("the kernel counts what it kills")
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        until("an empty cgroup", || fs::remove_dir(&self.0).is_ok());
    }
}

/// The command, within a bound of the kernel's: a cgroup, or the address space where none may be made.
fn bounded(command: Command, cgroup: Option<&Cgroup>, bytes: u64) -> Command {
    let bound = match cgroup {
        Some(cgroup) => format!("echo $$ > '{}/cgroup.procs'", cgroup.0.display()),
        None => format!("ulimit -v {}", bytes / 1024),
    };
    let mut through = Command::new("/bin/sh");
    through.args(["-c", &format!("{bound} && exec \"$0\" \"$@\"")]).arg(command.get_program());
    through.args(command.get_args()).current_dir(command.get_current_dir().unwrap_or(Path::new("/")));
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => through.env(name, value),
            None => through.env_remove(name),
        };
    }
    through
}

#[test]
fn a_cgroup_that_is_full_kills_nothing() {
    let cgroup = Cgroup::new(192 * MIB);
    let kind = if cgroup.is_some() { "a cgroup" } else { "RLIMIT_AS, since no cgroup may be made here" };
    eprintln!("bounded by {kind}");
    // Address space is no memory: stacks of threads and libraries take much of it.
    let space = 1536 * MIB;
    let folder = Folder::new("memory-cgroup");
    // What the settings allow is more than there is.
    let text = settings(&folder, "limits { memory \"1GiB\" }");
    let server = Server::through(&folder, &text, |command| bounded(command, cgroup.as_ref(), space));
    let process = server.processes();
    besiege(&server, "/app/x");
    besiege(&server, "/http2/x");
    assert_eq!(server.processes(), process, "no process was killed");
    assert_eq!(cgroup.as_ref().map_or(0, Cgroup::kills), 0);
    until("an answer", || running::get(&server.address, "/large.txt").is_ok());
    drop(server);
}

/// How much more there may be at rest: the allocator is told to give back what is free where a worker has had 8 MiB more,
/// and there are two. A burst takes 30 MiB.
const AT_REST: u64 = 16 << 20;

/// So many clients in a burst, and between two.
const CROWD: [usize; 2] = [80, 4];

/// FAULTS 55: bursts in turn with silence. Everybody is served, nothing is stuck, and the memory comes back.
#[test]
fn bursts_fail_nobody_and_leave_no_memory_behind() {
    let folder = Folder::new("memory-bursts");
    // How busy the machine is otherwise, and how much of its memory is free, must not matter here.
    let limits = "limits { overload-delay off; memory \"1GiB\" }";
    let server = Server::with_config(&folder, &settings(&folder, limits));
    let processes = server.processes();
    let address = &server.address;
    let resets = resets_for_want_of_memory();
    let burst = |clients: usize| {
        std::thread::scope(|scope| {
            let play = |number: usize| {
                // Answers of files, compressed ones, and of an application, each on a connection of its own.
                for path in ["/large.txt", "/app/x", "/large.txt"] {
                    let stream = TcpStream::connect(address).map_err(|error| error.to_string())?;
                    stream.set_read_timeout(Some(tidegate_testkit::WAIT)).unwrap();
                    let coding = if number.is_multiple_of(8) { "gzip" } else { "identity" };
                    let fetched = fetch(stream, path, coding).map_err(|error| error.to_string())?;
                    if fetched < 1_000 {
                        return Err(format!("{fetched} bytes of {path}"));
                    }
                }
                Ok(())
            };
            let threads: Vec<_> = (0..clients).map(|number| scope.spawn(move || play(number))).collect();
            let failed: Vec<String> =
                threads.into_iter().filter_map(|one| one.join().unwrap().err()).collect();
            let told = || {
                [
                    "timeouts",
                    "memory_resets",
                    "connection_refusals",
                    "overloads",
                    "requests_lost",
                    "responses",
                ]
                .map(|name| format!("{name}: {}", server.status()["stats"][name]))
            };
            if resets_for_want_of_memory() > resets {
                eprintln!("SKIPPED: the kernel had no memory left for TCP, and reset connections");
                return;
            }
            assert!(failed.is_empty(), "{} of {clients} failed: {failed:?}; {:?}", failed.len(), told());
        });
    };
    let is_at_rest = || {
        let stats = &server.status()["stats"];
        ["connections", "in_flight", "queued", "buffer"].iter().all(|name| stats[name]["current"] == 0)
    };
    // What the first one leaves is there for the next: caches, stacks of threads, tables.
    burst(CROWD[0]);
    until("rest", is_at_rest);
    let before = wait_for_least(&server);
    for _ in 0..3 {
        CROWD.into_iter().for_each(burst);
    }
    until("rest", is_at_rest);
    until(&format!("{} of {before} bytes back", resident(&server)), || resident(&server) <= before + AT_REST);
    assert_eq!(server.processes(), processes, "no process has ended");
}

/// How many connections the kernel has reset since it had no memory left for TCP (`tcp_mem`), all of this machine's.
fn resets_for_want_of_memory() -> u64 {
    let text = fs::read_to_string("/proc/net/netstat").unwrap_or_default();
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let mut pairs = names.split(' ').zip(values.split(' '));
    pairs.find(|(name, _)| *name == "TCPAbortOnMemory").and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

/// What is resident once no more of it is given back.
fn wait_for_least(server: &Server<'_>) -> u64 {
    let (mut least, mut same) = (u64::MAX, 0);
    until("rest", || {
        let now = resident(server);
        same = if now < least { 0 } else { same + 1 };
        least = least.min(now);
        same >= REST
    });
    least
}

/// Bytes of the answer.
fn fetch(mut stream: TcpStream, path: &str, coding: &str) -> std::io::Result<usize> {
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: x\r\nAccept-Encoding: {coding}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    match answer.starts_with(b"HTTP/1.1 200 ") {
        true => Ok(answer.len()),
        false => {
            Err(std::io::Error::other(String::from_utf8_lossy(&answer[..answer.len().min(80)]).into_owned()))
        }
    }
}
