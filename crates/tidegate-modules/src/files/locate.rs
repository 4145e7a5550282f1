//! From a path to what lies there: `try`, `index`, precompressed siblings, hidden names.
//!
//! Runs on a worker as long as the kernel's caches hold the answers, else the same code runs on the
//! blocking pool. Everything goes through a [`Root`], so nothing outside of it can be reached.

use crate::compress;
use crate::index::{MOST_TEXT, Place, Text, beneath};
use std::io;
use std::path::Path;
use std::sync::Arc;
use tidegate_config::settings::{self, Coding, PathPattern, Try};
use tidegate_http::Status;
use tidegate_io::clock::monotonic_ns;
use tidegate_io::descriptors;
use tidegate_io::file::{self, FileKind, Links, Opened, Patience, Root};

/// The root of a route with files, shared by all of this process that name it under one policy.
///
/// # Errors
/// It cannot be opened.
pub fn open_root(path: &Path, symlinks: settings::Symlinks) -> io::Result<Arc<Root>> {
    Root::shared(
        path,
        match symlinks {
            settings::Symlinks::Beneath => Links::Beneath,
            settings::Symlinks::Owner => Links::Owner,
            settings::Symlinks::Any => Links::Any,
        },
    )
}

/// What a route's settings say of looking files up; shared with the blocking pool.
pub struct Lookup {
    /// Where files are.
    pub root: Arc<Root>,
    /// The route's settings.
    pub settings: settings::Files,
    /// What its paths are like.
    pub pattern: PathPattern,
}

/// What a path leads to, and which names that depends on.
#[derive(Debug)]
pub struct Located {
    /// What was found.
    pub found: Found,
    /// Paths below the root that were looked at, whether they exist or not: a change of any may change
    /// the answer.
    pub depends: Vec<Box<[u8]>>,
    /// Why there is nothing that is served, where there is none.
    pub why: Why,
    /// [`Root::generation`] before it was looked up: of the root that it was found in, or of one before that.
    pub generation: u32,
}

/// Why nothing is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// There is nothing of that name.
    Missing,
    /// No file can have the name.
    Nameless,
    /// A component begins with a dot.
    Hidden,
    /// The path is not one of the alias.
    Outside,
    /// A symbolic link leads out of the root.
    LeadsOut,
    /// The server may not read it.
    NoPermission,
    /// A device, a folder in place of a file, or a file in place of a folder.
    NoFile,
    /// A folder without an index file that is not listed.
    NoIndex,
    /// None of what `try` names is there.
    Try,
    /// It is a symbolic link to what a program answers, which is never sent as a file.
    Program,
}

/// What a path leads to.
#[derive(Debug)]
pub enum Found {
    /// A regular file.
    File(FoundFile),
    /// A folder whose content is to be listed.
    Folder {
        /// Below the root, without slashes at its ends.
        relative: Vec<u8>,
        /// Open for reading.
        folder: Opened,
        /// What it has of the files that are shown on its listing, those above the table first.
        texts: Vec<FoundText>,
    },
    /// A folder was asked for without its slash.
    NeedsSlash,
    /// The route of this name answers.
    Route(String),
    /// Nothing that is served.
    Status(Status),
}

/// A file and its precompressed siblings.
#[derive(Debug)]
pub struct FoundFile {
    /// Below the root.
    pub relative: Vec<u8>,
    /// Where symbolic links have led to, where they have: below the root, and outside of it the last part alone.
    pub real: Option<Vec<u8>>,
    /// The file.
    pub file: Opened,
    /// In the order of the settings.
    pub siblings: Vec<Sibling>,
    /// A link has led out of the root, where nothing is watched for changes.
    pub is_outside: bool,
}

/// A precompressed form of a file.
#[derive(Debug)]
pub struct Sibling {
    /// How it is encoded.
    pub coding: Coding,
    /// As [`FoundFile::real`].
    pub real: Option<Vec<u8>>,
    /// Its content.
    pub file: Opened,
}

/// A file that may be shown on the listing of its folder.
#[derive(Debug)]
pub struct FoundText {
    /// As [`FoundFile::real`].
    pub real: Option<Vec<u8>>,
    /// The file.
    pub text: Text,
}

