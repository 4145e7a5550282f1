//! Rows about several workers: what a request costs with more of them, how evenly they are loaded, and whether they
//! share the connections of an application that has few.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use anyhow::{Context, Result, bail};

use super::super::report::{Spread, significant};
use super::super::server::{end, free_port, wait_until_listening};
use super::super::static_files::Generated;
use super::super::{cpu, generator, host};
use super::process::answers;
use super::{Bench, Figure};
use crate::workspace;

const DOCUMENT: &str = "1k.bin";

/// A server with so many workers, each free to run on any processor but as `processors` says.
struct Workers {
    child: Child,
    port: u16,
    folder: std::path::PathBuf,
}

impl Workers {
    fn start(workers: usize, processors: &str, site: &str) -> Result<Self> {
        Self::serve(|port, folder| {
            fs::write(folder.join(DOCUMENT), [b'x'; 1024])?;
            let settings = folder.join("tidegate.kdl");
            let site = site.replace("{folder}", &folder.display().to_string());
            fs::write(
                &settings,
                format!(
                    "workers {workers}\nlisten \"127.0.0.1:{port}\"\naccess-log off\n\
                     limits {{ connections 15000; keep-alive-timeout \"600s\" }}\nsite {{ {site} }}\n"
                ),
            )?;
            let mut command = host::pinned(processors, &generator::tidegate().to_string_lossy());
            command.arg("serve").arg("--config").arg(settings).arg("--control").arg(folder.join("control"));
            Ok(command)
        })
    }

    /// The floor: it looks at nothing.
    fn canned(workers: usize, processors: &str) -> Result<Self> {
        Self::serve(|port, _| {
            let own = std::env::current_exe()?;
            let mut command = host::pinned(processors, &own.to_string_lossy());
            command.args(["canned", &port.to_string(), "1024", "--workers", &workers.to_string()]);
            Ok(command)
        })
    }

    fn serve(command: impl FnOnce(u16, &Path) -> Result<Command>) -> Result<Self> {
        let port = free_port()?;
        let folder = workspace::target_directory().join(format!("bench/workers-{port}"));
        fs::create_dir_all(&folder)?;
        let mut command = command(port, &folder)?;
        let log = fs::File::create(folder.join("output.log"))?;
        command.stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().context("cannot start the server")?;
        let mut server = Self { child, port, folder };
        // The master listens before there are workers.
        wait_until_listening(&mut server.child, || answers(port))?;
        Ok(server)
    }

    /// Loads it with `wrk`, and says how many answers came.
    fn load(&self, processors: &str, threads: usize, connections: u32, seconds: u32) -> Result<u64> {
        let url = format!("http://127.0.0.1:{}/{DOCUMENT}", self.port);
        let mut command = host::pinned(processors, "wrk");
        command.args([format!("-t{threads}"), format!("-c{connections}"), format!("-d{seconds}s"), url]);
        let output = workspace::output(&mut command)?;
        let load = Generated::parse(&output).with_context(|| format!("wrk said:\n{output}"))?;
        if load.requests == 0 || load.errors > 0 {
            bail!("{} answers, {} errors", load.requests, load.errors);
        }
        Ok(load.requests)
    }

    /// CPU microseconds of a request, by 64 connections.
    fn cost(&self, processors: &str, threads: usize, seconds: u32) -> Result<f64> {
        let meter = cpu::Meter::start(cpu::process_tree(self.child.id())?)?;
        let answers = self.load(processors, threads, 64, seconds)?;
        Ok(meter.stop()?.time.as_secs_f64() * 1e6 / answers as f64)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        end(&mut self.child);
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            eprintln!("bench: {} is left over: {error}", self.folder.display());
        }
    }
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

const FILES: &str = "root \"{folder}\"";

/// The most that a request costs with 2 and with as many workers as processors, in parts of what it costs with one; and
/// the same of the floor. The generator has the processors that are left, or shares them.
pub fn flat(bench: &Bench) -> Result<Figure> {
    let all = processors();
    let counts = if all > 2 { vec![1, 2, all] } else { vec![1, all] };
    let of_servers = |start: &dyn Fn(usize, &str) -> Result<Workers>| {
        counts.iter().map(|&count| start(count, &format!("0-{}", count - 1))).collect::<Result<Vec<_>>>()
    };
    let servers = of_servers(&|count, processors| Workers::start(count, processors, FILES))?;
    let floors = of_servers(&|count, processors| Workers::canned(count, processors))?;
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for round in 0..bench.course.rounds {
        // In alternating order: whoever comes first may find another machine.
        let mut both = [(&servers, &mut ours), (&floors, &mut floor)];
        if round % 2 == 1 {
            both.reverse();
        }
        for (servers, costs) in both {
            let costs_of_round = servers.iter().zip(&counts).map(|(server, &count)| {
                let generators =
                    if count < all { format!("{count}-{}", all - 1) } else { format!("0-{}", all - 1) };
                server.cost(&generators, all.saturating_sub(count).max(1), bench.course.seconds)
            });
            costs.push(costs_of_round.collect::<Result<Vec<_>>>()?);
        }
    }
    let told = counts.iter().enumerate().map(|(place, count)| {
        let mean = |costs: &[Vec<f64>]| {
            costs.iter().map(|round| round[place]).sum::<f64>() / costs.len().max(1) as f64
        };
        format!("{count} workers {} µs, floor {} µs", significant(mean(&ours)), significant(mean(&floor)))
    });
    let told = told.collect::<Vec<_>>().join("; ");
    let most = |costs: &[Vec<f64>]| {
        costs
            .iter()
            .map(|round| round[1..].iter().map(|cost| cost / round[0]).fold(0.0, f64::max))
            .collect::<Vec<_>>()
    };
    Ok(Figure { floor: Spread::of(most(&floor)), ..Figure::of(most(&ours), told)? })
}

