//! `cargo xtask tools`: installs through apt what tests and benches need, and nothing twice.
//!
//! Called by `make test` and `make bench`. A tool is there when its program is there. Debian starts a server
//! when its package is installed; that is prevented, so that no port is taken and nothing runs unasked.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};

use crate::workspace;

#[derive(clap::Args)]
pub struct Arguments {
    /// What the tools are for
    #[arg(long = "for", value_enum, default_value = "test")]
    purpose: Purpose,
    /// Say what is missing; install nothing; exit 1 if anything is
    #[arg(long)]
    check: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Purpose {
    Test,
    Bench,
}

struct Tool {
    /// The program, or the path of another file, that shows that the package is there.
    program: &'static str,
    package: &'static str,
    /// The unit that Debian enables with the package.
    service: Option<&'static str>,
    purposes: &'static [Purpose],
    reason: &'static str,
}

const BOTH: &[Purpose] = &[Purpose::Test, Purpose::Bench];

/// What is needed, and why.
const TOOLS: &[Tool] = &[
    tool("cc", "gcc", BOTH, "links every Rust program; compiles zstd"),
    tool("/usr/include/stdio.h", "libc6-dev", BOTH, "what C programs include; gcc only recommends it"),
    tool("g++", "g++", BOTH, "compiles libFuzzer"),
    tool("curl", "curl", &[Purpose::Test], "a client that people use"),
    tool("wget", "wget", &[Purpose::Test], "crawls a tree that is served"),
    tool("python3", "python3", &[Purpose::Test], "a client of another make (http.client)"),
    tool("nghttp", "nghttp2-client", BOTH, "clients of HTTP/2 (nghttp, h2load)"),
    tool("/usr/share/doc/python3-venv/copyright", "python3-venv", TEST, "holds what comes from PyPI"),
    tool("ip", "iproute2", TEST, "makes the machines of the tests of load agents"),
    tool("openssl", "openssl", BOTH, "a TLS client of another make; makes the certificate of the TLS bench"),
    tool("valgrind", "valgrind", BOTH, "counts instructions"),
    tool("make", "make", BENCH, "builds peers that are newer than their packages"),
    tool("cmake", "cmake", BENCH, "configures lighttpd"),
    tool("/usr/include/openssl/ssl.h", "libssl-dev", BENCH, "what nginx and HAProxy are built with"),
    tool("/usr/include/zlib.h", "zlib1g-dev", BENCH, "what nginx is built with"),
    tool("wrk", "wrk", &[Purpose::Bench], "generates load"),
    tool("musl-gcc", "musl-tools", BENCH, "compiles the CGI script that starts quickly"),
    tool("hey", "hey", &[Purpose::Bench], "generates load, beside our own"),
    server("nginx", "nginx", "nginx", BOTH, "peer of the benches; its log proves what the generator counts"),
    server("lighttpd", "lighttpd", "lighttpd", BENCH, "peer of the benches"),
    server("apache2", "apache2", "apache2", BENCH, "peer of the benches"),
    server("haproxy", "haproxy", "haproxy", BENCH, "peer of the gateway bench"),
    server("varnishd", "varnish", "varnish", BENCH, "peer of the cache bench"),
    server("traffic_server", "trafficserver", "trafficserver", BENCH, "peer of the cache bench"),
    server("h2o", "h2o", "h2o", BENCH, "peer of the TLS and HTTP/2 benches"),
    tool("php-cgi", "php-cgi", BOTH, "runs PHP behind the server"),
    server("php-fpm8.2", "php8.2-fpm", "php8.2-fpm", BOTH, "runs PHP behind the server"),
    tool(
        "/usr/share/php8.2-mysql/mysql/mysqli.ini",
        "php8.2-mysql",
        TEST,
        "lets WordPress reach its database",
    ),
    tool("/usr/share/wordpress/wp-login.php", "wordpress", TEST, "an application that people use"),
    tool(
        "/usr/share/wordpress/wp-content/themes/twentytwentythree/style.css",
        "wordpress-theme-twentytwentythree",
        TEST,
        "what WordPress looks like",
    ),
    server("mariadbd", "mariadb-server", "mariadb", TEST, "the database of WordPress"),
    tool("puma", "puma", TEST, "runs the Ruby application"),
    tool("rackup", "ruby-rack", TEST, "what a config.ru is written in; puma does not need it"),
    tool("perl", "perl", TEST, "runs a CGI program"),
    tool(
        "/usr/lib/python3/dist-packages/uvicorn/__init__.py",
        "python3-uvicorn",
        TEST,
        "runs the Python application",
    ),
    tool(
        "/usr/lib/python3/dist-packages/websockets/__init__.py",
        "python3-websockets",
        TEST,
        "speaks WebSocket",
    ),
    server("/usr/share/tomcat10/bin/catalina.sh", "tomcat10", "tomcat10", TEST, "runs the Java application"),
    tool("ecj", "ecj", TEST, "compiles the Java application"),
    tool("/usr/share/java/hsqldb.jar", "libhsqldb-java", TEST, "the database of the Java application"),
    tool("chromium", "chromium", TEST, "a browser"),
    tool("node", "nodejs", TEST, "builds the console and tests it in the browser"),
    tool("npm", "npm", TEST, "installs what the console is built of"),
    server("slapd", "slapd", "slapd", TEST, "the directory of the tests of logins"),
    server("rsyslogd", "rsyslog", "rsyslog", TEST, "the daemon of the tests of logs that go to syslog"),
    server(
        "promtool",
        "prometheus",
        "prometheus",
        TEST,
        "says what Prometheus thinks of the metrics, and scrapes them",
    ),
    server("redis-server", "redis-server", "redis-server", TEST, "the store of the tests of shared limits"),
];

/// What is installed with npm, and why.
const NODE: &[(&str, &str, &str)] =
    &[("oidc-provider", "8.8.1", "the identity provider of the tests of logins")];

const TEST: &[Purpose] = &[Purpose::Test];
const BENCH: &[Purpose] = &[Purpose::Bench];

const fn tool(
    program: &'static str,
    package: &'static str,
    purposes: &'static [Purpose],
    reason: &'static str,
) -> Tool {
    Tool { program, package, service: None, purposes, reason }
}

const fn server(
    program: &'static str,
    package: &'static str,
    service: &'static str,
    purposes: &'static [Purpose],
    reason: &'static str,
) -> Tool {
    Tool { program, package, service: Some(service), purposes, reason }
}

/// Programs that no distribution has: Go modules, built into `target/tools`, where the tests look.
const MODULES: &[(&str, &str, &str)] = &[
    (
        "h2spec",
        "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible",
        "what the RFCs of HTTP/2 demand",
    ),
    ("pebble", "github.com/letsencrypt/pebble/v2/cmd/pebble@v2.10.1", "an ACME authority for tests"),
    (
        "pebble-challtestsrv",
        "github.com/letsencrypt/pebble/v2/cmd/pebble-challtestsrv@v2.10.1",
        "its name server",
    ),
];

/// Programs of PyPI, each in an environment of its own below `target/tools/python`: name, requirement, reason.
const PYTHON: &[(&str, &str, &str)] = &[
    ("sslyze", "sslyze==6.3.1", "looks for weaknesses of TLS"),
    ("grpcio", "grpcio==1.76.0", "a client and a server of gRPC"),
    ("schemathesis", "schemathesis==4.32.5", "asks the admin API for what its document says"),
];

/// Installs what is missing.
pub fn run(arguments: &Arguments) -> Result<()> {
    if arguments.purpose == Purpose::Bench {
        return install_what_apt_has(arguments);
    }
    both(|| install_what_apt_has(arguments), || build_modules(arguments.check))?;
    // What they install with is a package.
    both(|| install_python(arguments.check), || install_node(arguments.check))
}

/// Both at once: each waits for a network.
fn both(one: impl FnOnce() -> Result<()>, other: impl FnOnce() -> Result<()> + Send) -> Result<()> {
    thread::scope(|scope| {
        let other = scope.spawn(other);
        let one = one();
        let other = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        one.and(other)
    })
}

fn install_what_apt_has(arguments: &Arguments) -> Result<()> {
    let needed: Vec<&Tool> = TOOLS.iter().filter(|tool| tool.purposes.contains(&arguments.purpose)).collect();
    let missing: Vec<&Tool> =
        needed.iter().copied().filter(|tool| workspace::find_program(tool.program).is_none()).collect();
    if missing.is_empty() {
        println!("tools: all {} present", needed.len());
        return Ok(());
    }
    for tool in &missing {
        println!("tools: {} is missing: {}", tool.package, tool.reason);
    }
    if arguments.check {
        bail!("tools: {} missing", missing.len());
    }
    install(&missing)?;
    for tool in missing {
        if workspace::find_program(tool.program).is_none() {
            bail!("{} was installed, yet there is no {}", tool.package, tool.program);
        }
        println!("tools: {} installed", tool.package);
    }
    Ok(())
}

fn build_modules(only_check: bool) -> Result<()> {
    let folder = workspace::target_directory().join("tools");
    for &(program, module, reason) in MODULES {
        if folder.join(program).is_file() || workspace::find_program(program).is_some() {
            continue;
        }
        println!("tools: {program} is missing: {reason}");
        if only_check {
            bail!("tools: {program} missing");
        }
        if workspace::find_program("go").is_none() {
            println!(
                "tools: there is no go here to build {program} with; its tests will say that they do not run"
            );
            continue;
        }
        fs::create_dir_all(&folder).context("cannot make target/tools")?;
        workspace::run(
            Command::new("go").args(["install", module]).env("GOBIN", &folder).stdin(Stdio::null()),
        )?;
        println!("tools: {program} built");
    }
    Ok(())
}

/// What comes from npm, which is not installed for it: its tests say so where they do not run.
fn install_node(only_check: bool) -> Result<()> {
    for (package, version, reason) in NODE {
        let folder = workspace::target_directory().join("tools/node").join(package);
        if folder.join("node_modules").join(package).join("package.json").is_file() {
            continue;
        }
        println!("tools: {package} is missing: {reason}");
        if workspace::find_program("npm").is_none() {
            println!(
                "tools: there is no npm here to install {package} with; its tests will say that they do not run"
            );
            continue;
        }
        if only_check {
            bail!("tools: {package} missing");
        }
        fs::create_dir_all(&folder).context("cannot make target/tools")?;
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"])
            .arg(&folder);
        workspace::run(npm.arg(format!("{package}@{version}")).stdin(Stdio::null()))?;
        println!("tools: {package} installed");
    }
    Ok(())
}

fn install_python(only_check: bool) -> Result<()> {
    for (program, requirement, reason) in PYTHON {
        let folder = workspace::target_directory().join("tools/python").join(program);
        let is_there = folder.join("bin").join(program).is_file() || folder.join(requirement).is_file();
        if is_there && is_where_it_was_made(&folder) || workspace::find_program(program).is_some() {
            continue;
        }
        println!("tools: {program} is missing: {reason}");
        if only_check {
            bail!("tools: {program} missing");
        }
        workspace::run(
            Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder).stdin(Stdio::null()),
        )?;
        let mut pip = Command::new(folder.join("bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check", requirement]);
        workspace::run(pip.stdin(Stdio::null()))?;
        fs::write(folder.join(requirement), reason).context("cannot write below target/tools")?; // for what has no program
        println!("tools: {program} installed");
    }
    Ok(())
}