impl Lookup {
    /// Looks `path` up: decoded and normalised, as in [`tidegate_core::Exchange::path`]; empty for one that can name no file,
    /// for which entries of `try` without placeholders are left. What is not there or may not be read is a status, and no error.
    ///
    /// # Errors
    /// `WouldBlock`, under [`Patience::Cached`]: it cannot be told without waiting. Otherwise the system
    /// cannot look it up, as where there is no descriptor left.
    pub fn locate(&self, path: &[u8], patience: Patience) -> io::Result<Located> {
        descriptors::for_a_request()?;
        self.root.follow(monotonic_ns(), patience)?;
        let located = self.search(path, patience)?;
        // Where the root was removed nothing is found; a new one may be there in its place.
        let is_file = matches!(located.found, Found::File(_));
        if !is_file && self.root.follow_removed(located.generation, patience)? {
            return self.search(path, patience);
        }
        Ok(located)
    }

    fn search(&self, path: &[u8], patience: Patience) -> io::Result<Located> {
        let mut search = Search {
            lookup: self,
            patience,
            depends: Vec::new(),
            why: Why::Missing,
            is_outside: false,
            real: None,
        };
        let generation = self.root.generation();
        let found = search.run(path)?;
        Ok(Located { found, depends: search.depends, why: search.why, generation })
    }

    /// Whether the path is that of the folder which the alias stands for, without its slash.
    fn is_bare_alias(&self, path: &[u8]) -> bool {
        let prefix = self.settings.strip_prefix.as_deref().and_then(|prefix| prefix.strip_suffix('/'));
        prefix.is_some_and(|prefix| prefix.as_bytes() == path)
            && (self.settings.serves_hidden || !is_hidden(path))
    }

    /// The path of the site that names what lies at `relative` below the root.
    pub fn path_of(&self, relative: &[u8]) -> Vec<u8> {
        let prefix = self.settings.strip_prefix.as_deref().unwrap_or("/");
        [prefix.trim_end_matches('/').as_bytes(), b"/", relative].concat()
    }

    /// Whether a request that is not for a file can be for a route of the site.
    pub fn hands_on(&self) -> bool {
        self.route_name().is_some()
    }

    /// The route that answers what is no file.
    pub fn route_name(&self) -> Option<&str> {
        match self.settings.try_list.last() {
            Some(Try::Route(name)) => Some(name),
            _ => None,
        }
    }

    /// The path below the root.
    fn relative<'p>(&self, path: &'p [u8]) -> Result<&'p [u8], Why> {
        let below = match &self.settings.strip_prefix {
            Some(prefix) => path.strip_prefix(prefix.as_bytes()).ok_or(Why::Outside)?,
            None => path,
        };
        // A pattern that does not end in a slash cuts names in two: what is opened may begin with a dot all the same.
        let is_cut = self.settings.strip_prefix.is_some();
        if !self.settings.serves_hidden && (is_hidden(path) || is_cut && is_hidden(below)) {
            return Err(Why::Hidden);
        }
        Ok(below.strip_prefix(b"/").unwrap_or(below))
    }
}

/// Whether a component begins with a dot, with a slash before the first or without. `/.well-known/` is meant to be found (RFC
/// 8615).
fn is_hidden(path: &[u8]) -> bool {
    let path = path.strip_prefix(b"/").unwrap_or(path);
    let visible = path.strip_prefix(b".well-known/").unwrap_or(path);
    visible.split(|b| *b == b'/').any(|part| part.first() == Some(&b'.'))
}

struct Search<'l> {
    lookup: &'l Lookup,
    patience: Patience,
    depends: Vec<Box<[u8]>>,
    why: Why,
    is_outside: bool,
    /// [`FoundFile::real`] of what was opened last.
    real: Option<Vec<u8>>,
}

