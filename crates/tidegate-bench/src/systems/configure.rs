//! Settings of a system for the time of a run: the old content is kept beside the file, and put back.
//!
//! All of it is done by `sh` on the machine of the system, so that this machine and one by ssh are alike. The file is written in place:
//! it keeps its owner and mode, and a link or a mount stays what it is. What cannot be put back as it was is not written.

use super::place::{Ending, Group, GroupId, Place, Status, end};
use super::undo::GRACE;
use crate::quantity::show_duration;
use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// What the old content is called, behind the path of the file.
const BEFORE: &str = ".tidegate-before";
/// The same where there was no file.
const NONE: &str = ".tidegate-before-none";
/// How long putting it back may take.
const RESTORE: Duration = Duration::from_secs(60);
/// The exit status of [`WRITE`] where somebody else has kept the old content, or that there was none; of [`PUT_BACK`] where it is gone.
const TAKEN: i32 = 3;
const TAKEN_NONE: i32 = 4;
const GONE: i32 = 3;
/// What [`WRITE`] says once the old content is kept.
const KEPT: &str = "kept";
/// Bytes of what it complains of that are looked at.
const SAID: usize = 4_000;

/// Keeps the old content, a copy with owner and mode, or that there was no file, and says so. Where its input ends then, whoever
/// wanted it is gone: the copy goes again, and nothing is written. Else a line lets it begin, and the rest of its input is written.
const WRITE: &str = r#"trap '' HUP PIPE
b="$1.tidegate-before"
if [ -e "$b" ] || [ -h "$b" ]; then exit 3; fi
if [ -e "$b-none" ] || [ -h "$b-none" ]; then exit 4; fi
if [ -e "$1" ]; then
    if [ ! -f "$1" ]; then echo "$1 is no regular file" >&2; exit 1; fi
    { :; } <> "$1" || exit 1
    part="$b-part-$$"
    cp -p -- "$1" "$part" || { rm -f -- "$part"; exit 1; }
    if ! ln -- "$part" "$b" 2>/dev/null; then
        if [ -e "$b" ]; then rm -f -- "$part"; exit 3; fi
        mv -- "$part" "$b" || { rm -f -- "$part"; exit 1; }
    fi
    rm -f -- "$part"
elif [ -h "$1" ]; then
    echo "$1 is a link that leads to no file" >&2; exit 1
else
    (set -C; : > "$b-none") || exit 1
fi
echo kept
read -r go || { rm -f -- "$b" "$b-none"; exit 1; }
exec cat > "$1""#;

/// Puts back what was kept. The copy is open before the file is emptied, whoever else puts it back at the same time.
const PUT_BACK: &str = r#"b="$1.tidegate-before"
if [ -e "$b-none" ]; then rm -f -- "$1" && rm -f -- "$b-none"; exit; fi
if [ ! -e "$b" ]; then exit 3; fi
if [ -f "$1" ]; then
    { cat <&4 > "$1"; } 4< "$b" || { [ -e "$b" ] || exit 3; exit 1; }
    rm -f -- "$b"
elif [ -e "$1" ]; then
    echo "$1 is no regular file any more" >&2; exit 1
else
    to=$(readlink -f -- "$1") && mv -- "$b" "$to"
fi"#;

/// Why a file could not be written; the end of a sentence.
#[derive(Debug)]
pub(super) enum Fault {
    /// In words.
    Failed(String),
    /// Somebody wants the run to end.
    Interrupted,
}

/// What is known of what was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Kept {
    /// It is there, unless somebody has removed it.
    There,
    /// It may not be there any more: it is being made, or put back.
    Unsure,
}

