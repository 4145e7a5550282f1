//! The arguments that say what is asked and how; shared by the commands that put load on a server.

use super::wrong;
use anyhow::{Context, Result, anyhow};
use clap::{Args, ValueEnum};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;
use tidegate_bench::check::Expectation;
use tidegate_bench::plan::{Load, Pace, Plan, TlsPlan};
use tidegate_bench::preflight;
use tidegate_bench::processes::PartStart;
use tidegate_bench::quantity;
use tidegate_bench::request::{Description, Mix, check_field};
use tidegate_bench::schedule::Arrivals;
use tidegate_bench::target::Url;
use tidegate_bench::urls;
use tidegate_bench::verdict::Target;
use tidegate_tls::{Connector, ConnectorOptions, Trust, TrustedRoots, system_roots};

/// What is asked.
#[derive(Args, Clone)]
pub struct Subject {
    /// What to ask for; several are asked in turn
    #[arg(value_name = "URL", required_unless_present = "file", value_parser = url)]
    pub urls: Vec<String>,
    /// A list of URLs in siege's format: `URL`, `URL POST a=b`, `URL POST <file`, `3x URL` three times as often
    #[arg(short, long, value_name = "FILE", conflicts_with = "urls")]
    pub file: Option<PathBuf>,
    /// Ask in the order of the list; else it is shuffled
    #[arg(long)]
    pub in_order: bool,
    /// For whatever is drawn at random: the order of URLs, Poisson arrivals, slow clients
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Method of the URLs on the command line [default: GET, with --data POST]
    #[arg(short = 'X', long, value_name = "METHOD", value_parser = method)]
    pub method: Option<String>,
    /// A field of every request; may be repeated
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = field)]
    pub fields: Vec<(String, String)>,
    /// Body of the URLs on the command line; @FILE reads it from a file
    #[arg(short, long, value_name = "TEXT")]
    pub data: Option<String>,
}

/// What a right answer is and what a run must reach.
#[derive(Args, Clone)]
pub struct Demands {
    /// What every answer must be: status=200,length=…,sha256=…,regex=…
    #[arg(long, value_name = "CHECKS", value_parser = checks)]
    pub expect: Vec<String>,
    /// What the run must reach: p99=50ms, mean=, max=, availability=, rate=, errors=, conforming=. A time has to be met by all requests, those without an
    /// answer with as long as they were waited for, and by those alone that were answered as expected
    #[arg(long, value_name = "TARGET", value_parser = Target::parse)]
    pub target: Vec<Target>,
    /// Bits per second that an answer must come at to conform, as SPECweb99 counts
    #[arg(long, value_name = "RATE", value_parser = quantity::bit_rate)]
    pub min_bitrate: Option<f64>,
}

/// How the generator works.
#[derive(Args, Clone)]
pub struct Generator {
    /// Threads [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Processes, where one may not hold enough descriptors [default: as many as it takes]
    #[arg(long, value_name = "N|auto", value_parser = processes)]
    pub processes: Option<u32>,
    /// Local address to connect from; may be repeated, each gives 28,000 ports
    #[arg(long = "source", value_name = "ADDRESS")]
    pub sources: Vec<IpAddr>,
    /// A request fails when no byte has come for so long; so does a connect
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = quantity::duration)]
    pub timeout: Duration,
    /// How long answers that are outstanding at the end of --time are waited for [default: 10s, with sweep and peak 2s]
    #[arg(long, value_name = "TIME", value_parser = quantity::duration)]
    pub grace: Option<Duration>,
    /// End when nothing was answered for so long and connects failed
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = quantity::duration)]
    pub give_up: Duration,
    #[command(flatten)]
    pub tls: TlsManner,
    #[arg(long, hide = true, value_parser = part)]
    pub part: Option<PartStart>,
}