impl Search<'_> {
    fn nothing(&mut self, why: Why) -> io::Result<Found> {
        self.why = why;
        Ok(Found::Status(Status::NOT_FOUND))
    }

    fn run(&mut self, path: &[u8]) -> io::Result<Found> {
        let is_nameless = path.is_empty();
        if !is_nameless && self.lookup.is_bare_alias(path) {
            return Ok(Found::NeedsSlash);
        }
        let relative = match self.lookup.relative(path) {
            _ if is_nameless => path,
            Ok(relative) => relative,
            Err(why) => return self.nothing(why),
        };
        match self.lookup.settings.try_list.is_empty() {
            true if is_nameless => return self.nothing(Why::Nameless),
            true => return self.path(relative, true),
            false => {}
        }
        for candidate in &self.lookup.settings.try_list {
            match candidate {
                Try::Status(status) => {
                    self.why = Why::Try;
                    return Ok(Found::Status(Status(*status)));
                }
                Try::Route(name) => return Ok(Found::Route(name.clone())),
                Try::Path(template) if is_nameless && template.contains('{') => {}
                Try::Path(template) => {
                    let Some(filled) = self.fill(template, path, relative) else { continue };
                    match self.path(&filled, false)? {
                        Found::Status(Status::NOT_FOUND) => {}
                        // The folder of the path itself: links in what is found there need the slash.
                        Found::File(_) | Found::Folder { .. }
                            if !is_nameless && filled.strip_suffix(b"/") == Some(relative) =>
                        {
                            return Ok(Found::NeedsSlash);
                        }
                        found => return Ok(found),
                    }
                }
            }
        }
        self.nothing(if is_nameless { Why::Nameless } else { Why::Try })
    }

    fn fill(&self, template: &str, path: &[u8], relative: &[u8]) -> Option<Vec<u8>> {
        let Lookup { pattern, settings, .. } = self.lookup;
        fill(template, path, relative, pattern, settings.serves_hidden)
    }

    /// `redirects`: a folder without its slash is worth telling about.
    fn path(&mut self, relative: &[u8], redirects: bool) -> io::Result<Found> {
        let name = relative.strip_suffix(b"/").unwrap_or(relative);
        let asks_folder = name.len() < relative.len() || relative.is_empty();
        let opened = match self.open(name)? {
            Ok(opened) => opened,
            Err(status) => return Ok(Found::Status(status)),
        };
        match (opened.meta.kind, asks_folder) {
            (FileKind::Regular, false) => self.with_siblings(name, opened),
            (FileKind::Folder, true) => self.folder(name, opened),
            (FileKind::Folder, false) if redirects => Ok(Found::NeedsSlash),
            _ => self.nothing(Why::NoFile),
        }
    }

    fn folder(&mut self, name: &[u8], folder: Opened) -> io::Result<Found> {
        for index in &self.lookup.settings.index {
            let inside = beneath(name, index.as_bytes());
            match self.open(&inside)? {
                Ok(opened) if opened.meta.kind == FileKind::Regular => {
                    return self.with_siblings(&inside, opened);
                }
                Ok(_) | Err(Status::NOT_FOUND) => {}
                Err(status) => return Ok(Found::Status(status)),
            }
        }
        let Some(listing) = &self.lookup.settings.listing else { return self.nothing(Why::NoIndex) };
        let mut texts = Vec::new();
        for (place, names) in [(Place::Header, &listing.header), (Place::Readme, &listing.readme)] {
            for text in names {
                let relative = beneath(name, text.as_bytes());
                if let Ok(file) = self.open(&relative)?
                    && file.meta.kind == FileKind::Regular
                    && file.meta.len <= MOST_TEXT
                {
                    texts.push(FoundText { real: self.real.take(), text: Text { place, relative, file } });
                }
            }
        }
        Ok(Found::Folder { relative: name.to_vec(), folder, texts })
    }

    fn with_siblings(&mut self, name: &[u8], file: Opened) -> io::Result<Found> {
        let mut siblings = Vec::new();
        let real = self.real.take();
        for coding in &self.lookup.settings.precompressed {
            let sibling = [name, compress::suffix(*coding).as_bytes()].concat();
            // One that is older than its file was made from an earlier version of it.
            if let Ok(opened) = self.open(&sibling)?
                && opened.meta.kind == FileKind::Regular
                && (opened.meta.mtime, opened.meta.mtime_ns) >= (file.meta.mtime, file.meta.mtime_ns)
            {
                siblings.push(Sibling { coding: *coding, real: self.real.take(), file: opened });
            }
        }
        let is_outside = self.is_outside;
        Ok(Found::File(FoundFile { relative: name.to_vec(), real, file, siblings, is_outside }))
    }

    /// Opens, or tells the status that the failure stands for. Only `WouldBlock` and what is our own
    /// trouble are errors.
    fn open(&mut self, relative: &[u8]) -> io::Result<Result<Opened, Status>> {
        let result = self.lookup.root.open_file(relative, self.patience);
        self.depends.push(relative.into());
        match result {
            Ok(opened) => {
                // Behind a symbolic link the change happens under another name.
                if opened.meta.kind == FileKind::Regular {
                    self.real = None;
                    match self.lookup.root.real_path(&opened) {
                        Some(real) if real != relative => {
                            self.depends.push(real.as_slice().into());
                            self.real = Some(real);
                        }
                        Some(_) => {}
                        None => {
                            self.is_outside |= self.lookup.root.may_lead_out();
                            self.real = file::real_name(&opened);
                        }
                    }
                }
                Ok(Ok(opened))
            }
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound
                | io::ErrorKind::NotADirectory
                | io::ErrorKind::InvalidFilename
                | io::ErrorKind::InvalidInput => {
                    self.why = if file::leads_out(&error) { Why::LeadsOut } else { Why::Missing };
                    Ok(Err(Status::NOT_FOUND))
                }
                io::ErrorKind::PermissionDenied => {
                    self.why = Why::NoPermission;
                    Ok(Err(Status::FORBIDDEN))
                }
                // A socket, or a pipe without a reader.
                _ if error.raw_os_error() == Some(NO_SUCH_DEVICE) => {
                    self.why = Why::NoFile;
                    Ok(Err(Status::NOT_FOUND))
                }
                _ => Err(error),
            },
        }
    }
}