/// Keeps the old content of a file, and writes it. `kept` gets the process group that writes, before it does; from then on the
/// old content must be put back, whatever comes of it.
pub(super) fn write(
    place: &Place,
    (path, text): (&str, &str),
    within: Duration,
    is_interrupted: impl Fn() -> bool,
    kept: impl FnOnce(GroupId),
) -> Result<(), Fault> {
    let until = Instant::now() + within;
    let mut command = place.shell_of(WRITE, path);
    let mut writing = Writing::start(command.stdin(Stdio::piped())).map_err(cannot)?;
    let Some(mut input) = writing.group.0.stdin.take() else {
        return Err(Fault::Failed("has no input".to_owned()));
    };
    let ending = end(&writing.group, within, || writing.has_kept() || is_interrupted());
    if !matches!(ending, Ending::Interrupted) || !writing.has_kept() {
        // Its input ends: what it has kept goes again.
        drop(input);
        let is_over = matches!(end(&writing.group, GRACE, || false), Ending::Ended(_));
        let left = if is_over { "" } else { "; look for what it has left beside the file" };
        return Err(match ending {
            Ending::Ended(status) if status.code == Some(TAKEN) => Fault::Failed(format!(
                "found {path}{BEFORE}: another run has written {path} and goes on, or was killed. When none goes on, put the old \
                 content back (`cat {path}{BEFORE} > {path}`) and remove it"
            )),
            Ending::Ended(status) if status.code == Some(TAKEN_NONE) => Fault::Failed(format!(
                "found {path}{NONE}: another run has made {path} and goes on, or was killed. When none goes on, remove both"
            )),
            Ending::Ended(status) => Fault::Failed(format!("failed{}", writing.why(&status))),
            Ending::Late => Fault::Failed(format!("took longer than {}{left}", show_duration(within))),
            Ending::Interrupted => Fault::Interrupted,
        });
    }
    kept(writing.group.id());
    let content = format!("go\n{text}");
    // A pipe of which nobody reads holds up this thread alone.
    std::thread::Builder::new()
        .name("bench-configure".to_owned())
        .spawn(move || fill(&mut input, content.as_bytes()))
        .map_err(cannot)?;
    match end(&writing.group, until.saturating_duration_since(Instant::now()), is_interrupted) {
        Ending::Ended(status) if status.is_success() => Ok(()),
        Ending::Ended(status) => Err(Fault::Failed(format!("failed{}", writing.why(&status)))),
        Ending::Late => Err(Fault::Failed(format!("took longer than {}", show_duration(within)))),
        Ending::Interrupted => Err(Fault::Interrupted),
    }
}

/// One that has ended before it has read all says why by its status.
fn fill(input: &mut ChildStdin, content: &[u8]) {
    let _ = input.write_all(content);
}

/// Puts the old content of a file back. The error is the end of a sentence.
pub(super) fn put_back(place: &Place, path: &str, kept: Kept) -> Result<(), String> {
    let restored = Writing::start(&mut place.shell_of(PUT_BACK, path));
    let restored = restored.map_err(|error| format!("{error}; its old content is in {path}{BEFORE}"))?;
    let why = match end(&restored.group, RESTORE, || false) {
        Ending::Ended(status) if status.is_success() => return Ok(()),
        Ending::Ended(status) if status.code == Some(GONE) => {
            return match kept {
                Kept::Unsure => Ok(()),
                Kept::There => Err(format!(
                    "what was kept beside it is gone (`{path}{BEFORE}`, or `{path}{NONE}` where there was no file); it may still be as \
                     the run has written it"
                )),
            };
        }
        Ending::Ended(status) => restored.why(&status),
        Ending::Late | Ending::Interrupted => format!(": it took longer than {}", show_duration(RESTORE)),
    };
    Err(format!("putting it back failed{why}; its old content is in {path}{BEFORE}"))
}

fn cannot(error: io::Error) -> Fault {
    Fault::Failed(format!("cannot be run: {error}"))
}

/// A command at a file, and what it says, which no pipe can hold up.
struct Writing {
    group: Group,
    output: File,
    complaints: File,
}