/// CPU time of the busiest worker in parts of the mean, with one worker for each processor.
pub fn busiest(bench: &Bench, connections: u32) -> Result<Figure> {
    let all = processors();
    let connections = bench.many(connections, connections.min(200));
    let everywhere = format!("0-{}", all - 1);
    let mut ratios = Vec::new();
    let mut told = String::new();
    for _ in 0..bench.many(3, 1) {
        // Where connections are put is decided when they are opened: each round opens its own, on a server of its own.
        let server = Workers::start(all, &everywhere, FILES)?;
        let workers = worker_threads(server.child.id())?;
        if workers.len() != all {
            bail!("{} workers were found, not {all}", workers.len());
        }
        let before = times(&workers)?;
        server.load(&everywhere, 2, connections, bench.course.seconds + 1)?;
        let used: Vec<f64> = times(&workers)?.iter().zip(&before).map(|(now, before)| now - before).collect();
        let mean = used.iter().sum::<f64>() / used.len() as f64;
        ratios.push(used.iter().copied().fold(0.0, f64::max) / mean);
        told = format!(
            "{connections} connections; seconds of the last round: {}",
            used.iter().map(|used| format!("{used:.2}")).collect::<Vec<_>>().join(", ")
        );
    }
    Figure::of(ratios, told)
}

/// Folders in `/proc` of the threads that are called `tidegate-` and a number.
fn worker_threads(process: u32) -> Result<Vec<std::path::PathBuf>> {
    let mut threads = Vec::new();
    for process in cpu::process_tree(process)? {
        for thread in fs::read_dir(format!("/proc/{process}/task"))? {
            let folder = thread?.path();
            let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
            let number = name.trim().strip_prefix("tidegate-");
            if number.is_some_and(|number| number.parse::<u32>().is_ok()) {
                threads.push(folder);
            }
        }
    }
    Ok(threads)
}

/// CPU seconds of threads.
fn times(threads: &[std::path::PathBuf]) -> Result<Vec<f64>> {
    let time = |folder: &std::path::PathBuf| {
        let text = fs::read_to_string(folder.join("schedstat")).context("a worker is gone")?;
        let used: f64 = text.split_whitespace().next().context("an empty schedstat")?.parse()?;
        Ok(used / 1e9)
    };
    threads.iter().map(time).collect()
}

/// Connections that eight workers open for a request to an application of four processes that serve one connection at
/// a time, as php-fpm does.
pub fn php_reuse(bench: &Bench) -> Result<Figure> {
    const CHILDREN: usize = 4;
    let folder = workspace::target_directory().join(format!("bench/children-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let socket = folder.join("application.sock");
    let application = Application::start(&socket, CHILDREN)?;
    let site = format!(
        "fastcgi \"unix:{}\" {{ mount \"/\"; connections {CHILDREN}; queue length=1000 age=\"10s\" }}",
        socket.display()
    );
    let server = Workers::start(8, &format!("0-{}", processors() - 1), &site)?;
    let requests = server.load("0-1", 1, 64, bench.course.seconds)?;
    let connections = application.accepted.load(Relaxed);
    drop(server);
    drop(application);
    fs::remove_dir_all(&folder)?;
    let detail = format!("{connections} connections for {requests} requests");
    Ok(Figure::once(connections as f64 / requests as f64, detail))
}

/// An application that serves as many connections at once as it has threads.
struct Application {
    accepted: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
    socket: std::path::PathBuf,
    children: Vec<thread::JoinHandle<()>>,
}

impl Application {
    fn start(socket: &Path, children: usize) -> Result<Self> {
        let listener = Arc::new(UnixListener::bind(socket).context("cannot listen")?);
        let (accepted, ends) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let children = (0..children).map(|_| {
            let (listener, accepted, ends) =
                (Arc::clone(&listener), Arc::clone(&accepted), Arc::clone(&ends));
            thread::spawn(move || {
                while let Ok((connection, _)) = listener.accept() {
                    if ends.load(Relaxed) {
                        return;
                    }
                    accepted.fetch_add(1, Relaxed);
                    // A server that goes away ends the connection, which is all that there is to say of it.
                    let _ = serve(connection);
                }
            })
        });
        let children = children.collect();
        Ok(Self { accepted, ends, socket: socket.to_owned(), children })
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
        for _ in &self.children {
            let _ = UnixStream::connect(&self.socket); // wakes one that waits for a connection
        }
        for child in self.children.drain(..) {
            let _ = child.join();
        }
    }
}

/// Answers the requests of a connection, one after another (FastCGI 1.0, sections 3 and 5).
fn serve(mut connection: UnixStream) -> std::io::Result<()> {
    const STDIN: u8 = 5;
    const STDOUT: u8 = 6;
    const END: u8 = 3;
    loop {
        let mut header = [0; 8];
        connection.read_exact(&mut header)?;
        let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let mut content = vec![0; length + usize::from(header[6])];
        connection.read_exact(&mut content)?;
        if (header[1], length) != (STDIN, 0) {
            continue; // what is asked does not matter
        }
        let answer = b"Content-Type: text/plain\r\nContent-Length: 6\r\n\r\nhello\n";
        let mut out = vec![1, STDOUT, header[2], header[3], 0, answer.len() as u8, 0, 0];
        out.extend_from_slice(answer);
        out.extend_from_slice(&[1, END, header[2], header[3], 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        connection.write_all(&out)?;
    }
}
