//! Automatic certificates against Pebble, Let's Encrypt's test authority: every kind of challenge, wildcards,
//! external account binding, an authority that is down, and renewal when the authority says so.
//!
//! Where Pebble is not installed the test says so and passes on a contributor's machine; with `CI` set it fails.
//! `cargo xtask tools` installs it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tidegate_testkit::InTime;

const BINARY: &str = env!("CARGO_BIN_EXE_tidegate");
const PATIENCE: Duration = Duration::from_secs(60);
const EAB_KEY: &str = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn find(program: &str) -> Option<PathBuf> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(tools).chain(std::env::split_paths(&path));
    folders.map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// Ports that are free now.
fn ports<const N: usize>() -> [u16; N] {
    let sockets: Vec<TcpListener> = (0..N).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let mut ports = sockets.iter().map(|socket| socket.local_addr().unwrap().port());
    [(); N].map(|()| ports.next().unwrap())
}

struct Pebble {
    folder: PathBuf,
    directory: String,
    management: u16,
    names: u16,
    http: u16,
    https: u16,
    _running: [Running; 2],
}

impl Pebble {
    fn start() -> Option<Pebble> {
        let (Some(pebble), Some(names)) = (find("pebble"), find("pebble-challtestsrv")) else {
            assert!(std::env::var_os("CI").is_none(), "pebble is missing: cargo xtask tools");
            eprintln!("NOT TESTED: pebble is missing (cargo xtask tools)");
            return None;
        };
        // Pebble has to be told its ports. A test that runs beside may have taken one since: then others are tried.
        let started = (0..10).find_map(|_| Pebble::start_once(&pebble, &names));
        Some(started.expect("pebble starts"))
    }

