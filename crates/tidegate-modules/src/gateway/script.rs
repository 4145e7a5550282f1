//! From the path of a request to a script: split on bytes, and the script must be a file below the root.
//!
//! FastCGI, SCGI and CGI use it. `/image.png/x.php` leads to no file and is 404, whatever an application
//! would make of it (FAULTS 35); a name that only looks like `.php` to a person ends in other bytes.

use hashbrown::HashMap;
use std::borrow::Cow;
use std::cell::RefCell;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate_http::Status;
use tidegate_io::clock::{monotonic_ns, recent_ns};
use tidegate_io::file::{FileKind, Patience, Root};

/// How long a script that was there is taken to be still there: the application looks itself.
const TRUST: u64 = 1_000_000_000;
/// Most scripts remembered by a route.
const REMEMBERED: usize = 1024;
/// Most places where a path is tried to be split.
const SPLITS: usize = 16;

/// How paths lead to scripts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// Names that end in one of these.
    Suffixes(Vec<Vec<u8>>),
    /// The first part of the path that is a file, as in `/cgi-bin/`.
    FirstFile,
    /// One file for all paths, absolute.
    File(PathBuf),
    /// No file: mounted at this prefix, which has no slash at its end.
    Mounted(Vec<u8>),
}

/// A script and the rest of the path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Script<'p> {
    /// `SCRIPT_NAME`
    pub name: Cow<'p, [u8]>,
    /// `SCRIPT_FILENAME`; empty where there is no file.
    pub file: Cow<'p, [u8]>,
    /// `PATH_INFO`, may be empty.
    pub path_info: Cow<'p, [u8]>,
    /// `PATH_TRANSLATED`, empty without `PATH_INFO` or without a root.
    pub path_translated: Vec<u8>,
}

impl Script<'_> {
    /// The same, for as long as anybody wants it.
    pub fn to_owned(&self) -> Script<'static> {
        let owned = |part: &[u8]| Cow::Owned(part.to_vec());
        Script {
            name: owned(&self.name),
            file: owned(&self.file),
            path_info: owned(&self.path_info),
            path_translated: self.path_translated.clone(),
        }
    }
}

/// Why a path leads to no script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoScript {
    /// What a client is answered.
    pub status: Status,
    /// For the operator, with the file that was looked for.
    pub why: String,
}

impl NoScript {
    fn missing(why: impl Into<String>) -> NoScript {
        NoScript { status: Status::NOT_FOUND, why: why.into() }
    }
}

/// Finds the scripts of a route, and remembers for a moment which were there.
pub struct Scripts {
    finder: Arc<Finder>,
    /// When a script was seen last, by its file.
    seen: RefCell<HashMap<Vec<u8>, u64>>,
}

/// What a route's settings say of finding scripts; shared with the blocking pool.
pub struct Finder {
    root: Option<Arc<Root>>,
    rule: Rule,
    serves_hidden: bool,
    /// Cut off the front of the path before the look-up.
    strip_prefix: Vec<u8>,
}

impl Scripts {
    /// For a route. Rules that look for files need a root.
    pub fn new(root: Option<Arc<Root>>, rule: Rule, serves_hidden: bool, strip_prefix: &str) -> Scripts {
        let strip_prefix = strip_prefix.trim_end_matches('/').as_bytes().to_vec();
        let finder = Arc::new(Finder { root, rule, serves_hidden, strip_prefix });
        Scripts { finder, seen: RefCell::default() }
    }

    /// The rules alone, for the blocking pool.
    pub fn finder(&self) -> &Arc<Finder> {
        &self.finder
    }

    /// The script that answers for a decoded, normalised path, or why there is none.
    ///
    /// # Errors
    /// `WouldBlock` where the disk has to be asked: then the [`Finder`] is asked on the blocking pool.
    pub fn resolve<'p>(&'p self, path: &'p [u8]) -> io::Result<Result<Script<'p>, NoScript>> {
        let mut is_known = false;
        let found = self.finder.resolve(path, Patience::Cached, &mut |file| {
            let seen = self.seen.borrow().get(file).copied();
            is_known = seen.is_some_and(|seen| recent_ns().saturating_sub(seen) < TRUST);
            is_known
        })?;
        if let Ok(script) = &found
            && !is_known
            && !script.file.is_empty()
        {
            self.remember(&script.file, recent_ns());
        }
        Ok(found)
    }

