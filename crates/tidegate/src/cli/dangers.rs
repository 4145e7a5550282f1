//! What settings open to strangers that hardly anybody means to open, for `check`: a status page or a console, secrets below a root,
//! scripts in folders that uploads go to.
//!
//! Whether a stranger gets something is not guessed from the settings: a request for it is sent through the phases that
//! serve, by an engine whose handlers only say that they would have answered. Of the disk, names are looked at and nothing is
//! read.

use super::loops::{host_of, listener};
use crate::master::logs::Logs;
use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use tidegate_config::settings::gateway::{Application, Script};
use tidegate_config::settings::{
    Action, CollectorAddress, Files, Identification, LogTarget, Origin, PathPattern, Route, Site,
};
use tidegate_config::{Diagnostic, Loaded, Settings};
use tidegate_core::decoration::Decoration;
use tidegate_core::explain::{Asked, Notes};
use tidegate_core::response::Body;
use tidegate_core::{Engine, Exchange, Handler, Reply, site};
use tidegate_http::path::encode_path;
use tidegate_http::{Field, Fields};
use tidegate_io::socket::Peer;
use tidegate_modules::redirect::Respond;

/// Entries of folders that are looked at, of all sites together.
const ENTRIES: usize = 50_000;
/// How deep folders for uploads are looked for.
const DEPTH: usize = 3;
/// Somebody who is nobody's neighbour.
const STRANGERS: [IpAddr; 2] = [
    IpAddr::V4(std::net::Ipv4Addr::new(8, 8, 8, 8)),
    IpAddr::V6(std::net::Ipv6Addr::new(0x2001, 0x4860, 0x4860, 0, 0, 0, 0, 0x8888)),
];
/// What is secret wherever it lies, where hidden files are served.
const HIDDEN: [&str; 12] = [
    ".git/config",
    ".git/HEAD",
    ".env",
    ".svn/entries",
    ".svn/wc.db",
    ".hg/hgrc",
    ".htpasswd",
    ".ssh/id_rsa",
    ".ssh/id_ed25519",
    ".aws/credentials",
    ".netrc",
    ".npmrc",
];
/// Folders that nobody means to publish.
const OF_THE_SYSTEM: [&str; 10] =
    ["/", "/etc", "/root", "/home", "/proc", "/sys", "/dev", "/boot", "/run", "/var/log"];
/// Where syslog daemons listen, and the journal.
const USUAL: [&str; 2] = ["/dev/log", "/run/systemd/journal/socket"];
/// How names of folders begin that programs put into what somebody sends.
const UPLOADS: [&str; 5] = ["upload", "attachment", "avatar", "media", "userfiles"];

/// Warns of it.
pub fn look(loaded: &mut Loaded, config: &Path) {
    let Some(settings) = &loaded.settings else { return };
    let mut dangers = Dangers {
        settings,
        engine: OnceCell::new(),
        folders: Folders::new(),
        found: Vec::new(),
        known: HashSet::new(),
    };
    let secrets = secrets(settings, config);
    dangers.collectors();
    for site in &settings.sites {
        dangers.roots(site);
        dangers.figures(site);
        dangers.secrets(site, &secrets);
        dangers.uploads(site);
    }
    let found = dangers.found;
    let found = found.into_iter().map(|(origin, warning)| match origin.line {
        0 => (None, warning),
        _ => (None, loaded.point_at(warning, &origin)),
    });
    let found: Vec<_> = found.collect();
    loaded.add(found);
}

/// All sites with the rules that they have; what answers says which route it is of.
fn engine(settings: &Settings) -> Engine {
    let made = settings.sites.iter().map(|site| {
        let routes = site.routes.iter().enumerate().map(|(number, route)| {
            let identification = &route.identification;
            let Identification { login, requirements: _, certificates, signed } = identification;
            let is_asked = login.is_some() || !certificates.is_empty() || signed.is_some();
            let status = if is_asked { 401 } else { 200 };
            let handler: Rc<dyn Handler> = Rc::new(Respond::new(status, Some(&number.to_string()), None));
            site::Route::new(handler, Vec::new(), Rc::<Decoration>::default())
        });
        site::Site::new(site.clone(), routes.collect(), None)
    });
    let sites = made.collect();
    Engine::new(Arc::new(settings.clone()), sites)
}

