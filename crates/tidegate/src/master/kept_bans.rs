//! `bans-file`: who is banned when the server stops is banned when it starts again.
//!
//! The file is written at the end of the master, unless a successor goes on with the same tables, and gone as soon as the
//! next one has started: what is lifted while the server runs does not come back, whatever ends it.

use super::kept_file::KeptFile;
use super::rates::{KeptBan, Rates};
use std::path::Path;
use tidegate_core::log;
use tidegate_io::clock::wall_seconds;

/// Whether a text is what this writes.
fn is_own(text: &str) -> bool {
    text.lines().any(|line| KeptBan::parse(line).is_some())
}

fn file(path: &Path) -> KeptFile<'_> {
    KeptFile { path, is_own }
}

/// Bans whom the file says.
pub fn ban_again(path: &Path, rates: &Rates) {
    let shown = path.display();
    match file(path).read() {
        Ok(None) => {}
        Ok(Some(lines)) => {
            let (banned, wrong) = rates.ban_again(&lines, wall_seconds());
            if wrong > 0 {
                log::warn(format_args!("{wrong} lines of {shown} are no bans, and ban nobody"));
            }
            if banned > 0 {
                log::info(format_args!("banned as before the stop: {banned}"));
            }
        }
        Err(error) => {
            log::warn(format_args!(
                "who was banned before the stop is let in, and who is at the next one: {shown} cannot be used: {error}"
            ));
        }
    }
}

/// The server has started: the file is not read again.
pub fn remove(path: &Path) {
    let shown = path.display();
    // What cannot be used has banned nobody, and stays.
    if let Ok(Some(_)) = file(path).read()
        && let Err(error) = std::fs::remove_file(path)
    {
        log::warn(format_args!("{shown} cannot be removed, and bans again at the next start: {error}"));
    }
}

/// Who is banned, and until when by the clock on the wall, which goes on while the server is stopped.
pub fn lines(rates: &Rates) -> String {
    rates.bans_to_keep(wall_seconds())
}

/// Writes who is banned.
pub fn keep(path: &Path, lines: &str) {
    if let Err(error) = file(path).write(lines) {
        log::warn(format_args!(
            "who is banned is let in after the next start: {} cannot be written: {error}",
            path.display()
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_list_of_bans_stays_as_it_is() {
        let path = std::env::temp_dir().join(format!("tidegate-kept-bans-{}", std::process::id()));
        let (text, ban) = ("a page of somebody\n", "[\"guessers\",\"192.0.2.7\",9999999999]\n");
        std::fs::write(&path, text).unwrap();
        remove(&path);
        keep(&path, ban);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        std::fs::remove_file(&path).unwrap();
        keep(&path, ban);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), ban);
        remove(&path);
        assert!(!path.exists());
    }
}
