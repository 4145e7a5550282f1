//! `cargo xtask bench slow`: downloads that are slow and steady, on real sockets. None may be cut.
//!
//! curl asks, and a narrow pipe of our own lies between it and the server: it reads at the rate of the case with
//! the receive buffer of the case, so that the server sees a slow client whatever curl speaks. All cases run at
//! the same time, for as long as they are given. Beside them one client for each protocol stops reading, and has
//! to be cut. What takes hours is in `crates/tidegate-core/src/conn/progress/tests.rs`, on a time of its own.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::net::{AddressFamily, SocketType, connect, socket, sockopt};

use super::report::{Table, grouped};
use super::server::{end, free_port, wait_until_listening};
use super::{host, static_files, tls_peers};

#[derive(clap::Args)]
pub struct Arguments {
    /// Seconds that each download is watched
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(45..))]
    seconds: u32,
    /// Bytes per second
    #[arg(long, value_delimiter = ',', default_value = "500,1000,2500,5000,10000,20000,50000")]
    rates: Vec<u64>,
    /// Receive buffers; 0 leaves it to the kernel
    #[arg(long, value_delimiter = ',', default_value = "0,8192,65536")]
    buffers: Vec<usize>,
    /// The program to measure [default: the release binary, built first]
    #[arg(long)]
    program: Option<PathBuf>,
}

/// Of the file, and of the application's answer.
const SIZE: u64 = 8 << 20;
/// `rate-grace` is 30 s by default, and begins anew with what little such a client reads at first.
const CUT_BY: Duration = Duration::from_secs(45);
/// Segments of the loopback interface are 64 KiB, and TCP tells of no less room: a slower reader with a large buffer
/// says nothing for longer than `rate-grace`, as it would on no other network.
const LEAST_OF_LOOPBACK: u64 = 5000;
const SMALL_BUFFER: usize = 16 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Http1,
    Https1,
    H2c,
    H2,
}

impl Protocol {
    const ALL: [Protocol; 4] = [Protocol::Http1, Protocol::Https1, Protocol::H2c, Protocol::H2];

    fn is_tls(self) -> bool {
        matches!(self, Protocol::Https1 | Protocol::H2)
    }