impl Writing {
    fn start(command: &mut Command) -> io::Result<Writing> {
        let [output, complaints] =
            ["output", "complaints"].map(|name| memfd_create(name, MemfdFlags::CLOEXEC).map(File::from));
        let (output, complaints) = (output?, complaints?);
        command.stdout(output.try_clone()?).stderr(complaints.try_clone()?);
        Ok(Writing { group: Group::start(command)?, output, complaints })
    }

    fn has_kept(&self) -> bool {
        text_of(&self.output).lines().any(|line| line == KEPT)
    }

    /// Why it has failed: the last line that it said, or how it has ended.
    fn why(&self, status: &Status) -> String {
        let text = text_of(&self.complaints);
        match text.lines().rev().find(|line| !line.trim().is_empty()) {
            Some(line) => format!(": {}", plain(line).chars().take(300).collect::<String>()),
            None => format!(" ({status})"),
        }
    }
}

fn text_of(file: &File) -> String {
    let mut bytes = vec![0; SAID];
    let from = file.metadata().map_or(0, |about| about.len()).saturating_sub(SAID as u64);
    let read = file.read_at(&mut bytes, from).unwrap_or(0);
    String::from_utf8_lossy(bytes.get(..read).unwrap_or_default()).into_owned()
}

/// What a shell complains of without where it stands in its text: `configure: 8: cannot open /x: Permission denied`.
fn plain(line: &str) -> &str {
    let Some(rest) = line.strip_prefix("configure: ") else { return line.trim() };
    match rest.split_once(": ") {
        Some((place, rest))
            if place.trim_start_matches("line ").bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            rest
        }
        _ => rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::{Path, PathBuf};

    const WITHIN: Duration = Duration::from_secs(30);

    struct Ground(PathBuf);

    impl Ground {
        fn new(name: &str) -> Ground {
            let path = std::env::temp_dir().join(format!("tidegate-configure-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Ground(path)
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).unwrap().flatten();
            let mut names: Vec<String> =
                entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Ground {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn text(path: &Path) -> Option<String> {
        fs::read_to_string(path).ok()
    }

    fn written(path: &Path, text: &str) -> Result<(), Fault> {
        write(&Place::Here, (path.to_str().unwrap(), text), WITHIN, || false, |_| {})
    }

    fn refused(path: &Path) -> String {
        let kept = |_| panic!("{} is kept", path.display());
        match write(&Place::Here, (path.to_str().unwrap(), "new"), WITHIN, || false, kept) {
            Err(Fault::Failed(why)) => why,
            other => panic!("{}: {other:?}", path.display()),
        }
    }

    fn restored(path: &Path, kept: Kept) -> Result<(), String> {
        put_back(&Place::Here, path.to_str().unwrap(), kept)
    }

    #[test]
    fn a_file_is_written_and_is_again_what_it_was() {
        let ground = Ground::new("again");
        let (file, link, none) =
            (ground.0.join("a b'c.conf"), ground.0.join("link.conf"), ground.0.join("none.conf"));
        fs::write(&file, "old\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        symlink(&file, &link).unwrap();
        // More than a pipe holds.
        let new = format!("new ${{x}} \\n{}\n", "-".repeat(300_000));
        for path in [&file, &link, &none] {
            let before = text(path);
            written(path, &new).unwrap();
            assert_eq!(text(path).as_deref(), Some(new.as_str()));
            let why = refused(path);
            assert!(why.contains(": another run has "), "{why}");
            restored(path, Kept::There).unwrap();
            assert_eq!(text(path), before, "{}", path.display());
            // There is nothing to put back any more: that is said, and nothing is lost by it.
            let why = restored(path, Kept::There).unwrap_err();
            assert!(why.starts_with("what was kept beside it is gone"), "{why}");
            restored(path, Kept::Unsure).unwrap();
            assert_eq!(text(path), before, "{}", path.display());
        }
        // What the run has removed is made again, with its mode, where the link leads.
        written(&link, "new").unwrap();
        fs::remove_file(&file).unwrap();
        restored(&link, Kept::There).unwrap();
        assert_eq!(text(&file).as_deref(), Some("old\n"));
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(ground.names(), ["a b'c.conf", "link.conf"]);
    }

    #[test]
    fn what_cannot_be_put_back_as_it_was_is_refused_in_a_sentence() {
        let ground = Ground::new("refused");
        let path = |name: &str| ground.0.join(name);
        symlink("nowhere", path("dangling")).unwrap();
        symlink("/dev/full", path("device")).unwrap();
        fs::create_dir(path("folder")).unwrap();
        let fifo = path("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        let before = ground.names();
        for (name, reason) in [
            ("dangling", "is a link that leads to no file"),
            ("device", "is no regular file"),
            ("folder", "is no regular file"),
            ("fifo", "is no regular file"),
            ("socket", "is no regular file"),
        ] {
            let said = format!("failed: {} {reason}", path(name).display());
            assert_eq!(refused(&path(name)), said);
        }
        let why = refused(&path("missing/x.conf"));
        assert!(why.starts_with("failed: cannot create ") && !why.contains("configure: "), "{why}");
        assert_eq!(ground.names(), before);
        assert!(fs::symlink_metadata(path("dangling")).unwrap().is_symlink());
    }

    #[test]
    fn a_file_that_became_none_is_said_with_its_copy() {
        let ground = Ground::new("became");
        let file = ground.0.join("x.conf");
        fs::write(&file, "old").unwrap();
        written(&file, "new").unwrap();
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        let why = restored(&file, Kept::There).unwrap_err();
        let copy = format!("{}.tidegate-before", file.display());
        let said = format!("{} is no regular file any more; its old content is in {copy}", file.display());
        assert!(why.contains(&said), "{why}");
        assert_eq!(text(Path::new(&copy)).as_deref(), Some("old"));
    }

    /// Who is interrupted or killed before anybody knows of the copy leaves none.
    #[test]
    fn a_copy_of_which_nobody_knows_goes_again() {
        let ground = Ground::new("nobody");
        let file = ground.0.join("x.conf");
        for content in [Some("old"), None] {
            let _ = fs::remove_file(&file);
            content.into_iter().for_each(|content| fs::write(&file, content).unwrap());
            let before = ground.names();
            // Where the copy is known before anybody has looked for an interruption, it is put back, and tried again.
            let is_interrupted = (0..100).any(|_| {
                let is_known = Cell::new(false);
                let names = (file.to_str().unwrap(), "new");
                let ended = write(&Place::Here, names, WITHIN, || !is_known.get(), |_| is_known.set(true));
                if is_known.get() {
                    ended.unwrap();
                    restored(&file, Kept::There).unwrap();
                } else {
                    assert!(matches!(ended, Err(Fault::Interrupted)), "{ended:?}");
                }
                assert_eq!((ground.names(), text(&file).as_deref()), (before.clone(), content));
                !is_known.get()
            });
            assert!(is_interrupted, "it is always too late");
        }
    }

    #[test]
    fn a_copy_that_cannot_be_made_is_said() {
        let why = written(Path::new("/proc/self/oom_score_adj"), "no number").unwrap_err();
        let Fault::Failed(why) = why else { panic!("{why:?}") };
        assert!(why.starts_with("failed: "), "{why}");
    }

    #[test]
    fn where_a_shell_complains_is_left_out() {
        for (line, reason) in [
            ("configure: 8: cannot open /x: Permission denied", "cannot open /x: Permission denied"),
            ("configure: line 8: /x: Permission denied", "/x: Permission denied"),
            ("configure: /x: Permission denied", "/x: Permission denied"),
            (
                "cp: error writing '/x': No space left on device",
                "cp: error writing '/x': No space left on device",
            ),
        ] {
            assert_eq!(plain(line), reason);
        }
    }
}
