//! Limits that several servers share, over a real Redis: its own port and folder, killed, stopped and started again.

mod running;

use running::{Folder, Server, WAIT, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

const REDIS: &str = "/usr/bin/redis-server";
/// Where no other test takes a port while a store is away.
const HOST: &str = "127.0.0.9";
const BURST: usize = 60;
const LEASE: usize = 15;

struct Store {
    child: Child,
    port: u16,
}

impl Store {
    /// `None` where none is installed.
    fn start(folder: &Folder, port: u16) -> Option<Store> {
        Self::start_with(folder, port, &[])
    }

    fn start_with(folder: &Folder, port: u16, arguments: &[&str]) -> Option<Store> {
        if !Path::new(REDIS).exists() {
            assert!(
                std::env::var_os("CI").is_none(),
                "redis-server is missing; `cargo xtask tools` installs it"
            );
            eprintln!("SKIPPED: redis-server is not installed (`cargo xtask tools` installs it)");
            return None;
        }
        let log = fs::File::create(folder.path("redis.log")).unwrap();
        let mut command = Command::new(REDIS);
        command.args(["--port", &port.to_string(), "--bind", HOST, "--save", "", "--appendonly", "no"]);
        command.args(["--requirepass", "secret", "--dir"]).arg(&folder.0).args(arguments);
        let child = command.stdin(Stdio::null()).stdout(log).spawn().unwrap();
        let store = Store { child, port };
        wait_for(|| TcpStream::connect((HOST, port)).ok(), "redis-server to listen");
        Some(store)
    }

    fn tell(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Stands between a server and its store.
struct Relay {
    port: u16,
    /// What is open; `None`: nothing is let through.
    streams: Arc<Mutex<Option<Vec<TcpStream>>>>,
}

impl Relay {
    fn start(store: u16) -> Relay {
        let listener = TcpListener::bind((HOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let streams = Arc::new(Mutex::new(Some(Vec::new())));
        let open = streams.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(store) = TcpStream::connect((HOST, store)) else { continue };
                let mut open = open.lock().unwrap();
                if let Some(open) = &mut *open {
                    pass_on(&client, &store);
                    pass_on(&store, &client);
                    open.extend([client, store]);
                }
            }
        });
        Relay { port, streams }
    }

    fn cut(&self) {
        let open = self.streams.lock().unwrap().take();
        for stream in open.unwrap_or_default() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn mend(&self) {
        *self.streams.lock().unwrap() = Some(Vec::new());
    }
}

fn pass_on(from: &TcpStream, to: &TcpStream) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    });
}

fn free_port() -> u16 {
    TcpListener::bind((HOST, 0)).unwrap().local_addr().unwrap().port()
}

fn settings(folder: &Folder, port: u16) -> String {
    let (password, log) = (folder.write("password", "secret\n"), folder.path("error.log"));
    format!(
        "listen \"127.0.0.1:0\"\nworkers 2\nerror-log {log:?} level=\"info\"\n\
         limit-store \"redis://{HOST}:{port}/3\" password-file={password:?} prefix=\"test\"\n\
         site {{\n  respond 200 \"in\"\n  limit \"l\" shared requests=\"{BURST}/d\" burst={BURST} by=\"{{header.K}}\"\n}}\n"
    )
}

fn is_let_in(server: &Server<'_>, key: &str) -> bool {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(WAIT)).unwrap();
    write!(stream, "GET / HTTP/1.1\r\nHost: x\r\nK: {key}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") || answer.starts_with("HTTP/1.1 429 "), "{answer}");
    answer.starts_with("HTTP/1.1 200 ")
}

fn log(server: &Server<'_>) -> String {
    fs::read_to_string(server.folder.path("error.log")).unwrap_or_default()
}

fn wait_for_log(server: &Server<'_>, text: &str) {
    wait_for(|| log(server).contains(text).then_some(()), text);
}

