//! File systems that do not answer, and processes that do not react: what waits for them, and what does not.
//!
//! A FUSE that nobody serves is mounted, which takes root and python3(1); who waits for it can be killed. An ext4 that is
//! frozen (fsfreeze(8)) holds those who write so that not even the kernel ends them. Skipped loudly elsewhere.

mod running;

use running::{Folder, Server, wait_for};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tidegate_testkit::is_running;

/// Mounts it, and takes it away again when its input ends: then all that waits for it goes on, with an error.
const MOUNT: &str = r#"
import ctypes, os, sys
fuse = os.open("/dev/fuse", os.O_RDWR)
libc = ctypes.CDLL(None, use_errno=True)
options = b"fd=%d,rootmode=40000,user_id=0,group_id=0" % fuse
done = libc.mount(b"hangs", sys.argv[1].encode(), b"fuse", 0, options)
print("mounted" if done == 0 else "not mounted: %s" % os.strerror(ctypes.get_errno()), flush=True)
sys.stdin.read()
libc.umount2(sys.argv[1].encode(), 2)
"#;

/// A file system that hangs, over a folder.
struct Hanging(Child);

impl Hanging {
    fn over(folder: &Path) -> Option<Hanging> {
        if !geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            eprintln!("SKIPPED: only root can mount a file system, and it takes /dev/fuse");
            return None;
        }
        let mut command = Command::new("python3");
        command.args(["-c", MOUNT]).arg(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3 is there");
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let hanging = Hanging(child);
        if said.trim() == "mounted" {
            return Some(hanging);
        }
        eprintln!("SKIPPED: a file system cannot be mounted here ({})", said.trim());
        None
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// A file system on which whoever writes waits, and cannot be killed.
struct Frozen {
    folder: PathBuf,
    is_frozen: bool,
}

impl Frozen {
    /// Over a folder; not frozen yet.
    fn over(folder: &Path) -> Option<Frozen> {
        let (image, at) = (folder.with_extension("image"), folder.display().to_string());
        fs::create_dir_all(folder).unwrap();
        fs::File::create(&image).unwrap().set_len(8 << 20).unwrap();
        let image = image.display().to_string();
        let is_there = geteuid().is_root() && run("mkfs.ext4", &["-q", "-F", &image]);
        if is_there && run("mount", &["-o", "loop", &image, &at]) {
            return Some(Frozen { folder: folder.to_owned(), is_frozen: false });
        }
        eprintln!("SKIPPED: an ext4 cannot be made and mounted here");
        None
    }

    fn freeze(&mut self) {
        assert!(run("fsfreeze", &["--freeze", &self.folder.display().to_string()]));
        self.is_frozen = true;
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let at = self.folder.display().to_string();
        if self.is_frozen {
            run("fsfreeze", &["--unfreeze", &at]);
        }
        run("umount", &["--lazy", &at]);
    }
}

fn run(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").stdin(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Processes that are stopped; killed in the end.
struct Stopped(Vec<Pid>);

impl Stopped {
    fn new(processes: impl IntoIterator<Item = Pid>) -> Stopped {
        let stopped = Stopped(processes.into_iter().collect());
        stopped.0.iter().for_each(|pid| kill_process(*pid, Signal::STOP).unwrap());
        stopped
    }

    fn assert_gone(&self) {
        for pid in &self.0 {
            wait_for(|| (!is_alive(*pid)).then_some(()), "it to end");
        }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        for pid in &self.0 {
            let _ = kill_process(*pid, Signal::KILL);
        }
    }
}

/// Whether it has not ended; one that nobody has waited for has.
fn is_alive(pid: Pid) -> bool {
    is_running(pid.as_raw_nonzero().get().unsigned_abs())
}

fn parent_of(pid: Pid) -> Pid {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap();
    Pid::from_raw(parent.trim().parse().unwrap()).unwrap()
}

fn guard_of(server: &Server<'_>) -> Pid {
    let master = server.child.id();
    let list = fs::read_to_string(format!("/proc/{master}/task/{master}/children")).unwrap();
    let tasks = fs::read_dir(format!("/proc/{master}/task")).unwrap().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let all = lists.chain([list]).collect::<Vec<_>>().join(" ");
    let is_guard = |pid: &&str| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(b"tidegate\0guard\0"))
    };
    let guard = all.split_ascii_whitespace().find(is_guard).expect("there is one");
    Pid::from_raw(guard.parse().unwrap()).unwrap()
}

/// The processes of a pool.
fn of_pool(server: &Server<'_>, name: &str) -> Vec<Pid> {
    let status = server.status();
    let pools = status["pools"].as_array().cloned().unwrap_or_default();
    let pool = pools.into_iter().find(|pool| pool["name"] == name);
    let all = pool.map(|pool| pool["processes"].as_array().cloned().unwrap_or_default()).unwrap_or_default();
    all.iter().filter_map(|process| Pid::from_raw(process["pid"].as_i64()? as i32)).collect()
}

/// The only process of a pool, once it is an application and no keeper.
fn application(server: &Server<'_>, name: &str) -> Pid {
    let master = Pid::from_child(&server.child);
    wait_for(
        || of_pool(server, name).into_iter().find(|pid| parent_of(*pid) != master),
        "a process of the pool",
    )
}

fn pool(name: &str, program: &str) -> String {
    format!(
        "pool \"{name}\" {{ command {program}; user \"root\"; stop-timeout \"1s\"; processes min=1 max=1; \
         socket auto pass=\"descriptor\" }}\n"
    )
}

const WAITS: &str = "\"sleep\" \"1000\"";

#[test]
fn a_keeper_and_a_guard_that_are_stopped_do_not_hold_up_the_end() {
    if !geteuid().is_root() {
        return eprintln!("SKIPPED: only root names the user of a pool");
    }
    let ends: [fn(&mut Server<'_>); 3] = [
        |server| assert_eq!(server.tell(&["stop", "--now"]).code, Some(0)),
        |server| server.signal(Signal::INT),
        |server| assert_eq!(server.tell(&["upgrade"]).code, Some(0)),
    ];
    std::thread::scope(|scope| {
        for (number, end) in ends.into_iter().enumerate() {
            scope.spawn(move || {
                let folder = Folder::new(&format!("stopped-keeper-{number}"));
                let text = "workers 1\nlisten \"127.0.0.1:0\"\nsite { respond 200 }\n";
                let mut server = Server::with_config(&folder, &(pool("a", WAITS) + text));
                let application = application(&server, "a");
                let stopped = Stopped::new([parent_of(application), guard_of(&server)]);
                end(&mut server);
                assert!(server.wait().success());
                stopped.assert_gone();
                wait_for(|| (!is_alive(application)).then_some(()), "it ends with its keeper");
            });
        }
    });
}

/// What is under way there is finished, and other pools notice nothing.
#[test]
fn a_pool_that_moves_elsewhere_holds_up_no_other() {
    if !geteuid().is_root() {
        return eprintln!("SKIPPED: only root names the user of a pool");
    }
    let folder = Folder::new("moved-pool");
    let text = "workers 1\nlisten \"127.0.0.1:0\"\nsite { respond 200 }\n".to_owned() + &pool("b", WAITS);
    let server = Server::with_config(&folder, &(pool("a", WAITS) + &text));
    let before = application(&server, "a");
    let stopped = Stopped::new([parent_of(before)]);
    folder.write("tidegate.kdl", &("pool \"a\" { address \"127.0.0.1:1\" }\n".to_owned() + &text));
    let outcome = server.tell(&["reload"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    for _ in 0..2 {
        let one = application(&server, "b");
        kill_process(one, Signal::KILL).unwrap();
        wait_for(|| of_pool(&server, "b").iter().any(|pid| *pid != one).then_some(()), "its successor");
    }
    // Back again, before the process of before has ended; then elsewhere, for good.
    folder.write("tidegate.kdl", &(pool("a", WAITS) + &text));
    assert_eq!(server.tell(&["reload"]).code, Some(0));
    kill_process(stopped.0[0], Signal::CONT).unwrap();
    wait_for(|| of_pool(&server, "a").iter().any(|pid| *pid != before).then_some(()), "it runs here again");
    stopped.assert_gone();
    let here = application(&server, "a");
    folder.write("tidegate.kdl", &("pool \"a\" { address \"127.0.0.1:1\" }\n".to_owned() + &text));
    assert_eq!(server.tell(&["reload"]).code, Some(0));
    wait_for(|| (!is_alive(here)).then_some(()), "it ends");
}

#[test]
fn an_application_that_cannot_be_killed_does_not_hold_up_the_end() {
    let folder = Folder::new("frozen-pool");
    let Some(mut frozen) = Frozen::over(&folder.path("f")) else { return };
    let text = "workers 1\nlisten \"127.0.0.1:0\"\nsite { respond 200 }\n";
    let error_log = format!("error-log \"{}\"\n", folder.path("error.log").display());
    let (go, made) = (folder.path("go"), folder.path("f/made"));
    let script =
        format!("until test -e {}; do sleep 0.01; done; exec mkdir {}", go.display(), made.display());
    let program = format!("\"sh\" \"-c\" \"{script}\"");
    let mut server = Server::with_config(&folder, &(error_log + &pool("a", &program) + text));
    let application = application(&server, "a");
    frozen.freeze();
    fs::write(go, "").unwrap();
    let state = || fs::read_to_string(format!("/proc/{}/stat", application.as_raw_nonzero())).unwrap();
    wait_for(|| state().contains("(mkdir) D ").then_some(()), "it to hang");
    let stopped = server.tell(&["stop", "--now"]);
    assert_eq!((stopped.code, &*stopped.stdout), (Some(0), "ended; nothing was open any more\n"));
    assert!(server.wait().success());
    let said = fs::read_to_string(folder.path("error.log")).unwrap();
    let left = format!("pool a: process {} was killed and has not ended", application.as_raw_nonzero());
    assert!(said.contains(&left), "{said}");
    drop(frozen);
    wait_for(|| (!is_alive(application)).then_some(()), "it ends when it is let go");
}

#[test]
fn a_server_process_that_cannot_be_killed_does_not_hold_up_the_end() {
    let folder = Folder::new("frozen-server");
    let Some(mut frozen) = Frozen::over(&folder.path("f")) else { return };
    let text = format!(
        "workers 1\nlisten \"127.0.0.1:0\"\nerror-log \"{}\"\naccess-log \"{}\"\nsite {{ respond 200 \"b\" }}\n",
        folder.path("error.log").display(),
        folder.path("f/access.log").display()
    );
    let mut server = Server::with_config(&folder, &text);
    let process = server.processes()[0];
    frozen.freeze();
    assert_eq!(server.body("/"), "b");
    let tasks = || fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero())).unwrap().flatten();
    let hangs =
        || tasks().any(|task| fs::read_to_string(task.path().join("stat")).is_ok_and(|s| s.contains(") D ")));
    wait_for(|| hangs().then_some(()), "its log thread to hang");
    let stopped = server.tell(&["stop", "--now"]);
    let cut = format!(
        "ended; what was open in server process {}, which did not react, was cut as well\n",
        process.as_raw_nonzero()
    );
    assert_eq!((stopped.code, &*stopped.stdout), (Some(0), &*cut), "{}", stopped.stderr);
    assert!(server.wait().success());
    assert!(TcpStream::connect(&server.address).is_err());
    let said = fs::read_to_string(folder.path("error.log")).unwrap();
    let left = format!("server process {} cannot be ended, and is left", process.as_raw_nonzero());
    assert!(said.contains(&left), "{said}");
    drop(frozen);
    wait_for(|| (!is_alive(process)).then_some(()), "it ends when it is let go");
}

fn settings(folder: &Folder) -> String {
    fs::create_dir_all(folder.path("m/www")).unwrap();
    format!(
        "workers 1\nlisten \"127.0.0.1:0\"\nerror-log \"{}\"\naccess-log \"{}\"\n\
         site \"a.test\" {{ root \"{}\" }}\nsite {{ respond 200 \"b\" }}\n",
        folder.path("error.log").display(),
        folder.path("m/access.log").display(),
        folder.path("m/www").display()
    )
}

/// What a site answers: the status, or nothing.
fn status(server: &Server<'_>, host: &str) -> Option<String> {
    let stream = TcpStream::connect(&server.address).ok()?;
    stream.set_read_timeout(Some(running::WAIT)).ok()?;
    match running::exchange_with(host, stream, "/index.html") {
        Ok(_) => Some("200".into()),
        Err(error) => error.to_string().split(' ').nth(1).map(str::to_owned),
    }
}

/// A server process that begins beside a file system that does not answer serves what lies elsewhere, and what lies there
/// once it answers.
#[test]
fn a_process_that_begins_beside_a_root_that_hangs_serves_the_other_sites() {
    let folder = Folder::new("hangs-root");
    let text = settings(&folder);
    fs::write(folder.path("m/www/index.html"), "a").unwrap();
    // A root behind a link, and a condition, hang as well.
    std::os::unix::fs::symlink("m/www", folder.path("link")).unwrap();
    let text = format!(
        "{text}site \"c.test\" {{ root \"{dir}/link\" }}\n\
         site \"d.test\" {{ respond 200 \"no\"; route \"/*\" {{ when file \"{dir}/m/www/index.html\"; respond 204 }} }}\n",
        dir = folder.0.display()
    );
    let mut server = Server::with_config(&folder, &text);
    let all =
        || ["a.test", "b.test", "c.test", "d.test"].map(|host| status(&server, host).unwrap_or_default());
    assert_eq!(all(), ["200", "200", "200", "204"]);
    let Some(hanging) = Hanging::over(&folder.path("m")) else { return };
    let before = server.processes();
    kill_process(before[0], Signal::KILL).unwrap();
    wait_for(|| (all() == ["503", "200", "503", "200"]).then_some(()), "the others to be served");
    let beside = server.processes();
    assert_ne!(before, beside);
    let stopped = server.tell(&["status"]);
    assert!(stopped.stdout.contains("serving"), "{}", stopped.stdout);
    drop(hanging);
    wait_for(|| (all() == ["200", "200", "200", "204"]).then_some(()), "all to be served again");
    let is_gone = || (!server.processes().contains(&beside[0])).then_some(());
    wait_for(is_gone, "the process that did without to end: another one serves");
    let stopped = server.tell(&["stop", "--now"]);
    assert_eq!((stopped.code, &*stopped.stdout), (Some(0), "ended; nothing was open any more\n"));
    assert!(server.wait().success());
}

/// The end is not kept up by it either.
#[test]
fn a_server_whose_root_hangs_ends_when_told() {
    let folder = Folder::new("hangs-end");
    let mut server = Server::with_config(&folder, &settings(&folder));
    let Some(hanging) = Hanging::over(&folder.path("m")) else { return };
    let before = server.processes();
    kill_process(before[0], Signal::KILL).unwrap();
    let next = wait_for(
        || server.processes().into_iter().find(|process| !before.contains(process)),
        "another process",
    );
    let stopped = server.tell(&["stop", "--now"]);
    assert_eq!((stopped.code, &*stopped.stdout), (Some(0), "ended; nothing was open any more\n"));
    assert!(server.wait().success());
    drop(hanging);
    wait_for(|| (!is_alive(next)).then_some(()), "it ends when it is let go");
}

#[test]
fn a_log_that_hangs_keeps_nobody_from_being_served_and_is_said() {
    let folder = Folder::new("hangs-log");
    let server = Server::with_config(&folder, &settings(&folder));
    let Some(hanging) = Hanging::over(&folder.path("m")) else { return };
    fs::rename(folder.path("error.log"), folder.path("error.log.1")).unwrap();
    server.signal(Signal::USR1);
    // The other log is opened anew at once: what is said about this one is in the new file.
    let said = || fs::read_to_string(folder.path("error.log")).unwrap_or_default();
    for _ in 0..3 {
        assert_eq!(server.body("/"), "b");
        assert_eq!(server.processes().len(), 1);
    }
    let why = format!("the log {} could not be opened anew until now", folder.path("m/access.log").display());
    wait_for(|| said().contains(&why).then_some(()), "the sentence about the log");
    // Once more, while the first one still waits.
    server.signal(Signal::USR1);
    assert!(server.tell(&["status"]).stdout.contains("serving"));
    drop(hanging);
    wait_for(|| said().contains("the logs were opened anew").then_some(()), "them to be opened");
    assert_eq!(server.body("/"), "b");
}

/// A reload reads for 30 s, and is given up then: the reason is awaited.
fn assert_given_up(server: &Server<'_>) {
    let outcome = server.tell(&["reload"]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stderr.contains("nothing has changed"), "{}", outcome.stderr);
}

fn is_refused(address: &str) -> bool {
    TcpStream::connect(address).is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
}

/// What the thread that hangs has, it has for as long as that file system likes.
#[test]
fn a_reading_that_hangs_keeps_no_address_and_leaves_nothing_when_it_goes_on() {
    let folder = Folder::new("hangs-reading");
    fs::create_dir_all(folder.path("m/www")).unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let second = free.local_addr().unwrap().to_string();
    drop(free);
    let head = format!(
        "workers 1\nlisten \"127.0.0.1:0\"\nerror-log \"{}\"\nsite {{ respond 200 \"b\" }}\n",
        folder.path("error.log").display()
    );
    let site = format!("site \"a.test\" {{ root \"{}\" }}\n", folder.path("m/www").display());
    let two = format!("listen \"{second}\"\n");
    let mut server = Server::with_config(&folder, &(two + &head + &site));
    let Some(hanging) = Hanging::over(&folder.path("m")) else { return };
    let (log, socket) = (folder.path("late.log"), folder.path("late.sock"));
    let late = format!("listen \"unix:{}\"\naccess-log \"{}\"\n", socket.display(), log.display());
    folder.write("tidegate.kdl", &(late + &head + &site));
    assert_given_up(&server);
    folder.write("tidegate.kdl", &head);
    let outcome = server.tell(&["reload", "--allow-loss"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(is_refused(&second), "the address is kept");
    let master = server.child.id();
    let tasks = || fs::read_dir(format!("/proc/{master}/task")).unwrap().flatten();
    let names =
        || tasks().filter_map(|task| fs::read_to_string(task.path().join("comm")).ok()).collect::<String>();
    assert!(names().contains("tidegate-reload"), "it hangs: {}", names());
    drop(hanging);
    wait_for(|| (!names().contains("tidegate-reload")).then_some(()), "it to go on to its end");
    wait_for(|| (!names().contains("tidegate-close")).then_some(()), "what it had to be closed");
    assert!(!log.exists() && !socket.exists(), "it has left something");
    assert_eq!(server.tell(&["stop"]).code, Some(0));
    assert!(server.wait().success());
}

/// Everything else that the master writes, removes or looks at while it serves.
#[test]
fn the_master_waits_for_no_file_system_while_a_reload_is_put_in_force() {
    let folder = Folder::new("hangs-force");
    fs::create_dir_all(folder.path("m")).unwrap();
    let head = "workers 1\nprocesses 2\nlisten \"127.0.0.1:0\"\nsite { respond 200 \"b\" }\n";
    let before = format!(
        "pid-file \"{}\"\nlisten \"unix:{}\"\ncontrol \"{}\"\n",
        folder.path("m/pid").display(),
        folder.path("m/sock").display(),
        folder.path("control").display()
    );
    let after = format!("control \"{}\"\n", folder.path("control").display());
    let mut server = Server::with_config(&folder, &(before + head));
    let Some(hanging) = Hanging::over(&folder.path("m")) else { return };
    folder.write("tidegate.kdl", &(after + head));
    let outcome = server.tell(&["reload", "--allow-loss"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let before = server.processes();
    kill_process(before[0], Signal::KILL).unwrap();
    wait_for(|| server.processes().iter().any(|pid| !before.contains(pid)).then_some(()), "its successor");
    assert_eq!(server.tell(&["stop", "--now"]).code, Some(0));
    assert!(server.wait().success());
    drop(hanging);
}

/// A process of the same user, or root, takes a server process its descriptors: it hangs for everybody who comes, and does
/// not end by itself.
#[test]
fn a_server_process_whose_limits_were_lowered_is_replaced() {
    use rustix::process::{Resource, Rlimit, prlimit};
    let folder = Folder::new("lowered");
    let mut server = Server::with_config(&folder, &running::site("fine"));
    let deaf = server.processes()[0];
    let few = Rlimit { current: Some(3), maximum: Some(3) };
    prlimit(Some(deaf), Resource::Nofile, few).unwrap();
    server.line("the limit of descriptors of server process");
    wait_for(|| (!server.processes().contains(&deaf)).then_some(()), "another to serve");
    assert_eq!(server.body("/"), "fine");
}

/// Said once when it begins and once when it ends; what memory has is served all the while, and no order of an operator waits for it.
#[test]
fn a_cache_folder_that_hangs_is_done_without() {
    let folder = Folder::apart("cache-hangs");
    fs::create_dir_all(folder.path("www")).unwrap();
    folder.write("www/f", "a file");
    let text = "listen \"127.0.0.1:0\"\nworkers 1\ncache \"main\" { memory \"4MiB\"; disk \"cache\" size=\"16MiB\" }\n\
                site { root \"www\"; route \"/*\" { cache \"main\" { default-lifetime 200 \"1h\" } } }\n";
    let mut server = Server::with_config(&folder, text);
    assert_eq!(server.body("/f"), "a file");
    let Some(hanging) = Hanging::over(&folder.path("cache")) else { return };
    server.line("is stalled: a call to its disk has been waiting for 5s");
    assert_eq!(server.body("/f"), "a file");
    // Where the server is found is read without asking the folder.
    let control = server.control.as_deref().unwrap();
    let other = folder.write("other.kdl", &format!("control {control:?}\n{text}"));
    let outcome = running::run(&folder, &["cache", "stats", "--config", &other]);
    assert!(outcome.stderr.contains("this server has its settings from"), "{}", outcome.stderr);
    for (arguments, code, said) in [
        (&["cache", "stats"][..], 0, "STALLED: does not answer"),
        (&["cache", "ls"], 0, "is missing here: it does not answer"),
        (&["cache", "show", "http://a.test/x"], 1, "is missing here: it does not answer"),
        (&["cache", "verify"], 1, "is missing here: it does not answer"),
        (&["cache", "purge", "--all"], 0, "what lies on a disk alone was not counted"),
        (&["status"], 0, "STALLED since "),
        (&["status", "--prometheus"], 0, "tidegate_cache_store_disk_stalled{cache=\"main\",disk="),
    ] {
        let outcome = server.tell(arguments);
        let all = outcome.stdout + &outcome.stderr;
        assert!(outcome.code == Some(code) && all.contains(said), "{arguments:?}: {:?} {all}", outcome.code);
    }
    drop(hanging);
    server.line("answers again, after ");
    let outcome = server.tell(&["cache", "stats"]);
    assert!(!outcome.stdout.contains("STALLED"), "{}", outcome.stdout);
}
