//! `cargo xtask bench fairness`: a healthy site beside one whose application hangs, with thousands of clients.
//!
//! For each kind of application the healthy site is measured alone, on a schedule that the server cannot slow down, and
//! once more while thousands of clients wait for an application of the same kind that never answers. What its clients
//! get, and how long the slowest of a hundred waits, must be what it was (FAULTS 58).

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::gateway_peers::{Process, ask, connects};
use super::generator::{self, Load, words};
use super::peers::Kind;
use super::report::{Table, grouped};
use super::server::{Server, Setup, free_port, read_response, wait_until_listening};
use super::{host, static_files};

#[derive(clap::Args)]
pub struct Arguments {
    /// Seconds of each run
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Seconds in which the clients of the hung site come
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    warmup: u32,
    /// Clients of the hung site
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=9_000))]
    clients: u32,
    /// Requests per second for the healthy site
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// Kinds of applications
    #[arg(long, value_enum, value_delimiter = ',', default_value = "proxy,fastcgi,pool,cgi")]
    kinds: Vec<Hung>,
    /// Use the release binary that is there
    #[arg(long)]
    no_build: bool,
}

/// How the application is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Hung {
    Proxy,
    Fastcgi,
    Pool,
    Cgi,
}

/// Of what the healthy site answered alone.
const LEAST_GOODPUT: f64 = 0.98;
/// Times may be longer by a quarter, or by what one turn of a busy worker takes.
const MOST_TIMES: f64 = 1.25;
const GRACE: Duration = Duration::from_millis(10);
/// Connections of the generator to the healthy site.
const CONNECTIONS: u32 = 100;
const SCRIPT: &str = "#!/bin/sh\necho 'Content-Type: text/plain'\necho\necho fine\n";
const HUNG_SCRIPT: &str = "#!/bin/sh\nexec sleep 100000\n";

/// Runs all kinds and prints the table; an error when the healthy site was not left alone.
pub fn run(arguments: &Arguments) -> Result<()> {
    host::prepare()?;
    if !arguments.no_build {
        static_files::build()?;
    }
    println!("{}, {}", host::today(), host::description());
    println!(
        "{} requests a second for the healthy site, {} clients of the hung one, {} s each\n",
        arguments.rate, arguments.clients, arguments.seconds
    );
    let mut table = Table::new([
        "application",
        "goodput alone",
        "beside",
        "p99 alone",
        "beside",
        "failed beside",
        "of that kind",
    ]);
    let mut is_broken = false;
    for kind in &arguments.kinds {
        let (alone, beside) = measure(*kind, arguments).with_context(|| format!("{kind:?}"))?;
        let goodput = |load: &Load| load.rate * load.availability() / 100.0;
        let most = alone.latency.p99.mul_f64(MOST_TIMES).max(alone.latency.p99 + GRACE);
        is_broken |= goodput(&beside) < goodput(&alone) * LEAST_GOODPUT || beside.latency.p99 > most;
        let milliseconds = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
        table.row([
            format!("{kind:?}").to_lowercase(),
            format!("{:.1}", goodput(&alone)),
            format!("{:.1}", goodput(&beside)),
            milliseconds(alone.latency.p99),
            milliseconds(beside.latency.p99),
            grouped(beside.failed() as f64),
            beside.errors_text(),
        ]);
    }
    println!("{table}");
    if is_broken {
        bail!("a promise was broken: an application that hangs is felt by the site beside it");
    }
    Ok(())
}

/// What a site says of a path that it does not have.
fn ask_of(port: u16, host: &str) -> Result<(String, usize)> {
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port))?;
    write!(stream, "GET /nothing HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
    read_response(&mut stream)
}