#[test]
fn servers_share_a_limit_and_keep_to_their_part_while_the_store_is_away() {
    let port = free_port();
    let folders = [Folder::new("node-a"), Folder::new("node-b")];
    let Some(mut store) = Store::start(&folders[0], port) else { return };
    let servers = [0, 1].map(|at| {
        let folder: &Folder = &folders[at];
        Server::with_config(folder, &settings(folder, port))
    });
    let shared = format!("limits are shared at {HOST}:{port}, servers: 2");
    servers.iter().for_each(|server| wait_for_log(server, &shared));

    // In turns: what one has let in counts for the other.
    let let_in = (0..4 * BURST).filter(|n| is_let_in(&servers[n % 2], "one")).count();
    assert!((BURST..=BURST + 2 * LEASE).contains(&let_in), "{let_in} were let in");
    // First the one alone, then the other, which has heard of all that were told.
    let first = (0..2 * BURST).filter(|_| is_let_in(&servers[0], "two")).count();
    // All of it, unless the machine is so busy that the store has not answered in time.
    assert!((BURST / 2..=BURST).contains(&first), "{first} were let in, and nobody else has asked");
    wait_for(|| (!is_let_in(&servers[1], "two")).then_some(()), "the other to hear of it");

    // A store that hangs holds up nobody, and neither does one that has gone.
    store.tell(Signal::STOP);
    let during = (0..2 * BURST).filter(|_| is_let_in(&servers[0], "three")).count();
    assert!((LEASE..=BURST).contains(&during), "{during} were let in");
    servers.iter().for_each(|server| wait_for_log(server, "this server keeps to its part, servers: 2"));
    store.tell(Signal::KILL);
    for server in &servers {
        let part = (0..2 * BURST).filter(|_| is_let_in(server, "four")).count();
        assert_eq!(part, BURST / 2, "each has its part");
    }
    assert!(!is_let_in(&servers[0], "two"), "who was refused is not let in for that");

    // It comes back, and has forgotten everything.
    let heard = servers.each_ref().map(|server| log(server).matches(&shared).count());
    drop(store);
    store = Store::start(&folders[0], port).unwrap();
    for (server, heard) in servers.iter().zip(heard) {
        wait_for(
            || (log(server).matches(&shared).count() > heard).then_some(()),
            "the servers to share again",
        );
    }
    assert!(!is_let_in(&servers[0], "two"), "who was refused is not let in for that either");
    let let_in = (0..4 * BURST).filter(|n| is_let_in(&servers[n % 2], "five")).count();
    assert!((BURST..=BURST + 2 * LEASE).contains(&let_in), "{let_in} were let in");
    assert_eq!(store.port, port);

    // A reload keeps what was counted; settings without a store count alone.
    for server in &servers {
        assert_eq!(server.tell(&["reload"]).code, Some(0));
    }
    assert!(!is_let_in(&servers[1], "five"));
    let alone =
        settings(&folders[1], port).replace("limit-store", "// limit-store").replace("\"l\" shared", "\"l\"");
    folders[1].write("tidegate.kdl", &alone);
    assert_eq!(servers[1].tell(&["reload"]).code, Some(0));
    let all = (0..2 * BURST).filter(|_| is_let_in(&servers[1], "six")).count();
    assert_eq!(all, BURST);
}

/// What is asked of a server that has never heard of its store, is answered: starting depends on nobody.
#[test]
fn a_server_starts_without_its_store() {
    let folder = Folder::new("node-alone");
    let settings = settings(&folder, free_port()).replace("prefix=", "nodes=4 prefix=");
    let server = Server::with_config(&folder, &settings);
    let part = (0..2 * BURST).filter(|_| is_let_in(&server, "one")).count();
    assert_eq!(part, BURST / 4, "as one of those that the settings name");
    wait_for_log(&server, "this server keeps to its part, servers: 4");
}

/// Why the store does not answer is said each time that it is another reason, and it is shared when all is answered.
#[test]
fn each_reason_for_which_a_store_is_not_used_is_said() {
    let (folder, port) = (Folder::new("node-reasons"), free_port());
    let server = Server::with_config(&folder, &settings(&folder, port));
    wait_for_log(&server, "Connection refused");
    let Some(store) = Store::start_with(&folder, port, &["--requirepass", "another"]) else { return };
    wait_for_log(&server, "WRONGPASS");
    let figures = || server.tell(&["status", "--prometheus"]).stdout;
    let up = |is_up: u8| format!("tidegate_limit_store_up{{address=\"{HOST}:{port}\"}} {is_up}\n");
    assert!(figures().contains(&up(0)));
    assert!(server.tell(&["status"]).stdout.contains("WRONGPASS"));
    drop(store);
    let store = Store::start_with(&folder, port, &["--maxmemory", "1"]).unwrap();
    wait_for_log(&server, "OOM");
    drop(store);
    assert!(!log(&server).contains("limits are shared"), "nothing was answered until now");
    let _store = Store::start(&folder, port).unwrap();
    wait_for_log(&server, "limits are shared");
    wait_for(|| figures().contains(&up(1)).then_some(()), "the figure that tells of it");
}

fn banning(folder: &Folder, port: u16) -> String {
    let (password, log) = (folder.write("password", "secret\n"), folder.path("error.log"));
    format!(
        "listen \"127.0.0.1:0\"\nworkers 1\nprocesses 2\nerror-log {log:?} level=\"info\"\n\
         limit-store \"redis://{HOST}:{port}/3\" password-file={password:?} prefix=\"bans\"\n\
         site {{\n  respond 200 \"in\"\n  trusted-proxies \"127.0.0.1\"\n  ban \"b\" shared statuses=\"403\" count=3 for=\"1h\"\n\
           ban \"own\" statuses=\"403\" count=1 for=\"1h\" track\n  route \"/closed\" {{ deny \"all\"; respond 200 }}\n}}\n"
    )
}