/// The programs of an environment name the folder that it was made in: in a checkout that was moved none of them starts.
fn is_where_it_was_made(folder: &Path) -> bool {
    let Ok(home) = folder.canonicalize() else { return false };
    fs::read_to_string(folder.join("bin/pip")).is_ok_and(|pip| pip.contains(&home.display().to_string()))
}

fn install(tools: &[&Tool]) -> Result<()> {
    if workspace::find_program("apt-get").is_none() {
        let packages: Vec<&str> = tools.iter().map(|tool| tool.package).collect();
        bail!("there is no apt-get here; install by hand: {}", packages.join(" "));
    }
    let _policy = StartPolicy::forbid()?;
    workspace::run(as_root("apt-get").args(["update", "-qq"]).stdout(Stdio::null()))?;
    let mut command = as_root("env");
    command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "-qq"]);
    command.args(["--no-install-recommends"]).args(tools.iter().map(|tool| tool.package));
    // apt tells a long story on standard output; its errors suffice.
    workspace::run(command.stdout(Stdio::null()))?;
    // Where systemd runs, the units just installed would start with the machine.
    if Path::new("/run/systemd/system").is_dir() {
        for service in tools.iter().filter_map(|tool| tool.service) {
            workspace::run(as_root("systemctl").args(["disable", "--quiet", "--now", service]))?;
        }
    }
    Ok(())
}

