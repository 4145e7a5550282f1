//! `cargo xtask bench tier`: four front ends before an application that takes 200 ms for each answer.
//!
//! Three setups take turns: front ends without a cache, front ends with one each, and front ends with one each before two
//! shields, which are chosen by a consistent hash of the URL with bounded loads. Every setup gets the same requests: keys
//! by Zipf's law, dealt to the front ends beforehand, so that how many requests have to reach the application is known. Counts
//! are what it is about, and they are exact; times are those of clients on the same machine.

use std::collections::HashSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::report::{Table, grouped};
use super::responder::work;
use super::server::{end, free_port, read_response, wait_until_listening};
use super::tier_picture::{self, Bars};
use super::{host, static_files};

#[derive(clap::Args)]
pub struct Arguments {
    /// Requests to each setup in each round
    #[arg(long, default_value_t = 1_600, value_parser = clap::value_parser!(u32).range(1..))]
    requests: u32,
    /// Clients of each front end, each with one request at a time
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=256))]
    clients: u32,
    /// Different URLs
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..))]
    keys: u32,
    /// Rounds; in each the setups take turns
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// The program to measure [default: the release binary, built first]
    #[arg(long)]
    program: Option<PathBuf>,
    /// Where to draw the figures, such as docs/pictures/tier.svg
    #[arg(long)]
    picture: Option<PathBuf>,
}

const FRONTS: usize = 4;
const SHIELDS: usize = 2;
/// What an answer of the application takes.
const TIME: Duration = Duration::from_millis(200);
/// Bytes of an answer.
const SIZE: usize = 10_000;
/// What clients ask for first, so that connections are there when it counts. It takes no time, and is not stored.
const WARM_UP: &str = "warm-up";
/// Of what a hash with bounded loads spreads over both shields, so much may be fetched by both.
const SPREAD: f64 = 1.25;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Setup {
    None,
    Fronts,
    Shields,
}

impl Setup {
    const ALL: [Setup; 3] = [Setup::None, Setup::Fronts, Setup::Shields];

    fn name(self) -> &'static str {
        match self {
            Setup::None => "no cache",
            Setup::Fronts => "a cache in each front",
            Setup::Shields => "and two shields behind",
        }
    }

    /// Requests that have to reach the application: the first for a URL, wherever nobody else has it.
    fn expected(self, dealt: &[Vec<u32>]) -> usize {
        match self {
            Setup::None => dealt.iter().map(Vec::len).sum(),
            Setup::Fronts => dealt.iter().map(|keys| keys.iter().collect::<HashSet<_>>().len()).sum(),
            Setup::Shields => dealt.iter().flatten().collect::<HashSet<_>>().len(),
        }
    }

    /// Whether so many have reached it as had to.
    fn is_right(self, reached: usize, expected: usize) -> bool {
        match self {
            Setup::None | Setup::Fronts => reached == expected,
            Setup::Shields => (expected..=(expected as f64 * SPREAD) as usize).contains(&reached),
        }
    }
}

/// What a setup came to, in all rounds.
#[derive(Debug, Default)]
struct Outcome {
    requests: usize,
    reached: usize,
    expected: usize,
    is_wrong: bool,
    times: Vec<Duration>,
}

impl Outcome {
    fn hit_ratio(&self) -> f64 {
        100.0 * (1.0 - self.reached as f64 / self.requests.max(1) as f64)
    }

    /// Of the sorted times the one that so many percent do not exceed.
    fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.times.len() * percent).div_ceil(100).saturating_sub(1);
        self.times.get(rank).copied().unwrap_or_default()
    }
}