    fn remember(&self, file: &[u8], now: u64) {
        let mut seen = self.seen.borrow_mut();
        if seen.len() >= REMEMBERED {
            seen.clear();
        }
        seen.insert(file.to_vec(), now);
    }
}

impl Finder {
    /// `DOCUMENT_ROOT`, empty where there is none.
    pub fn document_root(&self) -> &[u8] {
        self.root.as_ref().map_or(&[], |root| root.path().as_os_str().as_bytes())
    }

    /// Whether one script answers for all paths.
    pub fn is_one_file(&self) -> bool {
        matches!(self.rule, Rule::File(_))
    }

    /// The script that answers for a decoded, normalised path, or why there is none.
    ///
    /// # Errors
    /// `WouldBlock` under [`Patience::Cached`] where the disk has to be asked, and what the system says.
    /// `is_known` says of a file that it was there a moment ago.
    pub fn resolve<'p>(
        &'p self,
        path: &'p [u8],
        patience: Patience,
        is_known: &mut dyn FnMut(&[u8]) -> bool,
    ) -> io::Result<Result<Script<'p>, NoScript>> {
        match &self.rule {
            Rule::Mounted(prefix) => Ok(self.mounted(prefix, path)),
            Rule::File(file) => Ok(Ok(self.one_file(file, path))),
            Rule::Suffixes(suffixes) => {
                self.first_file(path, suffix_ends(path, suffixes).take(SPLITS), patience, is_known)
            }
            Rule::FirstFile => {
                let skip = self.strip_prefix.len() + 1;
                let slashes =
                    path.iter().enumerate().skip(skip).filter(|(_, b)| **b == b'/').map(|(at, _)| at);
                self.first_file(path, slashes.chain([path.len()]).take(SPLITS), patience, is_known)
            }
        }
    }

    fn mounted<'p>(&self, prefix: &'p [u8], path: &'p [u8]) -> Result<Script<'p>, NoScript> {
        let path_info = path.strip_prefix(prefix).filter(|rest| rest.is_empty() || rest.starts_with(b"/"));
        let path_info = path_info.ok_or_else(|| {
            NoScript::missing(format!("the path is not below {}", String::from_utf8_lossy(prefix)))
        })?;
        Ok(Script {
            name: Cow::Borrowed(prefix),
            path_info: Cow::Borrowed(path_info),
            path_translated: self.translated(path_info),
            file: Cow::Borrowed(&[]),
        })
    }

    fn one_file<'p>(&self, file: &'p Path, path: &'p [u8]) -> Script<'p> {
        let file = file.as_os_str().as_bytes();
        // Below the root it has a path of the site; else its own name has to do.
        let below = file.strip_prefix(self.document_root()).filter(|_| self.root.is_some());
        let below = below.filter(|below| below.starts_with(b"/"));
        let last = file.rsplit(|b| *b == b'/').next().unwrap_or_default();
        let name = below.map_or_else(|| Cow::Owned([b"/", last].concat()), Cow::Borrowed);
        let path_translated = self.translated(path);
        Script { name, file: Cow::Borrowed(file), path_info: Cow::Borrowed(path), path_translated }
    }

    fn first_file<'p>(
        &self,
        path: &'p [u8],
        splits: impl Iterator<Item = usize>,
        patience: Patience,
        is_known: &mut dyn FnMut(&[u8]) -> bool,
    ) -> io::Result<Result<Script<'p>, NoScript>> {
        let Some(root) = &self.root else {
            return Ok(Err(NoScript::missing("there is no root to find scripts in")));
        };
        if !self.serves_hidden && is_hidden(path) {
            return Ok(Err(NoScript::missing("a name in it begins with a dot, and `hidden` is off")));
        }
        let mut is_followed = false;
        // The first part that is not there, else the last that is no file.
        let (mut missing, mut no_file) = (None, None);
        for at in splits {
            let (name, path_info) = path.split_at_checked(at).unwrap_or((path, &[]));
            let Some(below) = name.strip_prefix(self.strip_prefix.as_slice()) else { break };
            let Some(relative) = below.strip_prefix(b"/").filter(|relative| !relative.is_empty()) else {
                continue;
            };
            let file = [self.document_root(), b"/", relative].concat();
            if !is_known(&file) {
                if !std::mem::replace(&mut is_followed, true) {
                    root.follow(monotonic_ns(), patience)?;
                }
                match root.open_file(relative, patience) {
                    Ok(opened) if opened.meta.kind == FileKind::Regular => {
                        if self.rule == Rule::FirstFile && !opened.meta.is_executable {
                            let file = String::from_utf8_lossy(&file);
                            let why = format!("{file} may not be run: `chmod +x {file}`");
                            return Ok(Err(NoScript { status: Status::FORBIDDEN, why }));
                        }
                    }
                    Ok(_) => {
                        no_file = Some(file);
                        continue;
                    }
                    Err(error) => match error.kind() {
                        io::ErrorKind::NotFound
                        | io::ErrorKind::NotADirectory
                        | io::ErrorKind::InvalidFilename
                        | io::ErrorKind::InvalidInput => {
                            missing.get_or_insert(file);
                            continue;
                        }
                        io::ErrorKind::PermissionDenied => {
                            let file = String::from_utf8_lossy(&file);
                            let why = format!("the server's user may not read {file}, or may not get there");
                            return Ok(Err(NoScript { status: Status::FORBIDDEN, why }));
                        }
                        _ => return Err(error),
                    },
                }
            }
            return Ok(Ok(Script {
                name: Cow::Borrowed(name),
                file: Cow::Owned(file),
                path_info: Cow::Borrowed(path_info),
                path_translated: self.translated(path_info),
            }));
        }
        Ok(Err(NoScript::missing(match (missing, no_file) {
            (Some(file), _) => format!("{} does not exist", String::from_utf8_lossy(&file)),
            (None, Some(file)) => format!("{} is no file", String::from_utf8_lossy(&file)),
            (None, None) => self.no_part(),
        })))
    }

    /// What no part of the path is.
    fn no_part(&self) -> String {
        match &self.rule {
            Rule::Suffixes(suffixes) => {
                let suffixes: Vec<_> =
                    suffixes.iter().map(|suffix| String::from_utf8_lossy(suffix)).collect();
                format!("no part of the path ends in {}", suffixes.join(" or "))
            }
            _ => "the path names no file".to_owned(),
        }
    }

    fn translated(&self, path_info: &[u8]) -> Vec<u8> {
        match &self.root {
            Some(_) if !path_info.is_empty() => [self.document_root(), path_info].concat(),
            _ => Vec::new(),
        }
    }
}

