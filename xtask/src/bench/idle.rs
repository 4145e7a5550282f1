//! `cargo xtask bench idle`: resident bytes of an idle keep-alive connection, beside other servers.
//!
//! A child of this task opens the connections, makes one request on each and then only holds them. What the
//! processes of the server hold resident is read before and after. Memory of the kernel is not counted, nor
//! are pages of files: programs and libraries, whose share changes with who else maps them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::peers::Kind;
use super::report::{Table, grouped, verdict};
use super::server::{self, Server, Setup};
use super::{cpu, host, static_files};

#[derive(clap::Args)]
pub struct Arguments {
    /// Connections held open
    #[arg(long, default_value_t = 15_000, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,
    /// Servers to compare with
    #[arg(long, value_enum, value_delimiter = ',', default_value = "nginx,lighttpd,apache")]
    peers: Vec<Kind>,
    /// Use the release binary that is there
    #[arg(long)]
    no_build: bool,
    /// Leave Tidegate out, to look at the peers alone
    #[arg(long)]
    without_tidegate: bool,
}

#[derive(clap::Args)]
pub struct ClientArguments {
    port: u16,
    connections: u32,
}

/// Bytes of an idle connection that Tidegate may hold.
const BUDGET: f64 = 250.0;

const DOCUMENT: &str = "1k.bin";
const DOCUMENT_SIZE: usize = 1024;

/// What the client says when every connection is open and has had its answer.
const READY: &str = "open";

/// Measures the servers one after another and prints the table.
pub fn run(arguments: &Arguments) -> Result<()> {
    host::prepare()?;
    if u64::from(arguments.connections) > Kind::Tidegate.most_connections() {
        let most = Kind::Tidegate.most_connections();
        bail!("a process may hold {most} connections here, not {}", arguments.connections);
    }
    if !arguments.no_build && !arguments.without_tidegate {
        static_files::build()?;
    }
    let setup = Setup::new(Duration::from_secs(600), arguments.connections + 100)?;
    setup.add_document(DOCUMENT, DOCUMENT_SIZE)?;
    let mut kinds = arguments.peers.clone();
    kinds.retain(|&kind| kind != Kind::Tidegate);
    if !arguments.without_tidegate {
        kinds.insert(0, Kind::Tidegate);
    }
    println!("{}, {}", host::today(), host::description());
    println!("idle keep-alive connections, each after one request\n");
    let mut table =
        Table::new(["server", "connections", "bytes/connection", "MiB before", "MiB after", "budget"]);
    for kind in kinds {
        let server = Server::start(kind, false, &setup)?;
        let most = u32::try_from(kind.most_connections()).unwrap_or(u32::MAX);
        let connections = arguments.connections.min(most);
        let (before, after) = measure(&server, connections)?;
        let each = (after as f64 - before as f64) / f64::from(connections);
        let budget = if kind == Kind::Tidegate { verdict(each, BUDGET) } else { String::new() };
        let mebibytes = |bytes: u64| format!("{:.1}", bytes as f64 / (1024.0 * 1024.0));
        let count = grouped(connections.into());
        table.row([server.name(), count, grouped(each), mebibytes(before), mebibytes(after), budget]);
    }
    println!("{table}");
    Ok(())
}

/// Resident bytes before and with the connections.
fn measure(server: &Server, connections: u32) -> Result<(u64, u64)> {
    // What the first requests make a server set up is no part of a connection.
    for _ in 0..16 {
        let length = server.fetch(DOCUMENT)?;
        if length != DOCUMENT_SIZE {
            bail!("{} sent {length} bytes of {DOCUMENT_SIZE}", server.name());
        }
    }
    let before = cpu::resident_bytes(&server.processes()?)?;
    let mut client = Command::new(std::env::current_exe()?)
        .arg("idle-client")
        .args([server.port.to_string(), connections.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    let output = client.stdout.take().context("invariant: piped above")?;
    BufReader::new(output).read_line(&mut line)?;
    let after = cpu::resident_bytes(&server.processes()?);
    // The end of its input ends the client.
    drop(client.stdin.take());
    client.wait()?;
    if line.trim_end() != READY {
        bail!("{}: the client could not open {connections} connections", server.name());
    }
    Ok((before, after?))
}

/// The client: opens, asks once, holds until its standard input ends; fails if one was closed meanwhile.
pub fn run_client(arguments: &ClientArguments) -> Result<()> {
    let request = format!("GET /{DOCUMENT} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    let mut connections = Vec::new();
    for number in 0..arguments.connections {
        let mut stream = TcpStream::connect(("127.0.0.1", arguments.port))
            .with_context(|| format!("cannot open connection {number}"))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.write_all(request.as_bytes())?;
        let (head, _) = server::read_response(&mut stream)?;
        if !head.starts_with("HTTP/1.1 200 ") {
            bail!("connection {number} was answered: {}", head.lines().next().unwrap_or_default());
        }
        connections.push(stream);
    }
    for (number, connection) in connections.iter_mut().enumerate() {
        connection.set_nonblocking(true)?;
        match connection.read(&mut [0]) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            _ => bail!("connection {number} was not kept"),
        }
    }
    println!("{READY}");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