/// The status that a client gets.
fn status_for(server: &Server<'_>, client: &str, path: &str) -> u16 {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(WAIT)).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: {client}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.get(9..12).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{answer:?}"))
}

fn ban(server: &Server<'_>, client: &str) {
    let statuses = [(); 4].map(|()| status_for(server, client, "/closed"));
    assert_eq!(statuses, [403, 403, 403, 429], "at once on the server itself");
}

fn becomes(server: &Server<'_>, client: &str, status: u16) {
    wait_for(|| (status_for(server, client, "/") == status).then_some(()), "a ban that is shared");
}

#[test]
fn servers_share_who_is_banned_and_who_is_let_in_again() {
    let port = free_port();
    let folders = ["ban-a", "ban-b", "ban-c"].map(Folder::new);
    let Some(store) = Store::start(&folders[0], port) else { return };
    let start = |at: usize| {
        let folder: &Folder = &folders[at];
        Server::with_config(folder, &banning(folder, port))
    };
    let [first, second] = [start(0), start(1)];
    [&first, &second].into_iter().for_each(|server| {
        wait_for_log(server, &format!("limits are shared at {HOST}:{port}, servers: 2"));
    });
    ban(&first, "192.0.2.1");
    ban(&first, "2001:db8:1:2::3");
    becomes(&second, "192.0.2.1", 429);
    becomes(&second, "2001:db8:1:2::9", 429);
    assert_eq!(status_for(&second, "192.0.2.2", "/"), 200);
    wait_for_log(&second, "192.0.2.1 is banned for");
    let listed = second.tell(&["bans"]).stdout;
    assert!(
        listed.contains("192.0.2.1 ") && !listed.contains("`own`"),
        "what is not shared is not: {listed}"
    );

    // Lifted anywhere it is so everywhere, and for who comes later as well.
    assert_eq!(second.tell(&["bans", "lift", "192.0.2.1"]).code, Some(0));
    assert_eq!(status_for(&second, "192.0.2.1", "/"), 200);
    becomes(&first, "192.0.2.1", 200);
    let third = start(2);
    becomes(&third, "2001:db8:1:2::3", 429);
    assert_eq!(status_for(&third, "192.0.2.1", "/"), 200);
    assert!(!log(&third).contains("192.0.2.1"), "it has never been banned there");

    // A store that is away holds up nobody: a ban is in force where it was made, and told of when the store is back, which
    // has forgotten everything.
    drop(store);
    [&first, &second].into_iter().for_each(|server| {
        ban(server, if server.address == first.address { "192.0.2.11" } else { "192.0.2.12" });
        wait_for_log(server, "this server keeps to its part");
    });
    assert_eq!(second.tell(&["bans", "lift", "2001:db8:1:2::"]).code, Some(0));
    assert_eq!(status_for(&second, "2001:db8:1:2::3", "/"), 200);
    assert_eq!(status_for(&first, "2001:db8:1:2::3", "/"), 429);
    let _store = Store::start(&folders[0], port).unwrap();
    for server in [&first, &second, &third] {
        becomes(server, "192.0.2.11", 429);
        becomes(server, "192.0.2.12", 429);
        becomes(server, "2001:db8:1:2::3", 200);
    }
    // A reload keeps what is known, and hears of no more.
    assert_eq!(third.tell(&["reload"]).code, Some(0));
    ban(&third, "192.0.2.13");
    becomes(&first, "192.0.2.13", 429);
}