    fn arguments(self) -> &'static [&'static str] {
        match self {
            Protocol::Http1 => &["--http1.1"],
            Protocol::Https1 => &["--http1.1", "--insecure"],
            Protocol::H2c => &["--http2-prior-knowledge"],
            Protocol::H2 => &["--http2", "--insecure"],
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Case {
    protocol: Protocol,
    is_proxied: bool,
    /// 0 has stopped reading.
    rate: u64,
    buffer: usize,
}

/// Watches all cases at once and prints the table.
pub fn run(arguments: &Arguments) -> Result<()> {
    host::prepare()?;
    let program = static_files::program(arguments.program.as_deref())?;
    let server = Running::start(&program)?;
    let mut cases = Vec::new();
    for protocol in Protocol::ALL {
        for is_proxied in [false, true] {
            for &buffer in &arguments.buffers {
                let is_small = (1..=SMALL_BUFFER).contains(&buffer);
                let rates = arguments.rates.iter().filter(|rate| is_small || **rate >= LEAST_OF_LOOPBACK);
                cases.extend(rates.map(|&rate| Case { protocol, is_proxied, rate, buffer }));
                cases.push(Case { protocol, is_proxied, rate: 0, buffer });
            }
        }
    }
    println!("{}, {}", host::today(), host::description());
    println!("{} downloads of {} bytes for {} s\n", cases.len(), grouped(SIZE as f64), arguments.seconds);
    let time = Duration::from_secs(arguments.seconds.into());
    let server = &server;
    let ends: Vec<_> = std::thread::scope(|scope| {
        let watched: Vec<_> =
            cases.iter().map(|&case| scope.spawn(move || watch(server, case, time))).collect();
        watched.into_iter().map(|end| end.join().expect("invariant: it returns errors")).collect()
    });
    let mut table = Table::new(["protocol", "from", "receive buffer", "bytes/s", "bytes", "end", ""]);
    let mut failures = 0;
    for (case, end) in cases.iter().zip(ends) {
        let (bytes, end) = end.with_context(|| format!("{case:?}"))?;
        let is_right = match (case.rate, &end) {
            (0, End::Cut(at)) => *at <= CUT_BY,
            (0, _) => false,
            (_, End::Watched | End::Complete) => bytes > 0,
            (_, End::Cut(_)) => false,
        };
        failures += usize::from(!is_right);
        table.row([
            format!("{:?}", case.protocol),
            if case.is_proxied { "application" } else { "file" }.into(),
            if case.buffer == 0 { "default".into() } else { grouped(case.buffer as f64) },
            grouped(case.rate as f64),
            grouped(bytes as f64),
            match end {
                End::Watched => "goes on".into(),
                End::Complete => "complete".into(),
                End::Cut(at) => format!("cut after {:.1} s", at.as_secs_f64()),
            },
            if is_right { "ok" } else { "WRONG" }.into(),
        ]);
    }
    println!("{table}");
    if failures > 0 {
        bail!("{failures} of {} downloads ended wrongly", cases.len());
    }
    Ok(())
}

enum End {
    /// Nothing has happened to it.
    Watched,
    Complete,
    /// The server has closed the connection.
    Cut(Duration),
}

/// One download; the bytes that have come through the pipe, and how it ended.
fn watch(server: &Running, case: Case, time: Duration) -> Result<(u64, End)> {
    let pipe = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = pipe.local_addr()?.port();
    let scheme = if case.protocol.is_tls() { "https" } else { "http" };
    let path = if case.is_proxied { "app/large" } else { "large" };
    let mut curl = Command::new("curl")
        .args(["--silent", "--output", "/dev/null"])
        .args(case.protocol.arguments())
        .arg(format!("{scheme}://127.0.0.1:{port}/{path}"))
        .stdin(Stdio::null())
        .spawn()
        .context("cannot start curl")?;
    let result = narrow(server, case, &pipe, time);
    let _ = curl.kill();
    let _ = curl.wait();
    result
}

fn narrow(server: &Running, case: Case, pipe: &TcpListener, time: Duration) -> Result<(u64, End)> {
    let (mut client, _) = pipe.accept()?;
    let port = if case.protocol.is_tls() { server.tls } else { server.plain };
    let far = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    if case.buffer > 0 {
        sockopt::set_socket_recv_buffer_size(&far, case.buffer)?;
    }
    connect(&far, &SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    let mut far = TcpStream::from(far);
    let (mut from, mut to) = (client.try_clone()?, far.try_clone()?);
    // What the client sends goes at once. It ends with the sockets.
    std::thread::spawn(move || std::io::copy(&mut from, &mut to));
    let begun = Instant::now();
    let mut bytes = 0;
    let mut is_over = false;
    let mut buffer = vec![0; 64 << 10];
    while begun.elapsed() < time {
        // A handshake has to come through first.
        let allowed = 8192 + (begun.elapsed().as_secs_f64() * case.rate as f64) as u64;
        let count = usize::try_from(allowed.saturating_sub(bytes)).unwrap_or(0).min(buffer.len());
        if count == 0 {
            if is_reset(&far) {
                return Ok((bytes, End::Cut(begun.elapsed())));
            }
            std::thread::park_timeout(Duration::from_millis(100));
            continue;
        }
        far.set_read_timeout(Some(Duration::from_millis(100)))?;
        match far.read(&mut buffer[..count]) {
            Ok(0) => is_over = true,
            Ok(count) => {
                bytes += count as u64;
                client.write_all(&buffer[..count])?;
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return Ok((bytes, End::Cut(begun.elapsed()))),
        }
        if is_over {
            break;
        }
        if bytes < allowed {
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }
    Ok((
        bytes,
        match (is_over, bytes >= SIZE) {
            (_, true) => End::Complete,
            (true, false) => End::Cut(begun.elapsed()),
            (false, false) => End::Watched,
        },
    ))
}

/// Whether the other side has reset the connection. What has come and was not read is left.
fn is_reset(stream: &TcpStream) -> bool {
    stream.take_error().is_ok_and(|error| error.is_some())
}

/// A server of its own, and an application behind it.
struct Running {
    child: Child,
    folder: PathBuf,
    plain: u16,
    tls: u16,
}

impl Running {
    fn start(program: &Path) -> Result<Running> {
        let folder = std::env::temp_dir().join(format!("tidegate-slow-{}", std::process::id()));
        fs::create_dir_all(folder.join("site"))?;
        fs::File::create(folder.join("site/large"))?.set_len(SIZE)?;
        let (plain, tls, app) = (free_port()?, free_port()?, application()?);
        let at = folder.display();
        tls_peers::certify(&folder)?;
        fs::write(
            folder.join("slow.kdl"),
            format!(
                "listen \"127.0.0.1:{plain}\" {{ h2c }}\n\
                 listen \"127.0.0.1:{tls}\" {{ tls certificate=\"{at}/site.pem\" key=\"{at}/site.key\" }}\n\
                 site {{\n  root \"{at}/site\"\n  route \"/app/*\" {{ proxy \"http://127.0.0.1:{app}\" }}\n}}\n"
            ),
        )?;
        let child = Command::new(program)
            .args(["serve", "--config"])
            .arg(folder.join("slow.kdl"))
            .arg("--control")
            .arg(folder.join("control"))
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let mut running = Running { child, folder, plain, tls };
        wait_until_listening(&mut running.child, || {
            TcpStream::connect(("127.0.0.1", plain)).is_ok() && TcpStream::connect(("127.0.0.1", tls)).is_ok()
        })?;
        Ok(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        end(&mut self.child);
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// An application that answers everything with as much as it can, and ends with the process.
fn application() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            std::thread::spawn(move || answer(&mut stream));
        }
    });
    Ok(port)
}

fn answer(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        request.push(byte[0]);
    }
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\nConnection: close\r\n\r\n")?;
    let piece = [b'x'; 64 << 10];
    for _ in 0..SIZE / piece.len() as u64 {
        stream.write_all(&piece)?;
    }
    Ok(())
}