/// Where a part of the path ends that ends in one of the suffixes.
fn suffix_ends(path: &[u8], suffixes: &[Vec<u8>]) -> impl Iterator<Item = usize> {
    let ends = path.iter().enumerate().skip(1).filter(|(_, b)| **b == b'/').map(|(at, _)| at);
    ends.chain([path.len()]).filter(|end| {
        let name = path.get(..*end).unwrap_or_default();
        // `.php` alone is a hidden file without a name.
        let is_named = |stem: &[u8]| stem.last() != Some(&b'/');
        suffixes.iter().any(|suffix| name.strip_suffix(suffix.as_slice()).is_some_and(is_named))
    })
}

/// Whether a component begins with a dot.
fn is_hidden(path: &[u8]) -> bool {
    let visible = path.strip_prefix(b"/.well-known/").unwrap_or(path);
    visible.split(|b| *b == b'/').any(|part| part.first() == Some(&b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    struct Folder(PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn fixture(name: &str) -> (Folder, Arc<Root>) {
        let folder = std::env::temp_dir().join(format!("tidegate-script-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("root/sub.php")).unwrap();
        for file in
            ["root/a.php", "root/sub.php/b.php", "root/image.png", "root/tool", "root/.x.php", "secret.php"]
        {
            fs::write(folder.join(file), "x").unwrap();
        }
        for program in ["root/tool", "root/sub.php/b.php"] {
            fs::set_permissions(folder.join(program), fs::Permissions::from_mode(0o755)).unwrap();
        }
        symlink("../secret.php", folder.join("root/out.php")).unwrap();
        let root = Arc::new(Root::open(&folder.join("root")).unwrap());
        (Folder(folder), root)
    }

    fn find(finder: &Finder, path: &str) -> Result<(String, String, String), u16> {
        let found = finder.resolve(path.as_bytes(), Patience::Wait, &mut |_| false).unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let root = text(finder.document_root());
        let shown = |file: String| if root.is_empty() { file } else { file.replace(&root, "R") };
        found
            .map_err(|none| none.status.0)
            .map(|script| (text(&script.name), shown(text(&script.file)), text(&script.path_info)))
    }

    #[test]
    fn splits_at_suffixes() {
        let (_folder, root) = fixture("suffix");
        let rule = Rule::Suffixes(vec![b".php".to_vec()]);
        let scripts = Scripts::new(Some(root), rule, false, "");
        let found = |name: &str, info: &str| Ok((name.to_owned(), format!("R{name}"), info.to_owned()));
        for (path, expected) in [
            ("/a.php", found("/a.php", "")),
            ("/a.php/", found("/a.php", "/")),
            ("/a.php/b/c", found("/a.php", "/b/c")),
            ("/a.php/b.php", found("/a.php", "/b.php")),
            ("/sub.php/b.php/x", found("/sub.php/b.php", "/x")),
            // FAULTS 35
            ("/image.png/x.php", Err(404)),
            ("/image.png", Err(404)),
            ("/a.PHP", Err(404)),
            ("/a.ph\u{ff50}", Err(404)),
            ("/a\u{ff0e}php", Err(404)),
            ("/a.php.png", Err(404)),
            ("/a.php\\b", Err(404)),
            ("/missing.php", Err(404)),
            ("/sub.php", Err(404)),
            ("/out.php", Err(404)),
            ("/.x.php", Err(404)),
            ("/.php", Err(404)),
            ("/", Err(404)),
        ] {
            assert_eq!(find(&scripts.finder, path), expected, "{path}");
        }
        let script = scripts.finder.resolve(b"/a.php/b", Patience::Wait, &mut |_| false).unwrap().unwrap();
        assert!(script.path_translated.ends_with(b"/root/b"));
    }

    #[test]
    fn a_script_that_was_there_is_trusted_for_a_moment() {
        let (folder, root) = fixture("trust");
        let rule = Rule::Suffixes(vec![b".php".to_vec()]);
        let scripts = Scripts::new(Some(root), rule, false, "");
        scripts.remember(&[scripts.finder.document_root(), b"/a.php"].concat(), monotonic_ns());
        fs::remove_file(folder.0.join("root/a.php")).unwrap();
        assert!(matches!(scripts.resolve(b"/a.php"), Ok(Ok(_))));
        scripts.seen.borrow_mut().values_mut().for_each(|seen| *seen = 0);
        assert!(!matches!(scripts.resolve(b"/a.php"), Ok(Ok(_))));
    }

    #[test]
    fn first_files_mounts_and_single_scripts() {
        let (_folder, root) = fixture("other");
        let cgi = Scripts::new(Some(root.clone()), Rule::FirstFile, false, "/cgi-bin/");
        for (path, expected) in [
            ("/cgi-bin/tool", Ok(("/cgi-bin/tool", "R/tool", ""))),
            ("/cgi-bin/tool/a/b", Ok(("/cgi-bin/tool", "R/tool", "/a/b"))),
            ("/cgi-bin/sub.php/b.php/c", Ok(("/cgi-bin/sub.php/b.php", "R/sub.php/b.php", "/c"))),
            ("/cgi-bin/sub.php", Err(404)),
            ("/cgi-bin/image.png", Err(403)),
            ("/cgi-bin/", Err(404)),
            ("/other/tool", Err(404)),
        ] {
            let expected = expected.map(|(a, b, c): (&str, &str, &str)| (a.into(), b.into(), c.into()));
            assert_eq!(find(&cgi.finder, path), expected, "{path}");
        }
        let mounted = Scripts::new(None, Rule::Mounted(b"/app".to_vec()), false, "");
        let at = |name: &str, info: &str| Ok((name.to_owned(), String::new(), info.to_owned()));
        assert_eq!(find(&mounted.finder, "/app/a"), at("/app", "/a"));
        assert_eq!(find(&mounted.finder, "/app"), at("/app", ""));
        assert_eq!(find(&mounted.finder, "/apple"), Err(404));
        let whole = Scripts::new(None, Rule::Mounted(Vec::new()), false, "");
        assert_eq!(find(&whole.finder, "/a"), at("", "/a"));
        let file = root.path().join("index.php");
        let one = Scripts::new(Some(root), Rule::File(file), false, "");
        assert_eq!(find(&one.finder, "/x/y"), Ok(("/index.php".into(), "R/index.php".into(), "/x/y".into())));
    }
}