/// How much load, and of what kind.
#[derive(Args, Clone)]
pub struct Intensity {
    /// Connections at once
    #[arg(short, long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub connections: u32,
    /// Requests in all
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: Option<u64>,
    /// Time in all [default: 10s, where no count is given]
    #[arg(short, long, value_name = "TIME", value_parser = quantity::duration)]
    pub time: Option<Duration>,
    /// Time before that whose requests are not counted
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = quantity::duration)]
    pub warmup: Duration,
    /// Requests per second on a schedule that the server cannot slow down (open loop)
    #[arg(long, value_name = "RATE", value_parser = quantity::rate)]
    pub rate: Option<f64>,
    /// How scheduled requests follow each other
    #[arg(long, value_enum, default_value = "constant", requires = "rate")]
    pub arrivals: ArrivalsName,
    #[command(flatten)]
    pub manner: ConnectionOptions,
}

/// How connections are used.
#[derive(Args, Clone)]
pub struct ConnectionOptions {
    /// Close the connection after each request
    #[arg(long)]
    pub no_keepalive: bool,
    /// Speak HTTP/1.0; a connection stays where the server says so, as with ab -k
    #[arg(long = "http1.0", conflicts_with_all = ["pipeline", "h2"])]
    pub http10: bool,
    /// Requests sent on a connection before their answers came
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub pipeline: u32,
    /// Time over which the connections are opened
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = quantity::duration)]
    pub ramp: Duration,
    /// Connections that read slowly: `25%:10KiB` reads a quarter of them at 10 KiB/s
    #[arg(long, value_name = "SHARE:RATE", value_parser = pace)]
    pub slow_readers: Option<Pace>,
    /// Connections that send their requests slowly
    #[arg(long, value_name = "SHARE:RATE", value_parser = pace)]
    pub slow_writers: Option<Pace>,
    /// Speak HTTP/2: over https by ALPN, over http from the first byte on (h2c)
    #[arg(long, conflicts_with = "pipeline")]
    pub h2: bool,
    /// Requests at once on each connection of HTTP/2 [default: 1]
    #[arg(short = 'm', long, value_name = "N", requires = "h2", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub streams: Option<u32>,
    /// Said of other generators' options: it is not there
    #[arg(long, hide = true)]
    pub h3: bool,
}

/// How TLS is spoken with https URLs.
#[derive(Args, Clone)]
pub struct TlsManner {
    /// Trust every certificate, as for a test server's own
    #[arg(long)]
    pub insecure: bool,
    /// Trust servers whose certificates one of these has signed, a PEM file [default: whom the system trusts]
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub roots: Option<PathBuf>,
    /// Share of TLS connections that resume a session, in percent; the others begin anew
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub tls_resume: u8,
    /// Offer one version of TLS alone
    #[arg(long, value_name = "VERSION", value_parser = ["1.2", "1.3"])]
    pub tls_version: Option<String>,
    /// Offer no hybrid key exchange (X25519MLKEM768), as clients of yesterday
    #[arg(long)]
    pub tls_classical: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ArrivalsName {
    /// At equal distances
    Constant,
    /// At random, as many independent users
    Poisson,
}

impl Subject {
    /// One URL and nothing special.
    pub fn of_url(url: &str, seed: u64) -> Subject {
        Subject {
            urls: vec![url.to_owned()],
            file: None,
            in_order: false,
            seed,
            method: None,
            fields: Vec::new(),
            data: None,
        }
    }

    /// The requests, and what to call them.
    pub fn descriptions(&self) -> Result<(String, Vec<Description>)> {
        let mut list = match &self.file {
            Some(file) => urls::read(file)?,
            None => self.urls.iter().map(|url| self.description(url)).collect::<Result<_>>()?,
        };
        for description in &mut list {
            description.fields.extend(self.fields.iter().cloned());
        }
        let name = match (&self.file, self.urls.as_slice()) {
            (Some(file), _) => format!("{} URLs of {}", list.len(), file.display()),
            (None, [url]) => url.clone(),
            (None, several) => format!("{} URLs", several.len()),
        };
        Ok((name, list))
    }