/// Measures the setups in turn, prints the table and draws it; an error where counts are not what they have to be.
pub fn run(arguments: &Arguments) -> Result<()> {
    host::prepare()?;
    let program = static_files::program(arguments.program.as_deref())?;
    println!("{}, {}", host::today(), host::description());
    println!(
        "{FRONTS} front ends with {} clients each, an application that takes {} ms; {} requests for {} URLs (Zipf, α = 1), {} rounds\n",
        arguments.clients,
        TIME.as_millis(),
        grouped(arguments.requests.into()),
        grouped(arguments.keys.into()),
        arguments.rounds
    );
    let mut outcomes = Setup::ALL.map(|_| Outcome::default());
    for round in 0..arguments.rounds {
        let dealt = deal(arguments, round.into());
        for (setup, outcome) in Setup::ALL.into_iter().zip(&mut outcomes) {
            measure(&program, setup, &dealt, arguments.clients, outcome)?;
        }
    }
    outcomes.iter_mut().for_each(|outcome| outcome.times.sort_unstable());
    println!("{}", table(&outcomes));
    if let Some(path) = &arguments.picture {
        fs::write(path, picture(&outcomes)).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some((setup, _)) = Setup::ALL.iter().zip(&outcomes).find(|(_, outcome)| outcome.is_wrong) {
        bail!("with {} another number of requests reached the application than has to", setup.name());
    }
    Ok(())
}

fn table(outcomes: &[Outcome]) -> Table<7> {
    let mut table =
        Table::new(["setup", "requests", "reach the application", "have to", "hits", "p50 ms", "p99 ms"]);
    for (setup, outcome) in Setup::ALL.iter().zip(outcomes) {
        table.row([
            setup.name().to_owned(),
            grouped(outcome.requests as f64),
            grouped(outcome.reached as f64),
            grouped(outcome.expected as f64),
            format!("{:.1} %", outcome.hit_ratio()),
            format!("{:.1}", milliseconds(outcome.percentile(50))),
            format!("{:.1}", milliseconds(outcome.percentile(99))),
        ]);
    }
    table
}

fn picture(outcomes: &[Outcome]) -> String {
    let reached = |outcome: &Outcome| (outcome.reached as f64, grouped(outcome.reached as f64));
    let time = |time: Duration| (milliseconds(time), format!("{:.1} ms", milliseconds(time)));
    let bars = |title: String, of: &dyn Fn(&Outcome) -> (f64, String)| Bars {
        title,
        bars: Setup::ALL.iter().zip(outcomes).map(|(setup, outcome)| (setup.name(), of(outcome))).collect(),
    };
    let requests = outcomes.first().map_or(0.0, |outcome| outcome.requests as f64);
    tier_picture::draw(&[
        bars(format!("requests that reach the application, of {}", grouped(requests)), &reached),
        bars("half of the clients wait no longer than".to_owned(), &|outcome| time(outcome.percentile(50))),
        bars("99 % of the clients wait no longer than".to_owned(), &|outcome| time(outcome.percentile(99))),
    ])
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

/// The keys that clients of each front end ask for, in this order.
fn deal(arguments: &Arguments, seed: u64) -> Vec<Vec<u32>> {
    let mut sum = 0.0;
    let weights = (1..=arguments.keys).map(|rank| 1.0 / f64::from(rank));
    let sums: Vec<f64> = weights
        .map(|weight| {
            sum += weight;
            sum
        })
        .collect();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut dealt = vec![Vec::new(); FRONTS];
    for request in 0..arguments.requests as usize {
        let drawn = random.f64() * sum;
        let key = sums.partition_point(|upto| *upto <= drawn).min(sums.len().saturating_sub(1));
        dealt[request % FRONTS].push(key as u32);
    }
    dealt
}

/// Starts the servers of a setup and has all requests answered.
fn measure(
    program: &Path,
    setup: Setup,
    dealt: &[Vec<u32>],
    clients: u32,
    outcome: &mut Outcome,
) -> Result<()> {
    let application = Application::start()?;
    let mut behind = vec![application.port];
    let mut shields = Vec::new();
    if setup == Setup::Shields {
        for _ in 0..SHIELDS {
            shields.push(Server::start(program, &[application.port], true)?);
        }
        behind = shields.iter().map(|shield| shield.port).collect();
    }
    let fronts = (0..FRONTS).map(|_| Server::start(program, &behind, setup != Setup::None));
    let fronts = fronts.collect::<Result<Vec<_>>>()?;
    let asked: Vec<Asked<'_>> = fronts
        .iter()
        .zip(dealt)
        .map(|(front, keys)| Asked { port: front.port, keys, next: AtomicUsize::new(0) })
        .collect();
    let times = std::thread::scope(|scope| {
        let all = asked.iter().flat_map(|asked| (0..clients).map(move |_| asked));
        let threads: Vec<_> = all.map(|asked| scope.spawn(move || asked.ask())).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("invariant: it returns errors"))
            .collect::<Result<Vec<_>>>()
    })?;
    let (reached, expected) = (application.requests.load(Relaxed), setup.expected(dealt));
    outcome.requests += dealt.iter().map(Vec::len).sum::<usize>();
    outcome.reached += reached;
    outcome.expected += expected;
    outcome.is_wrong |= !setup.is_right(reached, expected);
    outcome.times.extend(times.into_iter().flatten());
    Ok(())
}

/// What the clients of one front end ask for.
struct Asked<'a> {
    port: u16,
    keys: &'a [u32],
    next: AtomicUsize,
}