    /// `None` if it has ended at once.
    fn start_once(pebble: &Path, names: &Path) -> Option<Pebble> {
        let folder = std::env::temp_dir().join(format!("tidegate-pebble-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        fs::write(folder.join("api.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        fs::write(folder.join("api.key"), key.serialize_pem()).unwrap();
        let [api, management, dns, names_management, http, https] = ports();
        let config = serde_json::json!({ "pebble": {
            "listenAddress": format!("127.0.0.1:{api}"),
            "managementListenAddress": format!("127.0.0.1:{management}"),
            "certificate": folder.join("api.pem"),
            "privateKey": folder.join("api.key"),
            "httpPort": http,
            "tlsPort": https,
            "ocspResponderURL": "",
            "externalAccountBindingRequired": true,
            "externalAccountMACKeys": { "kid-1": EAB_KEY },
            "retryAfter": { "authz": 1, "order": 1 },
            "profiles": { "default": { "description": "as usual", "validityPeriod": 7_776_000 } },
        }});
        fs::write(folder.join("pebble.json"), config.to_string()).unwrap();
        let names = Command::new(names)
            .args([
                "-management",
                &format!("127.0.0.1:{names_management}"),
                "-dnsserver",
                &format!("127.0.0.1:{dns}"),
            ])
            .args(["-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", "", "-defaultIPv6", ""])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut authority = Command::new(pebble)
            .args([Path::new("-config"), &folder.join("pebble.json"), Path::new("-dnsserver")])
            .arg(format!("127.0.0.1:{dns}"))
            .envs([("PEBBLE_VA_NOSLEEP", "1"), ("PEBBLE_WFE_NONCEREJECT", "0")])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(authority.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut running = [Running(names), Running(authority)];
        lines.find(|line| line.contains("ACME directory available"))?;
        if !matches!(running[0].0.try_wait(), Ok(None)) {
            return None;
        }
        std::thread::spawn(move || lines.for_each(drop));
        Some(Pebble {
            directory: format!("https://127.0.0.1:{api}/dir"),
            management,
            names: names_management,
            http,
            https,
            folder,
            _running: running,
        })
    }

    /// Starts the server with these names; `log` is where it writes.
    fn serve(&self, names: &str, challenge: &str) -> Running {
        let Pebble { folder, directory, http, https, .. } = self;
        let hook = folder.join("hook");
        let script = format!(
            "#!/bin/sh\nif [ $1 = present ]; then what=set-txt; else what=clear-txt; fi\n\
             exec curl -sf -d \"{{\\\"host\\\":\\\"$2.\\\",\\\"value\\\":\\\"$3\\\"}}\" http://127.0.0.1:{}/$what\n",
            self.names
        );
        fs::write(&hook, script).unwrap();
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
        let config = format!(
            r#"
            workers 1
            acme {{
                email "admin@a.test"
                storage "store"
                authority "https://127.0.0.1:1/dir"
                authority "{directory}" roots="api.pem" eab-id="kid-1" eab-key="{EAB_KEY}" profile="default"
                challenge {challenge}
                dns-hook "hook" settle="0s" user="root"
            }}
            listen "127.0.0.1:{http}"
            listen "127.0.0.1:{https}" {{ tls }}
            site {names} {{ respond 200 "served" }}
            "#
        );
        fs::write(folder.join("tidegate.kdl"), config).unwrap();
        let log = fs::File::create(folder.join("log")).unwrap();
        let child = Command::new(BINARY)
            .args(["serve", "--config", "tidegate.kdl", "--control", "control"])
            .current_dir(folder)
            .stderr(log)
            .spawn()
            .unwrap();
        Running(child)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Waits for a line of the log.
    fn wait_for(&self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.log().contains(text) {
            assert!(Instant::now() < deadline, "no `{text}`:\n{}", self.log());
            std::thread::park_timeout(Duration::from_millis(50));
        }
    }

    /// What curl gets from a name, verified with the authority's root.
    fn get(&self, name: &str) -> String {
        let root = self.curl(&["-k", &format!("https://127.0.0.1:{}/roots/0", self.management)]);
        fs::write(self.folder.join("root.pem"), root).unwrap();
        let resolve = format!("{name}:{}:127.0.0.1", self.https);
        self.curl(&[
            "--cacert",
            "root.pem",
            "--resolve",
            &resolve,
            &format!("https://{name}:{}/", self.https),
        ])
    }

    fn curl(&self, arguments: &[&str]) -> String {
        let output = Command::new("curl")
            .args(["-sS", "--max-time", "20"])
            .args(arguments)
            .current_dir(&self.folder)
            .output_in_time();
        assert!(
            output.status.success(),
            "{arguments:?}: {}\n{}",
            String::from_utf8_lossy(&output.stderr),
            self.log()
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn pebble_issues_by_every_challenge_and_renews_when_it_wants_to() {
    let Some(pebble) = Pebble::start() else { return };
    for (names, challenge, asked) in [
        ("\"a.test\" \"www.a.test\"", "\"tls-alpn-01\"", "www.a.test"),
        ("\"b.test\"", "\"http-01\"", "b.test"),
        ("\"*.c.test\"", "\"http-01\" \"dns-01\"", "x.c.test"),
    ] {
        let running = pebble.serve(names, challenge);
        let name = names.split(' ').next_back().unwrap().trim_matches('"');
        pebble.wait_for(&format!("automatic certificate for {name}: issued by {}", pebble.directory));
        assert_eq!(pebble.get(asked), "served");
        drop(running);
    }

    // What was issued is used at once after a restart, and renewed since the authority wants it to be.
    let present = pebble.folder.join("store/certificates/b%2Etest/certificate.pem");
    let before = fs::read_to_string(&present).unwrap();
    let window = serde_json::json!({ "suggestedWindow": {
        "start": "2020-01-01T00:00:00Z", "end": "2020-01-02T00:00:00Z" } });
    let told = serde_json::json!({ "Certificate": before, "ARIResponse": window.to_string() });
    let url = format!("https://127.0.0.1:{}/set-renewal-info/", pebble.management);
    pebble.curl(&["-k", "-f", "-d", &told.to_string(), &url]);
    let _running = pebble.serve("\"b.test\"", "\"http-01\"");
    pebble.wait_for("automatic certificate for b.test: good until");
    pebble.wait_for("automatic certificate for b.test: issued by");
    assert_ne!(fs::read_to_string(&present).unwrap(), before);
    assert_eq!(pebble.get("b.test"), "served");
}