    fn description(&self, url: &str) -> Result<Description> {
        let mut description = Description::get(Url::parse(url)?);
        if let Some(data) = &self.data {
            description.body = match data.strip_prefix('@') {
                Some(path) => std::fs::read(path).with_context(|| format!("cannot read the body {path}"))?,
                None => data.clone().into_bytes(),
            };
            description.method = "POST".to_owned();
            description.fields.push(("Content-Type".into(), "application/x-www-form-urlencoded".into()));
        }
        if let Some(method) = &self.method {
            description.method = method.clone();
        }
        Ok(description)
    }

    /// The mix, ready to send.
    pub fn mix(&self, keep_alive: bool) -> Result<(String, Mix)> {
        let (name, list) = self.descriptions()?;
        let mix = Mix::build(&list, keep_alive, (!self.in_order).then_some(self.seed))?;
        Ok((name, mix))
    }
}

impl Demands {
    pub fn expectation(&self) -> Result<Expectation> {
        let mut expectation = Expectation::default();
        for text in &self.expect {
            expectation.demand(text).map_err(|error| anyhow!("--expect {text}: {error}"))?;
        }
        Ok(expectation)
    }

    pub fn targets(&self) -> Result<Vec<Target>> {
        let is_of_bitrate = |target: &Target| matches!(target, Target::Conforming(_));
        if self.min_bitrate.is_none() && self.target.iter().any(is_of_bitrate) {
            return Err(wrong(
                "--target conforming= needs the bit rate that answers conform to: --min-bitrate",
            ));
        }
        Ok(self.target.clone())
    }
}

impl ConnectionOptions {
    /// What this build cannot do yet, and what goes ill together.
    pub fn objection(&self) -> Option<&'static str> {
        if self.h3 {
            Some("this build of bench has not learnt HTTP/3 yet; leave --h3 away to measure HTTP/1.1")
        } else if self.h2 && (self.slow_readers.is_some() || self.slow_writers.is_some()) {
            Some("--slow-readers and --slow-writers go with HTTP/1.1 only; leave --h2 away")
        } else if self.no_keepalive && self.streams.is_some_and(|streams| streams > 1) {
            Some("with --no-keepalive each connection carries one request; leave --streams away")
        } else {
            None
        }
    }

    pub fn apply(&self, plan: &mut Plan) {
        plan.keep_alive &= !self.no_keepalive;
        if self.http10 {
            plan.speak_http10();
        }
        plan.pipeline = self.pipeline;
        plan.streams = self.h2.then_some(self.streams.unwrap_or(1));
        plan.ramp = self.ramp;
        plan.slow_readers = self.slow_readers;
        plan.slow_writers = self.slow_writers;
    }
}

impl Intensity {
    /// Load and manner.
    pub fn apply(&self, plan: &mut Plan) -> Result<()> {
        plan.connections = self.connections;
        plan.requests = self.requests;
        plan.time = self.time.or(self.requests.is_none().then_some(Duration::from_secs(10)));
        plan.warmup = self.warmup;
        if let Some(rate) = self.rate {
            plan.load = Load::Open { rate, arrivals: self.arrivals.kind() };
            if self.manner.pipeline > 1 {
                return Err(wrong(
                    "--pipeline goes with a closed loop only: scheduled requests never wait behind another",
                ));
            }
        }
        self.manner.apply(plan);
        Ok(())
    }
}

impl ArrivalsName {
    pub fn kind(self) -> Arrivals {
        match self {
            ArrivalsName::Constant => Arrivals::Constant,
            ArrivalsName::Poisson => Arrivals::Poisson,
        }
    }
}

impl TlsManner {
    /// For a plan in whose mix a server speaks TLS, HTTP/2 where `is_h2`.
    fn plan(&self, is_h2: bool) -> Result<TlsPlan> {
        let trust = if self.insecure {
            Trust::Anybody
        } else {
            let path = self.roots.clone().unwrap_or_else(system_roots);
            Trust::Roots(TrustedRoots::read(&path).context("--roots")?)
        };
        let version = self.tls_version.as_deref();
        let options = |resumes| ConnectorOptions {
            resumes,
            tls12: version != Some("1.3"),
            tls13: version != Some("1.2"),
            hybrid: !self.tls_classical,
            // Who does not know the first shall say so by choosing the second.
            protocols: if is_h2 {
                vec![b"h2".to_vec(), b"http/1.1".to_vec()]
            } else {
                vec![b"http/1.1".to_vec()]
            },
            ..ConnectorOptions::new(trust.clone())
        };
        Ok(TlsPlan {
            fresh: Connector::new(&options(false))?,
            resuming: Connector::new(&options(true))?,
            resumes: f64::from(self.tls_resume) / 100.0,
        })
    }
}