impl Asked<'_> {
    /// One client: a request after another, as long as there are any. How long each took.
    fn ask(&self) -> Result<Vec<Duration>> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        fetch(&mut stream, WARM_UP)?;
        let mut times = Vec::new();
        while let Some(key) = self.keys.get(self.next.fetch_add(1, Relaxed)) {
            let begun = Instant::now();
            fetch(&mut stream, &key.to_string())?;
            times.push(begun.elapsed());
        }
        Ok(times)
    }
}

fn fetch(stream: &mut TcpStream, name: &str) -> Result<()> {
    stream.write_all(format!("GET /{name} HTTP/1.1\r\nHost: tier.test\r\n\r\n").as_bytes())?;
    let (head, length) = read_response(stream)?;
    if !head.starts_with("HTTP/1.1 200 ") || length != SIZE {
        bail!("/{name} was answered with {}", head.lines().next().unwrap_or_default());
    }
    Ok(())
}

/// A Tidegate with a folder of its own.
struct Server {
    child: Child,
    folder: PathBuf,
    port: u16,
}

impl Server {
    fn start(program: &Path, behind: &[u16], is_cached: bool) -> Result<Server> {
        let port = free_port()?;
        let folder = std::env::temp_dir().join(format!("tidegate-tier-{}-{port}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let members =
            behind.iter().map(|port| format!("    member \"127.0.0.1:{port}\"\n")).collect::<String>();
        let [store, used] =
            if is_cached { ["cache \"main\" { memory \"64MiB\" }\n", "cache \"main\"; "] } else { [""; 2] };
        let settings = format!(
            "workers 1\nlisten \"127.0.0.1:{port}\"\n{store}upstream \"behind\" {{\n    balance hash by=\"url\" balance-factor=125\n{members}}}\n\
             site {{ {used}proxy \"http://behind\" }}\n"
        );
        fs::write(folder.join("tier.kdl"), settings)?;
        let child = Command::new(program)
            .args(["serve", "--config"])
            .arg(folder.join("tier.kdl"))
            .arg("--control")
            .arg(folder.join("control"))
            .stdout(Stdio::null())
            .stderr(fs::File::create(folder.join("error.log"))?)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let mut server = Server { child, folder, port };
        wait_until_listening(&mut server.child, || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok())?;
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.child);
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// An application that takes its time for each request, as many as there are at once, and counts them. It ends with the process.
struct Application {
    port: u16,
    requests: Arc<AtomicUsize>,
}

impl Application {
    fn start() -> Result<Application> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let application = Application { port: listener.local_addr()?.port(), requests: Arc::default() };
        let requests = application.requests.clone();
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let requests = requests.clone();
                std::thread::spawn(move || serve(stream, &requests));
            }
        });
        Ok(application)
    }
}

/// Answers the requests of a connection, one after the other, until it ends.
fn serve(mut stream: TcpStream, requests: &AtomicUsize) -> std::io::Result<()> {
    let (stored, not_stored) = (answer("max-age=3600"), answer("no-store"));
    let (mut have, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        have.extend_from_slice(&buffer[..count]);
        if !have.ends_with(b"\r\n\r\n") {
            continue;
        }
        if have.starts_with(format!("GET /{WARM_UP} ").as_bytes()) {
            stream.write_all(&not_stored)?;
        } else {
            requests.fetch_add(1, Relaxed);
            work(TIME);
            stream.write_all(&stored)?;
        }
        have.clear();
    }
}

fn answer(cache_control: &str) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nCache-Control: {cache_control}\r\nContent-Length: {SIZE}\r\n\r\n");
    let mut answer = head.into_bytes();
    answer.resize(answer.len() + SIZE, b'x');
    answer
}
