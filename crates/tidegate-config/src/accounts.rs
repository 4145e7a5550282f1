//! The files of a `users`: who has which password hash, and who is in which group.
//!
//! Read with the settings, and by the master again whenever they change, in the same way: a line that is none counts for
//! nobody, and so does one whose hash is worth nothing. Who was taken out of a file is so whatever else stands in it.

use crate::disk::{Disk, RealDisk};
use crate::settings::{Account, AccountFiles};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::Path;

/// Most users of one source.
pub(crate) const USERS: usize = 1_000_000;

/// Most lines of a file of which each is said what is wrong with it.
pub(crate) const SAID: usize = 10;

/// A line that counts for nobody.
pub(crate) struct Wrong {
    pub line: usize,
    pub why: String,
    /// It is no line of such a file at all, as something that is half written has it.
    is_broken: bool,
}

/// Takes files in: those of groups first.
#[derive(Default)]
pub(crate) struct Reader {
    /// Groups by user.
    groups: BTreeMap<String, Vec<String>>,
    pub accounts: Vec<Account>,
    seen: HashSet<String>,
    /// There were more users than [`USERS`].
    pub is_full: bool,
}

impl Reader {
    /// A file of groups: `admins: anna ben`, as Apache's `AuthGroupFile`.
    pub fn groups(&mut self, text: &str) -> Vec<Wrong> {
        each_line(text, |line| {
            let Some((group, names)) = line.split_once(':') else {
                return Err(("a line of a group is `admins: anna ben`".to_owned(), true));
            };
            for name in names.split_whitespace() {
                self.groups.entry(name.to_owned()).or_default().push(group.trim().to_owned());
            }
            Ok(())
        })
    }

    /// A file of passwords, as `htpasswd` writes it.
    pub fn passwords(&mut self, text: &str) -> Vec<Wrong> {
        each_line(text, |line| {
            let Some((name, rest)) = line.split_once(':').filter(|(name, _)| !name.is_empty()) else {
                return Err(("a line of a user is `anna:$2y$…`, as `htpasswd` writes it".to_owned(), true));
            };
            // Behind a further colon old tools keep other things.
            let hash = rest.split(':').next().unwrap_or_default();
            hash_kind(hash)?;
            self.is_full |= self.accounts.len() >= USERS;
            if !self.is_full && self.seen.insert(name.to_owned()) {
                let mut groups = self.groups.get(name).cloned().unwrap_or_default();
                groups.sort_unstable();
                groups.dedup();
                self.accounts.push(Account { name: name.to_owned(), hash: hash.to_owned(), groups });
            }
            Ok(())
        })
    }
}

impl AccountFiles {
    /// Who stands in the files now, and of each line that is none a sentence. Asks the file system, which may hang.
    ///
    /// # Errors
    /// A sentence: a file cannot be read, or holds too many.
    pub fn read(&self) -> Result<(Vec<Account>, Vec<String>), String> {
        let mut reader = Reader::default();
        let text = |path: &Path| {
            text_of(&RealDisk, path).map_err(|error| format!("{} cannot be read: {error}", path.display()))
        };
        let mut broken = Vec::new();
        let mut look = |path: &Path, wrong: Vec<Wrong>| {
            let lines = wrong.iter().filter(|wrong| wrong.is_broken);
            let said = lines.map(|Wrong { line, why, .. }| {
                format!("{}:{line}: {why}; such a line counts for nobody", path.display())
            });
            broken.extend(said.take(SAID));
        };
        for path in &self.groups {
            look(path, reader.groups(&text(path)?));
        }
        for path in &self.passwords {
            look(path, reader.passwords(&text(path)?));
        }
        if reader.is_full {
            return Err(format!("there are more than {USERS} users"));
        }
        Ok((reader.accounts, broken))
    }
}

/// A file as text, without the byte order mark that some editors write in front of it.
pub(crate) fn text_of(disk: &dyn Disk, path: &Path) -> io::Result<String> {
    let bytes = disk.read(path)?;
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Err(io::Error::other("it is UTF-16; save it as UTF-8"));
    }
    Ok(without_mark(&String::from_utf8_lossy(&bytes)).to_owned())
}