/// A server that could not tell for a while says what happened before anything else did.
#[test]
fn what_is_told_late_undoes_nothing() {
    let port = free_port();
    let folders = ["late-a", "late-b"].map(Folder::new);
    let Some(_store) = Store::start(&folders[0], port) else { return };
    let relay = Relay::start(port);
    let [first, second] = [(0, relay.port), (1, port)].map(|(at, port)| {
        let folder: &Folder = &folders[at];
        let server =
            Server::with_config(folder, &banning(folder, port).replace("processes 2", "processes 1"));
        (server, format!("limits are shared at {HOST}:{port}, servers: 2"))
    });
    [&first, &second].into_iter().for_each(|(server, shared)| wait_for_log(server, shared));
    let ([first, second], relay_is_back) = ([first.0, second.0], first.1);
    let lift = |server: &Server<'_>, client| assert_eq!(server.tell(&["bans", "lift", client]).code, Some(0));

    relay.cut();
    wait_for_log(&first, "this server keeps to its part");
    let heard = log(&first).matches(&relay_is_back).count();
    // Banned there, then here, and lifted here; banned and lifted there, and banned here since.
    ban(&first, "192.0.2.1");
    ban(&second, "192.0.2.1");
    lift(&second, "192.0.2.1");
    ban(&first, "192.0.2.2");
    lift(&first, "192.0.2.2");
    ban(&second, "192.0.2.2");
    ban(&first, "192.0.2.3");
    relay.mend();
    becomes(&second, "192.0.2.3", 429); // it has heard of all that was told
    assert_eq!(status_for(&second, "192.0.2.1", "/"), 200, "it was let in after it was banned");
    assert_eq!(status_for(&second, "192.0.2.2", "/"), 429, "it was banned after it was let in");
    becomes(&first, "192.0.2.1", 200);
    becomes(&first, "192.0.2.2", 429);
    wait_for(|| (log(&first).matches(&relay_is_back).count() > heard).then_some(()), "the relay to be back");
}

/// What is shared is what the settings in force say.
#[test]
fn a_reload_decides_which_bans_are_shared() {
    let port = free_port();
    let folders = ["becomes-a", "becomes-b"].map(Folder::new);
    let Some(_store) = Store::start(&folders[0], port) else { return };
    let shared = |folder: &Folder| {
        banning(folder, port)
            .replace("processes 2", "processes 1")
            .replace("ban \"own\"", "ban \"own\" shared")
    };
    let private = shared(&folders[1]).replace("ban \"b\" shared", "ban \"b\"");
    let first = Server::with_config(&folders[0], &shared(&folders[0]));
    let second = Server::with_config(&folders[1], &private);
    wait_for_log(&second, &format!("limits are shared at {HOST}:{port}, servers: 2"));
    // Whoever is refused once is known by `own`, which is shared all the time: what was told before is known, too.
    let hears = |client: &str| {
        assert_eq!(status_for(&first, client, "/closed"), 403);
        wait_for_log(&second, &format!("{client} is banned for"));
    };
    let reload = |settings: &str| {
        folders[1].write("tidegate.kdl", settings);
        assert_eq!(second.tell(&["reload"]).code, Some(0));
    };
    ban(&first, "192.0.2.1");
    hears("192.0.2.11");
    assert_eq!(status_for(&second, "192.0.2.1", "/"), 200, "it is the first server's own");
    reload(&shared(&folders[1]));
    becomes(&second, "192.0.2.1", 429);
    ban(&first, "192.0.2.2");
    becomes(&second, "192.0.2.2", 429);
    reload(&private);
    assert_eq!(status_for(&second, "192.0.2.2", "/"), 429, "who is banned stays so");
    ban(&first, "192.0.2.3");
    hears("192.0.2.13");
    assert_eq!(status_for(&second, "192.0.2.3", "/"), 200, "it is the first server's own again");
    // Tables that are new hear of all that is in force, and make no third server.
    reload(&shared(&folders[1]).replace(" shared statuses", " shared keys=200 statuses"));
    becomes(&second, "192.0.2.3", 429);
    assert!(!log(&second).contains("servers: 3"), "{}", log(&second));
}

#[test]
fn a_store_without_streams_shares_limits_all_the_same() {
    let port = free_port();
    let folders = ["streams-a", "streams-b"].map(Folder::new);
    let Some(_store) = Store::start_with(&folders[0], port, &["--rename-command", "XADD", ""]) else {
        return;
    };
    let start = |at: usize| {
        let folder: &Folder = &folders[at];
        let bans = "trusted-proxies \"127.0.0.1\"; ban \"b\" shared statuses=\"403\" count=3 for=\"1h\"\n\
                    route \"/closed\" { deny \"all\"; limit off; respond 200 }\n respond 200";
        Server::with_config(folder, &settings(folder, port).replace("respond 200", bans))
    };
    let first = start(0);
    wait_for_log(&first, &format!("limits are shared at {HOST}:{port}, servers: 1"));
    ban(&first, "192.0.2.1");
    wait_for_log(&first, "refuses what shared bans take");
    let second = start(1);
    [&first, &second].into_iter().for_each(|server| {
        wait_for_log(server, &format!("limits are shared at {HOST}:{port}, servers: 2"));
    });
    let let_in = (0..4 * BURST).filter(|n| is_let_in([&first, &second][n % 2], "one")).count();
    assert!((BURST..=BURST + 2 * LEASE).contains(&let_in), "{let_in} were let in");
    let said = log(&first);
    assert!(!said.contains("keeps to its part"), "{said}");
    assert_eq!(said.matches("refuses what shared bans take").count(), 1, "{said}");
}
