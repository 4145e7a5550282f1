//! File systems that do not answer: what waits for them, and what does not.
//!
//! A FUSE that nobody serves is mounted, which takes root and python3(1); skipped loudly elsewhere.

mod running;

use running::{Folder, Server, wait_for};
use rustix::process::{Signal, geteuid, kill_process};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

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

#[test]
fn a_root_that_hangs_keeps_no_order_from_the_master_and_not_its_end() {
    let folder = Folder::new("hangs-root");
    let mut server = Server::with_config(&folder, &settings(&folder));
    let Some(hanging) = Hanging::over(&folder.path("m")) else { return };
    let before = server.processes();
    kill_process(before[0], Signal::KILL).unwrap();
    // Its successor looks at the root: for how long, nobody else cares.
    let next = wait_for(
        || server.processes().into_iter().find(|process| !before.contains(process)),
        "another process",
    );
    assert!(server.tell(&["status"]).stdout.contains("starting"));
    let stopped = server.tell(&["stop", "--now"]);
    assert_eq!((stopped.code, &*stopped.stdout), (Some(0), "ended; nothing was open any more\n"));
    assert!(server.wait().success());
    drop(hanging);
    wait_for(
        || (!tidegate_testkit::is_running(next.as_raw_nonzero().get() as u32)).then_some(()),
        "it ends when it is let go",
    );
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