/// Files that the settings name and nobody else may read.
fn secrets(settings: &Settings, config: &Path) -> Vec<(PathBuf, &'static str)> {
    let named = settings.secrets().into_iter().filter(|(_, kind)| kind.is_confidential());
    let named = named.map(|(path, kind)| (path, kind.as_str()));
    let logs = Logs::targets(settings).filter_map(|(target, _)| match target {
        LogTarget::File(path) => Some((path.clone(), "a log of the server")),
        _ => None,
    });
    let all = named.chain(logs).chain([(config.to_owned(), "the settings")]);
    // A log may still have to be made.
    let real = |path: &Path| {
        let folder = || Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
        path.canonicalize().ok().or_else(folder)
    };
    let mut all: Vec<_> = all.filter_map(|(path, what)| Some((real(&path)?, what))).collect();
    all.sort_unstable();
    all.dedup();
    all
}

struct Dangers<'s> {
    settings: &'s Settings,
    /// Made for the first that is to be asked for: with very many sites that takes seconds.
    engine: OnceCell<Engine>,
    folders: Folders<'s>,
    found: Vec<(Origin, Diagnostic)>,
    /// Where what was found already.
    known: HashSet<(Origin, String)>,
}

impl<'s> Dangers<'s> {
    /// The route that answers a stranger's request for a path.
    fn route_of<'r>(&self, site: &'r Site, path: &[u8], stranger: IpAddr) -> Option<&'r Route> {
        let is_secure = [false, true].into_iter().find(|is_secure| {
            listener(self.settings, *is_secure).is_some() && (*is_secure || !site.is_https_only)
        })?;
        let (host, target) = (host_of(site), encode_path(path));
        let fields = [Field { name: "Host", value: host.as_bytes() }];
        let exchange = Exchange {
            target: &target,
            scheme: if is_secure { "https" } else { "http" },
            authority: &host,
            fields: Fields::new(&fields),
            ..Exchange::empty()
        };
        let listener = u16::try_from(listener(self.settings, is_secure)?).ok()?;
        let peer = Peer::Tcp((stranger, 0).into());
        let asked = Asked { listener, peer, raw_path: &target, client: None, size: target.len(), exchange };
        let Reply::Ready(response) =
            self.engine.get_or_init(|| engine(self.settings)).rehearse(asked, &Notes::short())
        else {
            return None;
        };
        match response.body {
            Body::Bytes(number) if response.status.0 == 200 => {
                site.routes.get(str::from_utf8(&number).ok()?.parse::<usize>().ok()?)
            }
            _ => None,
        }
    }

    fn warn(&mut self, origin: &Origin, message: String, help: &str) {
        if self.known.insert((origin.clone(), message.clone())) {
            self.found.push((origin.clone(), Diagnostic::warning(message).help(help)));
        }
    }

    /// Daemons for logs that nobody has started.
    fn collectors(&mut self) {
        let named: Vec<_> =
            Logs::targets(self.settings).map(|(target, word)| (target.clone(), word)).collect();
        for (target, word) in named {
            let LogTarget::Collector(collector) = &target else { continue };
            let (CollectorAddress::Unix { path, .. } | CollectorAddress::Journal(path)) = &collector.at
            else {
                continue;
            };
            // Where they usually are they come with the system, which may be another one than this.
            if USUAL.iter().any(|usual| path == Path::new(usual)) {
                continue;
            }
            if path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
                let message = format!(
                    "nobody listens at {}: the lines of `{word} \"{target}\"` wait until somebody does, and beyond 8 MiB are lost",
                    path.display()
                );
                self.warn(
                    &Origin::default(),
                    message,
                    "start the daemon that listens there, or name where it does",
                );
            }
        }
    }

    /// Roots that are no folder of pages: of the system, or all of it.
    fn roots(&mut self, site: &Site) {
        for route in &site.routes {
            let Action::Files(files) = &route.action else { continue };
            // As texts: paths of settings have no `.` in them and no `/` at their end.
            let Some(root) = OF_THE_SYSTEM.iter().find(|known| files.root.as_os_str() == **known) else {
                continue;
            };
            let by = match &self.settings.user {
                Some(user) => format!("what the user {} may read there", user.name),
                None if rustix::process::geteuid().is_root() => {
                    "what root may read there, which is all".to_owned()
                }
                None => "what the server's user may read there".to_owned(),
            };
            let message = format!("everybody who may ask this site may have {by}: the root is {root}");
            self.warn(&route.origin, message, "name the folder of the pages, such as `root \"/srv/www\"`");
        }
    }

    /// A status page or a console that everybody sees.
    fn figures(&mut self, site: &Site) {
        for route in site.routes.iter().filter(|route| route.action.always_answers()) {
            // The path of a folder without its slash is the same again.
            let is_same_again =
                matches!((&route.action, &route.pattern), (Action::Console { .. }, PathPattern::Exact(_)));
            let Some(path) = route.pattern.shortest().filter(|_| !is_same_again) else { continue };
            let is_open = |stranger: &IpAddr| {
                let answers = self.route_of(site, path.as_bytes(), *stranger);
                answers.is_some_and(|answers| answers.action.always_answers())
            };
            if STRANGERS.iter().any(is_open) {
                let message = match route.action {
                    Action::Console { .. } => {
                        format!(
                            "everybody may see the console {path}: who asks for what, and what the server runs"
                        )
                    }
                    _ => format!("everybody may see the status page {path}, and empty the file cache by it"),
                };
                self.warn(
                    &route.origin,
                    message,
                    "name who may in its `allow`, such as `allow \"10.0.0.0/8\"`, or add a `login`",
                );
            }
        }
    }

    /// Secrets that are served as files.
    fn secrets(&mut self, site: &'s Site, secrets: &[(PathBuf, &'static str)]) {
        let mut seen: HashSet<(&Path, &Option<String>, bool)> = HashSet::new();
        for route in &site.routes {
            let Action::Files(files) = &route.action else { continue };
            let there = self.folders.giveaways(&files.root, files.serves_hidden, secrets);
            if there.is_empty() || !seen.insert((&files.root, &files.strip_prefix, files.serves_hidden)) {
                continue;
            }
            for (path, what) in &*there {
                self.secret(site, files, path, what);
            }
        }
    }

    fn secret(&mut self, site: &Site, files: &Files, path: &Path, what: &str) {
        let parts = || path.iter().filter_map(|part| part.to_str());
        let is_hidden = parts().any(|part| part.starts_with('.'));
        let prefix = files.strip_prefix.as_deref().unwrap_or_default().trim_end_matches('/');
        let url = format!("{prefix}/{}", parts().collect::<Vec<_>>().join("/"));
        if is_hidden && !files.serves_hidden {
            return;
        }
        let Some(route) = self.route_of(site, url.as_bytes(), STRANGERS[0]) else { return };
        // Another route may answer for it, of the same root.
        let is_it = matches!(&route.action, Action::Files(served)
            if served.root == files.root && (served.serves_hidden || !is_hidden));
        if is_it {
            let (origin, path) = (route.origin.clone(), files.root.join(path));
            let message = format!("everybody may have {} as {url}: {what}", path.display());
            let help = if path.iter().any(|part| part.as_encoded_bytes().starts_with(b".")) {
                "take `hidden` out, or write `route \"/.git/*\" { respond 404 }` and the like in front"
            } else {
                "move it out of the root, or write a route for it in front, with `respond 404`"
            };
            self.warn(&origin, message, help);
        }
    }

    /// Folders that uploads go to, in which scripts run.
    fn uploads(&mut self, site: &'s Site) {
        let mut seen: HashSet<&Path> = HashSet::new();
        for route in &site.routes {
            let (Action::Cgi(application) | Action::Fastcgi(application) | Action::Scgi(application)) =
                &route.action
            else {
                continue;
            };
            let Application { root, script, .. } = &**application;
            let Script::Suffixes(suffixes) = script else { continue };
            let Some(suffix) = suffixes.first() else { continue };
            if root.as_os_str().is_empty() || !seen.insert(root) {
                continue;
            }
            for (folder, why) in &*self.folders.of_uploads(root) {
                let Some(url) = folder.strip_prefix(root).ok().and_then(Path::to_str) else { continue };
                // A script runs as well where a path follows it (`PATH_INFO`).
                let scripts = [format!("/{url}/x{suffix}"), format!("/{url}/x{suffix}/y")];
                let programs = scripts.iter().filter_map(|script| {
                    let runs = self.route_of(site, script.as_bytes(), STRANGERS[0])?;
                    runs.action.is_program().then_some(runs)
                });
                let Some(origin) = programs.map(|runs| runs.origin.clone()).next() else { continue };
                let message = match why {
                    Uploads::ByName => format!(
                        "scripts in {} run, where uploads go by its name: whoever may send a file may run a program",
                        folder.display()
                    ),
                    Uploads::Writable => format!(
                        "scripts in {} run, and every user of this machine may write there: whoever gets a file there may run a program",
                        folder.display()
                    ),
                };
                let help =
                    format!("write `route \"/{url}/*{suffix}*\" {{ respond 403 }}` in front of this route");
                self.warn(&origin, message, &help);
            }
        }
    }
}

