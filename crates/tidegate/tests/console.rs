//! The console in a real browser: data on every page, updates that survive a reload and an upgrade, names that clients chose as
//! text, nothing that axe-core calls serious, nothing wider than a telephone. What is looked at is in `console/test/browser.mjs`, and
//! what wants an admin API in `console/test/admin.mjs`, before a played one, and in `console/test/change.mjs`, at the real one.
//!
//! Where the browser, Node.js or the console is missing the test says so and passes on a contributor's machine; with `CI` set it
//! fails. `cargo xtask tools` and `cargo xtask console --test` provide them.

mod running;

use running::{BINARY, Folder, Server};
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use tidegate_testkit::InTime;

/// What is missing, or the browser.
fn browser() -> Result<PathBuf, &'static str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let find =
        |name: &str| std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    let console = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../console");
    if find("node").is_none() {
        return Err("there is no node (cargo xtask tools)");
    }
    if !console.join("node_modules/playwright-core").is_dir() || !console.join("dist/index.html.gz").is_file()
    {
        return Err("the console is not built (cargo xtask console --test)");
    }
    find("chromium").ok_or("there is no chromium (cargo xtask tools)")
}

/// An application that takes requests: it answers none whose path begins with `/hang`, and 500 to all others.
fn application() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut head = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let first = head.next().unwrap_or_default();
            while head.next().is_some_and(|line| !line.is_empty()) {}
            if first.contains("/hang") {
                held.push(stream);
            } else {
                let _ = stream.write_all(
                    b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                );
            }
        }
    });
    address
}

/// Sends a request and does not wait for more than the first line of its answer.
fn ask(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n").unwrap();
    BufReader::new(stream).lines().next().and_then(Result::ok).unwrap_or_default()
}

#[test]
fn a_browser_shows_what_the_server_does() {
    let chromium = match browser() {
        Ok(chromium) => chromium,
        Err(missing) => {
            assert!(std::env::var_os("CI").is_none(), "{missing}");
            return eprintln!("NOT TESTED: {missing}");
        }
    };
    let folder = Folder::new("console");
    let app = application();
    let config = format!(
        "listen \"127.0.0.1:0\"\n\
         admin\n\
         users \"staff\" {{ htpasswd \"staff\" }}\n\
         cache \"main\" {{ memory \"1MiB\" }}\n\
         upstream \"app\" {{ member \"{app}\" }}\n\
         site \"a.test\" {{\n\
             respond 200 \"ok\"\n\
             access-log \"access.log\"\n\
             route \"/fail/*\" {{ proxy \"app\"; cache \"main\" {{ default-lifetime 200 \"1m\" }} }}\n\
             route \"/hang/*\" {{ proxy \"app\" }}\n\
             route \"/few\" {{ limit \"few\" requests=\"1/m\"; respond 200 \"ok\" }}\n\
         }}\n\
         site \"localhost\" {{\n\
             respond 200 \"ok\"\n\
             route \"/text\" {{ respond 200 \"first\" }}\n\
             route \"/.console/*\" {{ console }}\n\
             route \"/.change/*\" {{ console {{ change }}; login basic \"staff\" }}\n\
         }}\n"
    );
    folder.write("staff", "anna:$apr1$Jl7kt8fa$jdyeSnOjE4sek6wrJ17JX.\n"); // whose password is `secret`
    let server = Server::with_config(&folder, &config);
    let address = server.address.clone();
    let mut hanging = TcpStream::connect(&address).unwrap();
    let target = "/hang/?%3Cimg%20src=x%20onerror=alert(1)%3E";
    write!(hanging, "GET {target} HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
    // A little of everything goes on while the browser looks.
    let is_over = Arc::new(AtomicBool::new(false));
    let load = std::thread::spawn({
        let (address, is_over) = (address.clone(), is_over.clone());
        move || {
            while !is_over.load(SeqCst) {
                for path in ["/", "/fail/x", "/few"] {
                    let _ = ask(&address, path);
                }
                std::thread::park_timeout(std::time::Duration::from_millis(50));
            }
        }
    });
    let port = address.rsplit(':').next().unwrap();
    let url = format!("http://localhost:{port}/.console/");
    let control = server.control.as_ref().unwrap();
    let said = [
        look(&chromium, &folder, "browser.mjs", &[url.as_ref(), BINARY.as_ref(), control.as_ref()]),
        look(&chromium, &folder, "admin.mjs", &[url.as_ref()]),
        look(&chromium, &folder, "change.mjs", &[format!("http://localhost:{port}/.change/").as_ref()]),
    ];
    is_over.store(true, SeqCst);
    load.join().unwrap();
    for said in said {
        assert!(said.ends_with("all is well\n"), "{said}");
    }
}

/// Has the browser look at what a script of `console/test` wants to see: what the script says of it.
fn look(chromium: &Path, folder: &Folder, script: &str, arguments: &[&OsStr]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../console/test").join(script);
    let mut node = Command::new("node");
    node.arg(script).arg(chromium).args(arguments);
    if let Some(shots) = std::env::var_os("TIDEGATE_SCREENSHOTS") {
        fs::create_dir_all(&shots).unwrap();
        node.arg(shots);
    }
    let output = node.env("HOME", &folder.0).output_in_time();
    format!("{}{}", String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout))
}