/// `ENXIO`
const NO_SUCH_DEVICE: i32 = 6;

/// An entry of `try` for a path. Stars and groups may stand for anything that stands in a path: `None` where they make
/// of it what no path is, or what is hidden.
fn fill(
    template: &str,
    path: &[u8],
    relative: &[u8],
    pattern: &PathPattern,
    serves_hidden: bool,
) -> Option<Vec<u8>> {
    let mut filled = Vec::with_capacity(template.len() + relative.len());
    let (mut rest, mut is_asked) = (template, false);
    while let Some((before, behind)) = rest.split_once('{') {
        let (name, after) = behind.split_once('}')?; // the settings have been checked
        filled.extend_from_slice(before.as_bytes());
        if name == "path" {
            filled.extend_from_slice(relative);
        } else {
            let (name, default) = name.split_once(":-").unwrap_or((name, ""));
            let capture = pattern.capture(path, name).filter(|capture| !capture.is_empty());
            filled.extend_from_slice(capture.unwrap_or(default.as_bytes()));
            is_asked = true;
        }
        rest = after;
    }
    filled.extend_from_slice(rest.as_bytes());
    if filled.starts_with(b"/") {
        filled.remove(0);
    }
    let is_path = |path: &[u8]| !path.split(|byte| *byte == b'/').any(|part| matches!(part, b"." | b".."));
    let is_sound = !is_asked || is_path(&filled) && (serves_hidden || !is_hidden(&filled));
    is_sound.then_some(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_names() {
        for (path, hidden) in [
            ("/a/b", false),
            ("/.git/config", true),
            ("/a/.env", true),
            ("/.well-known/security.txt", false),
            ("/.well-known/.secret", true),
            ("/a/.well-known/x", true),
            ("/a./b", false),
            (".env", true),
            ("a/.env", true),
            (".well-known/x", false),
        ] {
            assert_eq!(is_hidden(path.as_bytes()), hidden, "{path}");
        }
    }

    #[test]
    fn templates() {
        let glob = |text: &str| PathPattern::Pieces(text.split('*').map(str::to_owned).collect());
        for (template, pattern, path, expected) in [
            ("{path}.html", "/*", "/a/b", Some("a/b.html")),
            ("/{path}", "/*", "/a/b", Some("a/b")),
            ("/index.html", "/*", "/a/b", Some("index.html")),
            ("{path}/", "/*", "/a", Some("a/")),
            ("/{2}/{1}.x", "/*/*", "/a/b", Some("b/a.x")),
            ("/{1:-none}/x", "/*", "/", Some("none/x")),
            ("/{3}x", "/*", "/", Some("x")),
            // Two parts of a path are none that a path may have, or one that is hidden.
            ("/x/{1}{2}/y", "/a*b*c", "/a.b.c", None),
            ("/x/{1}", "/f*", "/f.git/config", None),
            ("/{1}", "/f*", "/f.well-known/x", Some(".well-known/x")),
            ("/x/{1}", "/f*", "/f../y", None),
        ] {
            let relative = path.strip_prefix('/').unwrap().as_bytes();
            let filled = fill(template, path.as_bytes(), relative, &glob(pattern), false);
            assert_eq!(filled.as_deref(), expected.map(str::as_bytes), "{template} {pattern} {path}");
        }
    }
}
