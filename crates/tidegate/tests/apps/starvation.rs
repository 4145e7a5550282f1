//! Kept connections starve nobody: a php-fpm with 4 processes, each of which serves one connection until that is closed,
//! behind 8 workers that would keep idle ones for an hour.

use crate::site::{Site, folder, has};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use tidegate_testkit::{WAIT, wait_for};

const CHILDREN: usize = 4;
const CLIENTS: usize = 64;

/// A php-fpm that is none of the server's.
struct Fpm(Child);

impl Fpm {
    fn start(folder: &Path) -> Fpm {
        let user = match rustix::process::geteuid().is_root() {
            true => "user = www-data\ngroup = www-data\n",
            false => "",
        };
        let text = format!(
            "[global]\nerror_log = /proc/self/fd/2\ndaemonize = no\n[www]\n{user}\
            listen = {}\nlisten.mode = 0666\npm = static\npm.max_children = {CHILDREN}\npm.status_path = /told\n",
            folder.join("fpm.sock").display()
        );
        fs::write(folder.join("fpm.conf"), text).unwrap();
        let mut command = Command::new("php-fpm8.2");
        command.args(["--nodaemonize", "--fpm-config"]).arg(folder.join("fpm.conf")).stderr(Stdio::null());
        let fpm = Fpm(command.spawn().unwrap());
        wait_for(|| UnixStream::connect(folder.join("fpm.sock")).ok(), "php-fpm to listen");
        fpm
    }
}

impl Drop for Fpm {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

/// The server before it, with these words about the application.
fn serve(name: &str, workers: usize, words: &str) -> (Site, Fpm) {
    let folder = fs::canonicalize(folder(name)).unwrap();
    fs::create_dir(folder.join("site")).unwrap();
    fs::set_permissions(folder.join("site"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(folder.join("site/a.php"), "<?php usleep(2000); echo 'fine';").unwrap();
    let fpm = Fpm::start(&folder);
    let text = format!(
        "workers {1}\nlisten \"${{LISTEN}}\"\nsite {{ root \"{0}/site\"\n\
        route \"*.php\" {{ fastcgi \"unix:{0}/fpm.sock\" {{ keep-timeout \"1h\"; timeout \"30s\"; {words} }} }}\n\
        route \"/told\" {{ fastcgi \"unix:{0}/fpm.sock\" {{ mount \"/told\"; param \"SCRIPT_FILENAME\" \"/told\"; keep-timeout \"1h\"; {words} }} }} }}\n",
        folder.display(),
        workers
    );
    fs::write(folder.join("tidegate.kdl"), text).unwrap();
    let config = folder.join("tidegate.kdl");
    (Site::start(config.to_str().unwrap(), folder, &[]), fpm)
}

/// A client with a connection of its own.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(site: &Site) -> Client {
        let stream = TcpStream::connect(site.url.trim_start_matches("http://")).unwrap();
        stream.set_read_timeout(Some(WAIT)).unwrap();
        Client(BufReader::new(stream))
    }

    fn get(&mut self, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        self.0.get_mut().write_all(request.as_bytes()).unwrap();
        let (mut length, mut head) = (0, String::new());
        loop {
            let begin = head.len();
            self.0.read_line(&mut head).expect("an answer in time");
            match head[begin..].to_ascii_lowercase().trim_end().strip_prefix("content-length: ") {
                Some(value) => length = value.parse().unwrap(),
                None if &head[begin..] == "\r\n" => break,
                None => {}
            }
        }
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        String::from_utf8(body).unwrap()
    }
}

/// Connections to php-fpm, those that it has not accepted yet included.
fn connections(site: &Site) -> usize {
    let path = format!(" {}", site.folder.join("fpm.sock").display());
    let sockets = fs::read_to_string("/proc/net/unix").unwrap();
    let is_connected = |line: &&str| line.ends_with(&path) && line.split_whitespace().nth(5) == Some("03");
    sockets.lines().filter(is_connected).count()
}

/// What php-fpm calls accepted connections: requests, and connections that have ended without another one.
fn accepted(site: &Site) -> u64 {
    let told: serde_json::Value = serde_json::from_str(&Client::connect(site).get("/told?json")).unwrap();
    told["accepted conn"].as_u64().unwrap()
}

/// All clients at once, each with so many requests; the most connections that were seen meanwhile.
fn crowd(site: &Site, requests: usize) -> usize {
    let (is_over, most) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            while !is_over.load(SeqCst) {
                most.fetch_max(connections(site), SeqCst);
            }
        });
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = Client::connect(site);
                    for _ in 0..requests {
                        assert_eq!(client.get("/a.php"), "fine");
                    }
                })
            })
            .collect();
        let answered = clients.into_iter().map(|client| client.join()).filter(Result::is_ok).count();
        is_over.store(true, SeqCst);
        watch.join().unwrap();
        assert_eq!(answered, CLIENTS, "clients that got all their answers");
    });
    most.into_inner()
}

/// One after the other on connections of their own: whichever worker gets them, and whoever keeps idle ones.
fn wander(site: &Site) {
    for _ in 0..CLIENTS {
        assert_eq!(Client::connect(site).get("/a.php"), "fine");
    }
}

const PLACES: &str = "connections 4; queue length=1000 age=\"20s\"";

#[test]
fn kept_connections_never_keep_another_client_waiting() {
    if !has(&["php-fpm8.2"]) {
        return;
    }
    // More workers than processes: one of them always has no connection of its own.
    let (site, _fpm) = serve("starve-places", 8, PLACES);
    for _ in 0..3 {
        let most = crowd(&site, 20);
        // One that is being let go of may overlap with the one that takes its place.
        assert!(most <= 2 * CHILDREN, "{most} connections at once");
        wait_for(|| (connections(&site) <= CHILDREN).then_some(()), "no more connections than processes");
        wander(&site);
        wait_for(|| (connections(&site) <= CHILDREN).then_some(()), "no more connections than processes");
    }
}

#[test]
fn and_are_used_again_all_the_same() {
    if !has(&["php-fpm8.2"]) {
        return;
    }
    let (site, _fpm) = serve("starve-reuse", 2, PLACES);
    let before = accepted(&site);
    crowd(&site, 50);
    let requests = CLIENTS as u64 * 50;
    let ended = (accepted(&site) - before).saturating_sub(requests);
    assert!(ended < requests / 2, "{ended} connections for {requests} requests");
}

#[test]
fn nor_where_the_server_does_not_know_how_many_there_are() {
    if !has(&["php-fpm8.2"]) {
        return;
    }
    let (site, _fpm) = serve("starve-open", 8, "");
    for _ in 0..3 {
        crowd(&site, 10);
        wander(&site);
    }
}