/// A text without its byte order mark.
pub(crate) fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// What no name and no hash holds: whoever has typed it in has seen something else.
fn invisible(line: &str) -> Option<String> {
    let odd = line.chars().find(|&odd| {
        odd.is_control() && odd != '\t'
            || matches!(odd, '\u{feff}' | '\u{200b}' | char::REPLACEMENT_CHARACTER)
    })?;
    Some(match odd {
        char::REPLACEMENT_CHARACTER => "a byte in it is no UTF-8".to_owned(),
        odd => format!("a character in it cannot be seen, {}", odd.escape_default()),
    })
}

/// Takes the lines that mean something; those that are wrong.
fn each_line(text: &str, mut take: impl FnMut(&str) -> Result<(), (String, bool)>) -> Vec<Wrong> {
    let lines = text.lines().enumerate().map(|(number, line)| (number + 1, line.trim()));
    let meant = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let mut take = |text: &str| match invisible(text) {
        Some(why) => Err((why, true)),
        None => take(text),
    };
    let wrong = |(line, text)| take(text).err().map(|(why, is_broken)| Wrong { line, why, is_broken });
    meant.filter_map(wrong).collect()
}

/// What a hash is not, where no password could be compared with it, and whether it looks half written.
fn hash_kind(hash: &str) -> Result<(), (String, bool)> {
    if let Some(known) = Known::of(hash) {
        return match known.is_whole(hash) {
            true => Ok(()),
            false => {
                Err((format!("this {} hash is torn: some of it is missing or was added", known.name()), true))
            }
        };
    }
    let kind = match hash {
        "" => "there is no password",
        "!" | "*" | "x" => "the account is locked",
        hash if hash.starts_with("{SHA}") => "SHA-1 without a salt is found out in no time",
        hash if hash.starts_with("$1$") => "MD5 of crypt(3) is found out in no time",
        hash if hash.starts_with("$y$") => "yescrypt is not known here",
        hash if hash.starts_with('$') => "this kind of password hash is not known here",
        hash if hash.len() == 13 => "this may be DES of crypt(3), which is found out in no time",
        _ => "the password stands there as it is",
    };
    Err((kind.to_owned(), false))
}

/// Kinds of hashes that passwords are compared with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    Bcrypt,
    Argon2,
    Sha256,
    Sha512,
    Apr1,
}

impl Known {
    fn of(hash: &str) -> Option<Known> {
        const PREFIXES: [(&str, Known); 9] = [
            ("$2a$", Known::Bcrypt),
            ("$2b$", Known::Bcrypt),
            ("$2y$", Known::Bcrypt),
            ("$argon2id$", Known::Argon2),
            ("$argon2i$", Known::Argon2),
            ("$argon2d$", Known::Argon2),
            ("$5$", Known::Sha256),
            ("$6$", Known::Sha512),
            ("$apr1$", Known::Apr1),
        ];
        PREFIXES.iter().find(|(prefix, _)| hash.starts_with(prefix)).map(|(_, known)| *known)
    }