/// Why a folder is taken for one that uploads go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Uploads {
    /// It is called so, and more than root may write to it.
    ByName,
    /// Everybody may write to it.
    Writable,
}

/// Folders that uploads go to.
type UploadFolders = Rc<[(PathBuf, Uploads)]>;

/// Paths below a root, each with what it gives away.
type Giveaways = Rc<[(PathBuf, &'static str)]>;

/// What lies in the folders that are looked at. Each is looked at once: very many sites may have the same root.
struct Folders<'s> {
    /// Entries that may still be looked at.
    entries: usize,
    /// By root, and whether hidden files are served: what gives something away below it, and what it gives away.
    giveaways: HashMap<(&'s OsStr, bool), Giveaways>,
    /// By root: where uploads go.
    of_uploads: HashMap<&'s OsStr, UploadFolders>,
}

impl<'s> Folders<'s> {
    fn new() -> Self {
        Self { entries: ENTRIES, giveaways: HashMap::new(), of_uploads: HashMap::new() }
    }

    /// What lies below a root and is secret wherever it lies, is named by the settings as such, or gives itself away by its name.
    fn giveaways(
        &mut self,
        root: &'s Path,
        serves_hidden: bool,
        secrets: &[(PathBuf, &'static str)],
    ) -> Giveaways {
        let key = (root.as_os_str(), serves_hidden);
        if let Some(known) = self.giveaways.get(&key) {
            return known.clone();
        }
        let mut there: Vec<(PathBuf, &str)> = Vec::new();
        if let Ok(root) = root.canonicalize() {
            for (path, what) in secrets {
                there.extend(path.strip_prefix(&root).ok().map(|path| (path.to_owned(), *what)));
            }
            if serves_hidden {
                let known = HIDDEN.iter().filter(|name| root.join(name).is_file());
                there.extend(known.map(|name| (PathBuf::from(name), "what is nobody's business")));
            }
            for name in self.names(&root) {
                there.extend(giveaway(&name).map(|what| (PathBuf::from(&name), what)));
            }
        }
        let there = Rc::from(there);
        self.giveaways.insert(key, Rc::clone(&there));
        there
    }

    /// Folders below a root that are called so and that more than root may write to, or that everybody may write to.
    fn of_uploads(&mut self, root: &'s Path) -> UploadFolders {
        if let Some(known) = self.of_uploads.get(root.as_os_str()) {
            return known.clone();
        }
        let (mut found, mut left) = (Vec::new(), vec![(root.to_owned(), 0)]);
        while let Some((folder, depth)) = left.pop() {
            for name in self.names(&folder) {
                let path = folder.join(&name);
                let Some(there) = fs::symlink_metadata(&path).ok().filter(fs::Metadata::is_dir) else {
                    continue;
                };
                let lower = name.to_ascii_lowercase();
                let is_called_so = UPLOADS.iter().any(|known| lower.starts_with(known));
                if let Some(why) = for_uploads(is_called_so, there.uid(), there.mode()) {
                    found.push((path, why));
                } else if depth + 1 < DEPTH && !name.starts_with('.') {
                    left.push((path, depth + 1));
                }
            }
        }
        found.sort_unstable_by(|(a, _): &(PathBuf, _), (b, _)| a.cmp(b));
        let found = Rc::from(found);
        self.of_uploads.insert(root.as_os_str(), Rc::clone(&found));
        found
    }

    /// The names in a folder, within the bound of all.
    fn names(&mut self, folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).into_iter().flatten().take(self.entries);
        let names: Vec<String> =
            entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        self.entries -= names.len().min(self.entries);
        names
    }
}

/// Whether uploads may go to a folder, and why: packages of Debian bring a `media` or an `avatar` that root alone may write to, and
/// those are part of the application.
fn for_uploads(is_called_so: bool, owner: u32, mode: u32) -> Option<Uploads> {
    let everybody_may = mode & 0o002 != 0;
    let others_may = owner != 0 || mode & 0o020 != 0 || everybody_may;
    match is_called_so && others_may {
        true => Some(Uploads::ByName),
        false => everybody_may.then_some(Uploads::Writable),
    }
}

/// What a name in a root gives away; only what nobody publishes by that name.
fn giveaway(name: &str) -> Option<&'static str> {
    let lower = name.to_ascii_lowercase();
    let ends =
        |endings: &[&str]| endings.iter().any(|ending| lower.len() > ending.len() && lower.ends_with(ending));
    if matches!(lower.as_str(), "id_rsa" | "id_ecdsa" | "id_ed25519") || ends(&[".pfx", ".p12", ".kdbx"]) {
        return Some("a private key");
    }
    if ends(&[".sql", ".sql.gz", ".sql.bz2", ".sql.zst", ".sqlite", ".sqlite3"]) {
        return Some("a copy of a database, by its name");
    }
    let is_copy = ends(&["~", ".bak", ".old", ".orig", ".save", ".swp"]);
    let of_script = ["php", "py", "rb", "pl", "cgi", "asp", "jsp"];
    let has_script = lower.split(['.', '~']).skip(1).any(|part| of_script.contains(&part));
    (is_copy && has_script).then_some("the source of a script, as text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_for_uploads() {
        let (by_name, writable) = (Some(Uploads::ByName), Some(Uploads::Writable));
        for (is_called_so, owner, mode, expected) in [
            (true, 33, 0o40755, by_name),
            (true, 0, 0o40775, by_name),
            (true, 0, 0o40755, None),
            (true, 0, 0o40777, by_name),
            (false, 33, 0o40755, None),
            (false, 0, 0o41777, writable),
        ] {
            assert_eq!(for_uploads(is_called_so, owner, mode), expected, "{owner} {mode:o}");
        }
    }

    #[test]
    fn names_that_give_away() {
        for (name, expected) in [
            ("wp-config.php~", true),
            ("wp-config.php.bak", true),
            (".wp-config.php.swp", true),
            ("notes.bak", false),
            ("index.php", false),
            ("dump.SQL.gz", true),
            (".sql", false),
            ("id_rsa", true),
            ("id_rsa.pub", false),
            ("photo.old.jpg", false),
        ] {
            assert_eq!(giveaway(name).is_some(), expected, "{name}");
        }
    }
}
