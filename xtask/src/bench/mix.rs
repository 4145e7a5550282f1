//! A mix of requests, for the profile: what browsers and clients of an API ask of files and applications, over every protocol.
//!
//! Run as `xtask mix` by `profile`: one server with some of everything, asked by our own generator.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use anyhow::{Result, bail};

use super::gateway_peers::{Process, connects};
use super::server::{free_port, wait_until_listening};
use super::{generator, host, tls_peers};
use crate::workspace;

/// What they say beside the least that a load generator does.
const FIELDS: [&str; 7] = [
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "Accept-Language: en-US,en;q=0.5",
    "Accept-Encoding: gzip, deflate, br, zstd",
    "Referer: http://localhost/articles/2026/11/one.html?from=front",
    "Cookie: session=0123456789abcdef0123456789abcdef; theme=dark; seen=1",
    "Sec-Fetch-Mode: no-cors",
];

/// What is asked for, and what each request says beside that.
const REQUESTS: [(&str, &[&str]); 13] = [
    ("/1k.bin", &[]),
    ("/page.html", &[]),
    ("/100k.bin", &[]),
    ("/100k.bin", &["-H", "Range: bytes=1000-1999"]),
    ("/page.html", &["-H", "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT"]),
    ("/", &[]),
    ("/nowhere", &[]),
    ("/moved", &[]),
    ("/1k.bin", &["-X", "HEAD"]),
    ("/app/one?two=three", &[]),
    ("/app/one", &["-d", "name=value&other=one+more"]),
    ("/fcgi/one?two=three", &[]),
    ("/fcgi/one", &["-d", "name=value&other=one+more"]),
];

/// How the generator ends that cannot be trusted to have measured: nothing is done but to load the server.
const INVALID: i32 = 98;

/// What our generator ends with where answers are no success.
const NO_SUCCESS: i32 = 99;

/// Bytes of an application's answer.
const LENGTH: &str = "1024";

pub fn run() -> Result<()> {
    let folder = workspace::target_directory().join(format!("bench/mix-{}", std::process::id()));
    let done = fs::create_dir_all(folder.join("www")).map_err(Into::into).and_then(|()| ask_all(&folder));
    fs::remove_dir_all(&folder)?;
    done
}

fn ask_all(folder: &std::path::Path) -> Result<()> {
    let line = "<p>A line of text as pages have them, and another word or two.</p>\n";
    for name in ["page.html", "index.html"] {
        fs::write(folder.join("www").join(name), line.repeat(200))?;
    }
    for (name, length) in [("1k.bin", 1 << 10), ("100k.bin", 100 << 10)] {
        fs::write(folder.join("www").join(name), vec![b'x'; length])?;
    }
    tls_peers::certify(folder)?;
    let (http, socket) = (free_port()?, folder.join("app.sock"));
    let own = std::env::current_exe()?;
    let application = |arguments: [&str; 3]| -> Result<Process> {
        let mut command = host::pinned(host::GENERATOR_PROCESSOR, &own.to_string_lossy());
        let log = fs::File::create(folder.join(arguments[0]))?;
        Ok(Process(command.args(arguments).stdout(log).spawn()?))
    };
    let mut canned = application(["canned", &http.to_string(), LENGTH])?;
    let mut responder = application(["responder", &socket.to_string_lossy(), LENGTH])?;
    wait_until_listening(&mut canned.0, || connects(http))?;
    wait_until_listening(&mut responder.0, || std::os::unix::net::UnixStream::connect(&socket).is_ok())?;

    let [plain, secure] = [free_port()?, free_port()?];
    let mut settings = String::new();
    write!(
        settings,
        "workers 1\nlisten \"127.0.0.1:{plain}\" {{ h2c }}\nlisten \"127.0.0.1:{secure}\" {{ tls certificate=\"{pem}\" key=\"{key}\" }}\n\
         access-log \"{log}\"\n\
         site {{\n    root \"{root}\"\n    compress\n\
         \x20   route \"/moved\" {{ redirect \"/\" }}\n\
         \x20   route \"/app/*\" {{ proxy \"http://127.0.0.1:{http}\" }}\n\
         \x20   route \"/fcgi/*\" {{ fastcgi \"unix:{socket}\" {{ mount \"/\" }} }}\n}}\n",
        log = folder.join("access.log").display(),
        root = folder.join("www").display(),
        socket = socket.display(),
        pem = folder.join("site.pem").display(),
        key = folder.join("site.key").display(),
    )?;
    let file = super::server::write_settings(folder, "tidegate.kdl", &settings)?;
    let mut server = host::pinned(host::SERVER_PROCESSOR, &generator::tidegate().to_string_lossy());
    server.arg("serve").arg("--config").arg(file).arg("--control").arg(folder.join("control"));
    let log = fs::File::create(folder.join("error.log"))?;
    let mut server = Process(server.stdout(log.try_clone()?).stderr(log).spawn()?);
    wait_until_listening(&mut server.0, || connects(secure))?;
    let origins = [
        (format!("http://127.0.0.1:{plain}"), &[][..]),
        (format!("http://127.0.0.1:{plain}"), &["--h2"][..]),
        (format!("https://127.0.0.1:{secure}"), &["--insecure"][..]),
        (format!("https://127.0.0.1:{secure}"), &["--insecure", "--h2"][..]),
    ];
    for (path, more) in REQUESTS {
        for (origin, protocol) in &origins {
            let mut hit = Command::new(generator::tidegate());
            hit.args(["bench", "hit", "-q", "-c", "4", "-n", "1000"]).args(*protocol).args(more);
            hit.args(FIELDS.iter().flat_map(|field| ["-H", field])).arg(format!("{origin}{path}"));
            let said = hit.output()?;
            let is_expected = match said.status.code() {
                // How long it took is of no matter here, and so is whether that could be measured.
                Some(0 | INVALID) => true,
                Some(NO_SUCCESS) => matches!(path, "/nowhere" | "/moved"),
                _ => false,
            };
            if !is_expected {
                bail!("{origin}{path}: {}\n{}", said.status, String::from_utf8_lossy(&said.stderr));
            }
        }
    }
    Ok(())
}