/// The healthy site alone, and beside the hung one.
fn measure(kind: Hung, arguments: &Arguments) -> Result<(Load, Load)> {
    let mut setup = Setup::new(Duration::from_secs(60), arguments.clients + CONNECTIONS + 200)?;
    let scripts = setup.folder.join("scripts");
    fs::create_dir_all(&scripts)?;
    for (name, text) in [("fine", SCRIPT), ("hung", HUNG_SCRIPT)] {
        fs::write(scripts.join(name), text)?;
        fs::set_permissions(scripts.join(name), fs::Permissions::from_mode(0o755))?;
    }
    // Connections to these are taken by the kernel, and nobody reads from them.
    let (port, socket) = (TcpListener::bind("127.0.0.1:0")?, setup.folder.join("hung.sock"));
    let path = UnixListener::bind(&socket)?;
    for backlog in [rustix::net::listen(&port, 4096), rustix::net::listen(&path, 4096)] {
        backlog?;
    }
    let well = setup.folder.join("well.sock");
    let own = std::env::current_exe()?;
    let own = own.to_string_lossy();
    let http = free_port()?;
    let pool = |name: &str, command: &str| {
        format!("pool \"{name}\" {{ {command}; processes min=8 max=8; queue length=10000 age=\"60s\" }}\n")
    };
    let mut applications = Vec::new();
    let mut start = |words: &[&str], is_there: &dyn Fn() -> bool| -> Result<()> {
        let mut command = host::pinned(host::GENERATOR_PROCESSOR, &own);
        let mut child = command.args(words).stdout(std::process::Stdio::null()).spawn()?;
        wait_until_listening(&mut child, is_there)?;
        applications.push(Process(child));
        Ok(())
    };
    let (pools, well, hung) = match kind {
        Hung::Proxy => {
            start(&["scripted", &http.to_string(), "fixed"], &|| connects(http))?;
            let hung = format!("proxy \"http://{}\"", port.local_addr()?);
            (String::new(), format!("proxy \"http://127.0.0.1:{http}\""), hung)
        }
        Hung::Fastcgi => {
            start(&["responder", &well.to_string_lossy(), "1024"], &|| well.exists())?;
            let to =
                |socket: &std::path::Path| format!("fastcgi \"unix:{}\" {{ mount \"/\" }}", socket.display());
            (String::new(), to(&well), to(&socket))
        }
        Hung::Pool => {
            let pools =
                pool("well", &format!("command {own:?} \"responder\" \"-\" \"1024\" \"--workers\" \"1\""))
                    + &pool("hung", "command \"sleep\" \"100000\"");
            let to = |name: &str| format!("fastcgi \"{name}\" {{ mount \"/\" }}");
            (pools, to("well"), to("hung"))
        }
        Hung::Cgi => {
            let pools = pool("well", "cgi-stubs") + &pool("hung", "cgi-stubs");
            let to = |name: &str| format!("cgi \"{name}\"; alias {:?}", scripts.to_string_lossy());
            (pools, to("well"), to("hung"))
        }
    };
    setup.directives =
        format!("{pools}site \"hung.test\" {{ respond 404; route \"/app/*\" {{ {hung} }} }}\n");
    setup.site_directives = format!("route \"/app/*\" {{ {well} }}");
    let server = Server::start(Kind::Tidegate, false, &setup)?;
    let url = |path: &str| format!("http://127.0.0.1:{}/app/{path}", server.port);
    let (head, _) = ask(server.port, "/app/fine")?;
    if !head.starts_with("HTTP/1.1 200 ") {
        bail!("the healthy site answers {}", head.lines().next().unwrap_or_default());
    }
    let well = words(&format!(
        "hit {} -c {CONNECTIONS} -t {}s --rate {} --timeout 10s",
        url("fine"),
        arguments.seconds,
        arguments.rate
    ));
    // A site with a mistake is left out, and its clients would be the healthy site's.
    let (head, _) = ask_of(server.port, "hung.test")?;
    if !head.starts_with("HTTP/1.1 404 ") {
        bail!("the hung site answers {}", head.lines().next().unwrap_or_default());
    }
    let alone = generator::run(&well)?;
    let crowd =
        words(&format!("hit {} -c {} -t 3600s --rate 1000 --timeout 3600s", url("hung"), arguments.clients));
    let crowd = [&crowd[..], &["--header".to_owned(), "Host: hung.test".to_owned()]].concat();
    let mut crowd = generator::start(&crowd)?;
    std::thread::park_timeout(Duration::from_secs(arguments.warmup.into()));
    let beside = generator::run(&well)?;
    if !crowd.is_running()? {
        bail!("the clients of the hung site have gone: {:?}", crowd.finish()?.errors_text());
    }
    crowd.stop();
    drop((port, path));
    Ok((alone, beside))
}
