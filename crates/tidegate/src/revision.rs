//! One revision of the settings: loaded as the arguments of `serve` say, at the start and on every reload.

use crate::descriptors;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use tidegate_config::settings::{AccessFormat, AccessLog, LogTarget, Site};
use tidegate_config::{
    Diagnostic, Loaded, ProcessEnvironment, RejectedSite, Settings, from_folder, load_file,
};

/// What `serve` was asked to do.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Where settings come from.
    pub settings: SettingsFrom,
    /// Takes the place of `workers`.
    pub workers: Option<u16>,
    /// Takes the place of `access-log`; `Some(None)` is off.
    pub access_log: Option<Option<LogTarget>>,
    /// Takes the place of `control`.
    pub control: Option<PathBuf>,
    /// The program as it was started, for upgrades.
    pub executable: PathBuf,
    /// The arguments behind the program's name, for upgrades.
    pub arguments: Vec<OsString>,
}

/// Where settings come from.
#[derive(Debug, Clone)]
pub enum SettingsFrom {
    /// A folder, with listings, on these addresses.
    Folder {
        /// What is served.
        folder: PathBuf,
        /// As `listen` takes them; empty for the default.
        listen: Vec<String>,
    },
    /// A settings file.
    File(PathBuf),
}

impl ServeOptions {
    /// Loads the settings anew. What the arguments say beats what the file says.
    pub fn load(&self) -> Loaded {
        let mut loaded = match &self.settings {
            SettingsFrom::File(path) => load_file(path, &ProcessEnvironment),
            SettingsFrom::Folder { folder, listen } => match from_folder(folder, listen) {
                Ok(settings) => {
                    Loaded { settings: Some(settings), diagnostics: Vec::new(), rejected: Vec::new() }
                }
                Err(diagnostics) => Loaded { settings: None, diagnostics, rejected: Vec::new() },
            },
        };
        if let Some(settings) = &mut loaded.settings {
            settings.workers = self.workers.or(settings.workers);
            if let Some(target) = &self.access_log {
                let (format, only_errors) = match settings.access_log.take() {
                    Some(present) => (present.format, present.only_errors),
                    None => (AccessFormat::Combined, false),
                };
                settings.access_log = target.clone().map(|target| AccessLog { target, format, only_errors });
            }
            if matches!(self.settings, SettingsFrom::Folder { .. }) {
                descriptors::fit(settings);
            }
        }
        loaded
    }
}

/// Worker threads that a revision asks for.
pub fn workers(settings: &Settings) -> usize {
    let available = || std::thread::available_parallelism().map_or(1, usize::from);
    settings.workers.map_or_else(available, usize::from).max(1)
}

/// Puts the last good revision of every rejected site back in its place, and tells what they are called.
///
/// A site is known by its names; where a whole file could not be read, by the file.
pub fn keep_rejected(loaded: &mut Loaded, present: &Settings) -> Vec<String> {
    let Some(settings) = &mut loaded.settings else { return Vec::new() };
    let mut kept = Vec::new();
    for rejected in &loaded.rejected {
        for site in present.sites.iter().filter(|site| is_meant(rejected, site)) {
            if settings.sites.iter().any(|known| known.names == site.names) {
                continue; // it was written anew elsewhere, without the mistake
            }
            let name = title(site);
            for diagnostic in &mut loaded.diagnostics {
                say_what_is_in_force(diagnostic, &name);
            }
            kept.push(name);
            let at = place(&settings.sites, rejected);
            settings.sites.insert(at, site.clone());
        }
    }
    kept
}

/// What a site is called in messages.
pub fn title(site: &Site) -> String {
    match site.names.first() {
        Some(name) => format!("site {name}"),
        None => "the site without a name".to_owned(),
    }
}

fn is_meant(rejected: &RejectedSite, site: &Site) -> bool {
    if rejected.is_whole_file {
        return site.origin.file == rejected.origin.file;
    }
    let mut names: Vec<String> = rejected.names.iter().map(|name| name.to_ascii_lowercase()).collect();
    let mut known: Vec<String> = site.names.iter().map(ToString::to_string).collect();
    names.sort();
    known.sort();
    names == known
}

/// Before the first site that is written behind the rejected one in the same file, else behind the last
/// site of that file, else at the end.
fn place(sites: &[Arc<Site>], rejected: &RejectedSite) -> usize {
    let same_file = |site: &Arc<Site>| site.origin.file == rejected.origin.file;
    sites
        .iter()
        .position(|site| same_file(site) && site.origin.line > rejected.origin.line)
        .or_else(|| sites.iter().rposition(same_file).map(|last| last + 1))
        .unwrap_or(sites.len())
}

/// The loader knows nothing of a revision that is in force already, so it says that the site is left out.
fn say_what_is_in_force(diagnostic: &mut Diagnostic, name: &str) {
    if diagnostic.in_force.as_ref().is_some_and(|said| said.starts_with(&format!("{name} is left out"))) {
        diagnostic.in_force = Some(format!("{name} stays as it was; the other sites are as written now"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use tidegate_config::load_str;

    fn load(text: &str) -> Loaded {
        load_str("a.kdl", text, Path::new("/"), &ProcessEnvironment)
    }

    #[test]
    fn a_rejected_site_keeps_its_last_good_revision_in_its_place() {
        let good = load(
            "listen \":1\"\nsite \"a.x\" { respond 200 \"a\" }\nsite \"b.x\" \"c.x\" { respond 200 \"b\" }\n\
             site { respond 200 \"d\" }\n",
        );
        let good = good.settings.expect("sound settings");
        let mut new = load(
            "listen \":1\"\nsite \"a.x\" { respond 200 \"new\" }\nsite \"c.x\" \"b.x\" { respnd 200 \"b\" }\n\
             site { respond 200 \"d\" }\n",
        );
        let kept = keep_rejected(&mut new, &good);
        assert_eq!(kept, ["site b.x"]);
        let settings = new.settings.expect("the other sites");
        let titles: Vec<String> = settings.sites.iter().map(|site| title(site)).collect();
        assert_eq!(titles, ["site a.x", "site b.x", "the site without a name"]);
        assert!(Arc::ptr_eq(&settings.sites[1], &good.sites[1]));
    }

    #[test]
    fn a_site_that_was_never_good_stays_out() {
        let good = load("listen \":1\"\nsite { respond 200 \"d\" }\n").settings.expect("sound settings");
        let mut new = load("listen \":1\"\nsite { respond 200 \"d\" }\nsite \"n.x\" { respnd 200 }\n");
        assert_eq!(keep_rejected(&mut new, &good), Vec::<String>::new());
        assert_eq!(new.settings.map(|settings| settings.sites.len()), Some(1));
    }
}