impl Generator {
    /// Threads, addresses and limits; after the connections are known. Says how many processes it takes.
    pub fn apply(&self, plan: &mut Plan) -> Result<u32> {
        let descriptors = preflight::raise_descriptors();
        let needed = preflight::processes_for(plan.connections, descriptors);
        let processes = self
            .part
            .map_or(self.processes.filter(|count| *count > 0).unwrap_or(needed), |part| part.part.of);
        if processes < needed {
            return Err(wrong(format!(
                "{} connections take {needed} processes of {descriptors} descriptors each; use --processes auto",
                plan.connections
            )));
        }
        if plan.streams.is_some() && !plan.mix.is_of_one_server() {
            return Err(wrong("with --h2 all URLs must be of one server: its connections carry all of them"));
        }
        if plan.mix.is_tls() {
            plan.tls = Some(self.tls.plan(plan.streams.is_some())?);
        }
        plan.timeout = self.timeout;
        plan.give_up = self.give_up;
        if let Some(grace) = self.grace {
            plan.drain = grace;
        }
        plan.sources = if self.sources.is_empty() && plan.mix.is_loopback() {
            preflight::loopback_sources(plan.connections)
        } else {
            self.sources.clone()
        };
        if !self.sources.is_empty() {
            preflight::check_sources(plan).map_err(wrong)?;
        }
        if let Some(part) = self.part {
            plan.take_part(part.part);
        }
        let each = if self.part.is_some() { plan.connections } else { plan.connections.div_ceil(processes) };
        let automatic = (preflight::threads_for(plan.connections) / processes).max(1);
        plan.threads = self.threads.unwrap_or(automatic).min(each.max(1));
        Ok(processes)
    }
}

/// A URL that can be asked, as it was written.
pub fn url(text: &str) -> Result<String, String> {
    Url::parse(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// A token (RFC 9110 section 9.1).
fn method(text: &str) -> Result<String, String> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_token) {
        return Ok(text.to_owned());
    }
    Err("a method is one word of letters, digits and !#$%&'*+-.^_`|~".to_owned())
}

fn checks(text: &str) -> Result<String, String> {
    Expectation::default().demand(text).map(|()| text.to_owned()).map_err(|error| error.to_string())
}

/// A field of requests. What frames a request is the generator's: another length than that of the body would make
/// the server take one request for another.
pub fn field(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write 'Name: value'")?;
    let (name, value) = (name.trim(), value.trim());
    if ["content-length", "transfer-encoding"].iter().any(|framing| name.eq_ignore_ascii_case(framing)) {
        return Err(format!("{name} is set from the body of the request; name that with --data"));
    }
    check_field(name, value).map_err(|fault| fault.to_string())?;
    Ok((name.to_owned(), value.to_owned()))
}

fn processes(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(count @ 1..=256) => Ok(count),
        _ if text == "auto" => Ok(0),
        _ => Err("a number from 1 to 256, or auto".to_owned()),
    }
}

fn part(text: &str) -> Result<PartStart, String> {
    PartStart::parse(text).ok_or_else(|| "INDEX/OF@START".to_owned())
}

fn pace(text: &str) -> Result<Pace, String> {
    let (share, rate) = text.split_once(':').ok_or("write SHARE:RATE, such as 25%:10KiB")?;
    let share = quantity::share(share).map_err(|error| error.to_string())?;
    let rate = quantity::size(rate).map_err(|error| error.to_string())?;
    Ok(Pace { rate, share })
}