    fn name(self) -> &'static str {
        match self {
            Known::Bcrypt => "bcrypt",
            Known::Argon2 => "argon2",
            Known::Sha256 => "SHA-256",
            Known::Sha512 => "SHA-512",
            Known::Apr1 => "apr1",
        }
    }

    /// Whether it has all of its parts, each as long as it has to be.
    fn is_whole(self, hash: &str) -> bool {
        let is_of = |text: &str, more: &str, length: usize| {
            text.len() == length
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || more.contains(byte as char))
        };
        let parts: Vec<&str> = hash.split('$').skip(2).collect();
        match (self, parts.as_slice()) {
            (Known::Bcrypt, [cost, rest]) => {
                let cost = cost.parse::<u8>().ok().filter(|_| cost.len() == 2);
                cost.is_some_and(|cost| (4..=31).contains(&cost)) && is_of(rest, "./", 53)
            }
            (Known::Apr1, [salt, sum]) => !salt.is_empty() && is_of(sum, "./", 22),
            (Known::Sha256 | Known::Sha512, [.., sum]) if (2..=3).contains(&parts.len()) => {
                let has_rounds = parts.len() == 2
                    || parts[0].strip_prefix("rounds=").is_some_and(|rounds| rounds.parse::<u32>().is_ok());
                has_rounds && is_of(sum, "./", if self == Known::Sha256 { 43 } else { 86 })
            }
            (Known::Argon2, [.., parameters, salt, sum]) if (3..=4).contains(&parts.len()) => {
                let has = |name| {
                    parameters.split(',').any(|parameter| {
                        let value = parameter.strip_prefix(name).and_then(|rest| rest.strip_prefix('='));
                        value.is_some_and(|value| value.parse::<u32>().is_ok())
                    })
                };
                let is_text = |text: &str, least| text.len() >= least && is_of(text, "+/", text.len());
                ["m", "t", "p"].into_iter().all(has) && is_text(salt, 11) && is_text(sum, 14)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const BCRYPT: &str = "$2y$05$h8BcY9CdXtTRCFVVtKkDZOXJ8Pi.gYB1VOBDbMKFT8fUC6KkSgvgG";
    const APR1: &str = "$apr1$x$HYlKLdW0LShqZmVCVIHWE0";

    #[test]
    fn what_is_broken_is_said_and_what_is_worth_nothing_is_nobody() {
        let folder = std::env::temp_dir().join(format!("tidegate-accounts-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let files = AccountFiles { passwords: vec![folder.join("p")], groups: vec![folder.join("g")] };
        fs::write(folder.join("g"), "admins: anna\nall: ben anna\n").unwrap();
        let read = |passwords: &str| {
            fs::write(folder.join("p"), passwords).unwrap();
            let (accounts, broken) = files.read().unwrap();
            let names: Vec<_> =
                accounts.iter().map(|account| format!("{} {:?}", account.name, account.groups)).collect();
            (names, broken)
        };
        let names = |names: &[&str]| (names.iter().map(ToString::to_string).collect::<Vec<_>>(), vec![]);
        assert_eq!(
            read(&format!("anna:{BCRYPT}\n#x\n\nben:{APR1}\n")),
            names(&["anna [\"admins\", \"all\"]", "ben [\"all\"]"])
        );
        // Who is locked is nobody, and so is everybody where the last one was taken out.
        assert_eq!(read(&format!("anna:!\nben:{APR1}\n")), names(&["ben [\"all\"]"]));
        assert_eq!(read(""), names(&[]));
        let (left, error) = read(&format!("anna:{BCRYPT}\nben\n"));
        let [error] = error.as_slice() else { panic!("{error:?}") };
        assert_eq!(left, ["anna [\"admins\", \"all\"]"]);
        assert!(
            error.ends_with(
                "p:2: a line of a user is `anna:$2y$…`, as `htpasswd` writes it; such a line counts for nobody"
            ),
            "{error}"
        );
        let (left, error) = read(&format!("ben:{APR1}\nanna:{}", &BCRYPT[..40]));
        let [error] = error.as_slice() else { panic!("{error:?}") };
        assert_eq!(left, ["ben [\"all\"]"]);
        assert!(
            error.contains("p:2: this bcrypt hash is torn: some of it is missing or was added"),
            "{error}"
        );
        assert_eq!(read("a\nb\nc\n").1.len(), 3, "each is named");
        // What editors leave in front of a text is none of it; what nobody sees in a line is no name of anybody.
        let (left, error) =
            read(&format!("\u{feff}anna:{BCRYPT}\nbe\0n:{APR1}\n\u{feff}eve:{APR1}\nj\u{fffd}rg:{APR1}\n"));
        assert_eq!(left, ["anna [\"admins\", \"all\"]"]);
        let why = [
            "p:2: a character in it cannot be seen, \\u{0};",
            "p:3: a character in it cannot be seen, \\u{feff};",
            "p:4: a byte in it is no UTF-8;",
        ];
        assert_eq!(error.len(), why.len());
        for (error, why) in error.iter().zip(why) {
            assert!(error.contains(why), "{error}");
        }
        fs::write(folder.join("p"), b"\xff\xfea\0").unwrap();
        assert!(files.read().unwrap_err().ends_with("p cannot be read: it is UTF-16; save it as UTF-8"));
        fs::remove_file(folder.join("g")).unwrap();
        assert!(files.read().unwrap_err().contains("g cannot be read"));
        fs::remove_dir_all(&folder).unwrap();
    }
}