/// The command, with `sudo` before it where that is needed.
fn as_root(program: &str) -> Command {
    let mut command = if rustix::process::geteuid().is_root() {
        Command::new(program)
    } else {
        let mut command = Command::new("sudo");
        command.arg(program);
        command
    };
    command.stdin(Stdio::null());
    command
}

/// Keeps packages from starting their services while it lives: Debian asks `policy-rc.d`, and 101 means no.
/// One that is there already is left alone.
struct StartPolicy {
    is_ours: bool,
}

const POLICY: &str = "/usr/sbin/policy-rc.d";

impl StartPolicy {
    fn forbid() -> Result<Self> {
        if Path::new(POLICY).exists() {
            return Ok(Self { is_ours: false });
        }
        let draft = workspace::target_directory().join("policy-rc.d");
        fs::write(&draft, "#!/bin/sh\nexit 101\n").context("cannot write the start policy")?;
        fs::set_permissions(&draft, fs::Permissions::from_mode(0o755))?;
        workspace::run(as_root("cp").arg(&draft).arg(POLICY))?;
        Ok(Self { is_ours: true })
    }
}

impl Drop for StartPolicy {
    fn drop(&mut self) {
        if self.is_ours
            && let Err(error) = workspace::run(as_root("rm").args(["-f", POLICY]))
        {
            eprintln!("tools: {POLICY} could not be removed: {error:#}");
        }
    }
}
