//! Settings of a system for the time of a run: the old content is kept beside the file, and put back.
//!
//! All of it is done by `sh` on the machine of the system, so that this machine and one by ssh are alike. The file is written in place:
//! it keeps its owner and mode, and a link or a mount stays what it is.

use super::place::{Ending, Place, begin, end};
use crate::quantity::show_duration;
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::path::Path;
use std::time::Duration;

/// What the old content is called, behind the path of the file.
const BEFORE: &str = ".tidegate-before";
/// How long putting it back may take.
const RESTORE: Duration = Duration::from_secs(60);
/// The exit status of [`KEEP`] where somebody else has kept something there.
const TAKEN: i32 = 3;

/// Keeps the old content: a copy with owner and mode, or that there was no file.
const KEEP: &str = "set -e; b=\"$0.tidegate-before\"; \
                    if [ -e \"$b\" ] || [ -e \"$b-none\" ]; then exit 3; fi; \
                    if [ ! -e \"$0\" ]; then : > \"$b-none\"; exit 0; fi; \
                    cp -p -- \"$0\" \"$b-part\" || { rm -f -- \"$b-part\"; exit 1; }; mv -- \"$b-part\" \"$b\"";
/// Writes what comes by its input.
const WRITE: &str = "exec cat > \"$0\"";
/// Puts back what was kept.
const PUT_BACK: &str = "set -e; b=\"$0.tidegate-before\"; \
                        if [ -e \"$b-none\" ]; then rm -f -- \"$0\"; rm -f -- \"$b-none\"; \
                        elif [ -e \"$b\" ]; then cat -- \"$b\" > \"$0\"; rm -f -- \"$b\"; fi";

/// Why a file could not be written; the end of a sentence.
pub(super) enum Fault {
    /// In words.
    Failed(String),
    /// Somebody wants the run to end.
    Interrupted,
}

/// Keeps the old content of a file.
pub(super) fn keep(
    place: &Place,
    path: &str,
    within: Duration,
    log: Option<&Path>,
    is_interrupted: impl Fn() -> bool,
) -> Result<(), Fault> {
    let kept = begin(&mut place.shell_of(KEEP, path), log).map_err(cannot)?;
    match end(&kept, within, is_interrupted) {
        Ending::Ended(status) if status.code == Some(TAKEN) => Err(Fault::Failed(format!(
            "found {path}{BEFORE}: another run has written {path} and goes on, or was killed. When none goes on, put the old \
             content back (`cat {path}{BEFORE} > {path}`) and remove it"
        ))),
        ending => of(ending, within),
    }
}

/// Writes a file. What was kept must be put back, whatever comes of it.
pub(super) fn write(
    place: &Place,
    (path, text): (&str, &str),
    within: Duration,
    log: Option<&Path>,
    is_interrupted: impl Fn() -> bool,
) -> Result<(), Fault> {
    let mut command = place.shell_of(WRITE, path);
    command.stdin(input(text).map_err(cannot)?);
    let written = begin(&mut command, log).map_err(cannot)?;
    of(end(&written, within, is_interrupted), within)
}

/// Puts the old content of a file back. The error is the end of a sentence.
pub(super) fn put_back(place: &Place, path: &str, log: Option<&Path>) -> Result<(), String> {
    let fault = match begin(&mut place.shell_of(PUT_BACK, path), log) {
        Err(error) => error.to_string(),
        Ok(restored) => match end(&restored, RESTORE, || false) {
            Ending::Ended(status) if status.is_success() => return Ok(()),
            Ending::Ended(status) => status.to_string(),
            Ending::Late | Ending::Interrupted => format!("it took longer than {}", show_duration(RESTORE)),
        },
    };
    Err(format!("{fault}; its old content is in {path}{BEFORE}"))
}

fn cannot(error: io::Error) -> Fault {
    Fault::Failed(format!("cannot be run: {error}"))
}

fn of(ending: Ending, within: Duration) -> Result<(), Fault> {
    match ending {
        Ending::Ended(status) if status.is_success() => Ok(()),
        Ending::Ended(status) => Err(Fault::Failed(format!("failed ({status})"))),
        Ending::Late => Err(Fault::Failed(format!("took longer than {}", show_duration(within)))),
        Ending::Interrupted => Err(Fault::Interrupted),
    }
}

/// A text as the input of a command, which no pipe can hold up.
fn input(text: &str) -> io::Result<File> {
    let mut file = File::from(memfd_create("settings", MemfdFlags::CLOEXEC)?);
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    const WITHIN: Duration = Duration::from_secs(30);

    fn text(path: &Path) -> Option<String> {
        fs::read_to_string(path).ok()
    }

    #[test]
    fn a_file_is_written_and_is_again_what_it_was() {
        let folder = std::env::temp_dir().join(format!("tidegate-configure-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (file, link, none) =
            (folder.join("a b'c.conf"), folder.join("link.conf"), folder.join("none.conf"));
        fs::write(&file, "old\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        symlink(&file, &link).unwrap();
        let never = || false;
        for path in [&file, &link, &none] {
            let before = text(path);
            let name = path.to_str().unwrap();
            assert!(keep(&Place::Here, name, WITHIN, None, never).is_ok());
            let Err(Fault::Failed(why)) = keep(&Place::Here, name, WITHIN, None, never) else {
                panic!("a second run takes {name} as well")
            };
            assert!(why.contains(".tidegate-before: another run has written"), "{why}");
            assert!(write(&Place::Here, (name, "new ${x} \\n\n"), WITHIN, None, never).is_ok());
            assert_eq!(text(path).as_deref(), Some("new ${x} \\n\n"));
            put_back(&Place::Here, name, None).unwrap();
            assert_eq!(text(path), before, "{name}");
            // There is nothing to put back any more, and nothing is lost by it.
            put_back(&Place::Here, name, None).unwrap();
            assert_eq!(text(path), before, "{name}");
        }
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "something is left");
        let missing = folder.join("nowhere/x.conf");
        assert!(keep(&Place::Here, missing.to_str().unwrap(), WITHIN, None, never).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
