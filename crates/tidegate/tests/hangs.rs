//! File systems that do not answer: what waits for them, and what does not.
//!
//! A FUSE that nobody serves is mounted, which takes root and python3(1); skipped loudly elsewhere.

mod running;

use running::{Folder, Server, wait_for};
use rustix::process::{Signal, geteuid, kill_process};
use std::io::{BufRead, BufReader};
use std::path::Path;
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

fn settings(folder: &Folder) -> String {
    std::fs::create_dir_all(folder.path("m/www")).unwrap();
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
    let stream = std::net::TcpStream::connect(&server.address).ok()?;
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
    std::fs::write(folder.path("m/www/index.html"), "a").unwrap();
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
    assert!(!server.processes().contains(&beside[0]), "by another process");
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
    wait_for(|| (!is_running(next.as_raw_nonzero().get() as u32)).then_some(()), "it ends when it is let go");
}

#[test]
fn a_log_that_hangs_keeps_nobody_from_being_served_and_is_said() {
    let folder = Folder::new("hangs-log");
    let server = Server::with_config(&folder, &settings(&folder));
    let Some(hanging) = Hanging::over(&folder.path("m")) else { return };
    server.signal(Signal::USR1);
    let said = || std::fs::read_to_string(folder.path("error.log")).unwrap();
    for _ in 0..3 {
        assert_eq!(server.body("/"), "b");
        assert_eq!(server.processes().len(), 1);
    }
    let why = "the logs could not be opened anew until now";
    wait_for(|| said().contains(why).then_some(()), "the sentence about the logs");
    // Once more, while the first one still waits.
    server.signal(Signal::USR1);
    assert!(server.tell(&["status"]).stdout.contains("serving"));
    drop(hanging);
    wait_for(|| said().contains("the logs were opened anew").then_some(()), "them to be opened");
    assert_eq!(server.body("/"), "b");
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
