//! Commands and files of users other than root, for tests that root runs.

use super::Folder;
use rustix::process::geteuid;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use tidegate_testkit::InTime;
use tidegate_testkit::reachable;

/// The command, where every user can run it.
pub fn binary() -> String {
    reachable(Path::new(super::BINARY)).display().to_string()
}

/// The user that the tests give to applications, and its number.
pub fn user() -> Option<(String, u32)> {
    if !geteuid().is_root() {
        eprintln!("SKIPPED: only root can start what runs as another user");
        return None;
    }
    for name in ["www-data", "nobody"] {
        let output = Command::new("id").args(["-u", name]).output_in_time();
        if output.status.success() {
            let number = String::from_utf8(output.stdout).ok()?.trim().parse().ok()?;
            return Some((name.to_owned(), number));
        }
    }
    eprintln!("SKIPPED: this system has neither a user www-data nor a user nobody");
    None
}

/// What the unit says behind `NAME=`.
pub fn of_unit(name: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/tidegate.service");
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    lines.map(str::to_owned).collect()
}

/// The command with another one in front, which runs it.
pub fn before(mut front: Command, command: &Command) -> Command {
    let program = Path::new(command.get_program());
    let program = if program.is_absolute() { reachable(program) } else { program.to_owned() };
    front.arg(program).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => front.env(name, value),
            None => front.env_remove(name),
        };
    }
    front.current_dir(command.get_current_dir().unwrap());
    front
}

pub fn script(folder: &Folder, name: &str, text: &str) {
    let path = folder.path(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A key that was left readable by everybody is the operator's; this one is not.
pub fn certificate(folder: &Folder) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
        .args([
            "-subj",
            "/CN=a.test",
            "-addext",
            "subjectAltName=DNS:a.test",
            "-keyout",
            "site.key",
            "-out",
            "site.pem",
        ])
        .current_dir(&folder.0)
        .output_in_time();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    fs::set_permissions(folder.path("site.key"), fs::Permissions::from_mode(0o600)).unwrap();
}

/// The command as an ordinary user, without anything of root's.
pub fn as_user(command: &Command, number: u32, is_unit: bool) -> Command {
    let mut changed = Command::new("setpriv");
    changed.args([format!("--reuid={number}"), format!("--regid={number}"), "--clear-groups".into()]);
    changed.args(["--bounding-set=-all", "--inh-caps=-all"]);
    if is_unit {
        assert_eq!(of_unit("NoNewPrivileges"), ["yes"]);
        changed.arg("--no-new-privs");
    }
    before(changed, command)
}
