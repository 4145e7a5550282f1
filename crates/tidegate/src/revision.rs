//! One revision of the settings: loaded as the arguments of `serve` say, at the start and on every reload.

use crate::certificates::CertificateWatch;
use crate::master::access::{self, AccessReading};
use crate::{descriptors, preflight};
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate_config::settings::gateway::Destination;
use tidegate_config::settings::{
    AccessFormat, AccessLog, Action, HostPattern, ListenAddress, Listener, LogTarget, Origin, Site, User,
};
use tidegate_config::{
    Loaded, ProcessEnvironment, RejectedSite, Settings, from_folder, load_file, with_console,
};
use tidegate_core::tls::PairKey;
use tidegate_tls::Pair;

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
    /// Stands where the settings name no `user`.
    pub user: Option<String>,
    /// The program as it was started, for upgrades.
    pub executable: PathBuf,
    /// The arguments behind the program's name, for upgrades.
    pub arguments: Vec<OsString>,
}

/// Settings, and what was read with them.
pub struct Reading {
    /// With all that was found.
    pub loaded: Loaded,
    /// Certificates that can be served.
    pub pairs: HashMap<PairKey, Pair>,
    /// The state of the files of TLS just before they were read.
    pub seen: CertificateWatch,
    /// What access asks of files.
    pub access: AccessReading,
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
        /// With the console, for this machine.
        console: bool,
    },
    /// A settings file.
    File(PathBuf),
}

impl Display for SettingsFrom {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            SettingsFrom::Folder { folder, .. } => write!(f, "the folder {}", folder.display()),
            SettingsFrom::File(path) => path.display().fmt(f),
        }
    }
}

/// What origins of arguments name as their file.
pub const COMMAND_LINE: &str = "<command line>";

fn of_arguments() -> Origin {
    Origin { file: COMMAND_LINE.into(), ..Origin::default() }
}

impl ServeOptions {
    /// Whether there is no settings file.
    pub fn is_folder(&self) -> bool {
        matches!(self.settings, SettingsFrom::Folder { .. })
    }

    /// Whether the settings come from this file.
    pub fn is_from(&self, config: &Path) -> bool {
        matches!(&self.settings, SettingsFrom::File(own) if is_same_file(own, config))
    }

    /// Loads the settings anew. What the arguments say beats what the file says.
    pub fn load(&self) -> Reading {
        let mut loaded = match &self.settings {
            SettingsFrom::File(path) => load_file(path, &ProcessEnvironment),
            SettingsFrom::Folder { folder, listen, console } => match from_folder(folder, listen)
                .and_then(|settings| if *console { with_console(settings) } else { Ok(settings) })
            {
                Ok(settings) => Loaded { settings: Some(settings), ..Loaded::default() },
                Err(diagnostics) => Loaded { diagnostics, ..Loaded::default() },
            },
        };
        if let Some(settings) = &mut loaded.settings {
            settings.workers = self.workers.or(settings.workers);
            if let (None, Some(name)) = (&settings.user, &self.user) {
                settings.user = Some(User { name: name.clone(), group: None, origin: of_arguments() });
            }
            let written = &mut loaded.written;
            let mut says = |directive, said: Option<String>| {
                if let Some(said) = said {
                    written.set_argument(directive, said);
                }
            };
            says("workers", self.workers.map(|count| count.to_string()));
            says("control", self.control.as_ref().map(|path| path.display().to_string()));
            says(
                "user",
                settings.user.as_ref().filter(|user| user.origin.line == 0).map(|user| user.name.clone()),
            );
            let target =
                |target: &Option<LogTarget>| target.as_ref().map_or("off".to_owned(), ToString::to_string);
            says("access-log", self.access_log.as_ref().map(target));
            if let SettingsFrom::Folder { folder, .. } = &self.settings {
                says("root", Some(folder.display().to_string()));
                settings
                    .listeners
                    .iter()
                    .for_each(|listener| says("listen", Some(listener.address.to_string())));
            }
            if let Some(target) = &self.access_log {
                let (format, only_errors) = match settings.access_log.take() {
                    Some(present) => (present.format, present.only_errors),
                    None => (AccessFormat::Combined, false),
                };
                settings.written.access_log = of_arguments();
                settings.access_log = target.clone().map(|target| AccessLog { target, format, only_errors });
            }
            if matches!(self.settings, SettingsFrom::Folder { .. }) {
                descriptors::fit(settings);
            }
        }
        // Before anything is read, so that no change is missed.
        let seen = loaded.settings.as_ref().map(CertificateWatch::begin).unwrap_or_default();
        let watch = loaded.settings.as_ref().map(access::watch).unwrap_or_default();
        let preflight::Read { pairs, access } = preflight::look(&mut loaded);
        Reading { loaded, pairs, seen, access: AccessReading { files: access, watch } }
    }
}

/// Whether two paths lead to the same file.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let resolved = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path));
    resolved(one).ok().is_some_and(|one| resolved(other).is_ok_and(|other| one == other))
}

/// Worker threads that a revision asks for.
pub fn workers(settings: &Settings) -> usize {
    let available = || std::thread::available_parallelism().map_or(1, usize::from);
    settings.workers.map_or_else(available, usize::from).max(1)
}

/// What a reload leaves as it was, and what it takes away.
#[derive(Debug, Default, PartialEq)]
pub struct Kept {
    /// Sites that stay as they were because of a mistake.
    pub mistaken: Vec<String>,
    /// Sites that the files no longer hold, and that stay as they were because nobody has said that they may go.
    pub missing: Vec<String>,
    /// Names that are no longer served, as was allowed.
    pub lost: Vec<String>,
    /// Addresses that the files no longer hold, and that are listened on all the same because nobody has said that they
    /// may go.
    pub unlisted: Vec<String>,
    /// Addresses that are no longer listened on, as was allowed.
    pub closed: Vec<String>,
    /// The sites that stay as they were, for whichever of these reasons.
    pub sites: Vec<Arc<Site>>,
}

/// What is served, by its name; `None` is the site without one.
type Name = Option<HostPattern>;

/// Sees to it that every name that is served now is served by the next revision as well.
///
/// What identifies a site across revisions are its names, each by itself: wherever a mistake stands, the names
/// that it costs are those that no site of the new files has. Each stays with the site that has it, as that
/// site was. A name that more than one site claims does the same. With `allows_loss` those names go that no
/// mistake can be the reason for.
pub fn keep_served(loaded: &mut Loaded, present: &Settings, allows_loss: bool) -> Kept {
    let mut kept = Kept::default();
    let Some(settings) = &mut loaded.settings else { return kept };
    keep_addresses(settings, present, allows_loss, &mut kept);
    let served: HashSet<Name> = served(present).flat_map(names_of).collect();
    let contested: HashSet<&Name> = loaded.contested.iter().filter(|name| served.contains(*name)).collect();
    if !contested.is_empty() {
        settings.sites = settings.sites.iter().filter_map(|site| without(site, &contested)).collect();
    }
    let mut heirs: HashMap<Name, usize> = HashMap::new();
    for (at, site) in settings.sites.iter().enumerate() {
        heirs.extend(names_of(site).into_iter().map(|name| (name, at)));
    }
    let mistakes = Mistakes::of(&loaded.rejected);
    // What each mistake would have cost.
    let mut costs: HashMap<usize, Vec<String>> = HashMap::new();
    // Each with the new site that it stands in front of; from the last to the first.
    let mut back: Vec<(usize, Arc<Site>)> = Vec::new();
    let mut next = settings.sites.len();
    for site in present.sites.iter().rev().filter(|site| site.left_out.is_none()) {
        let names = names_of(site);
        let missing: Vec<Name> = names.iter().filter(|name| !heirs.contains_key(*name)).cloned().collect();
        if let Some(heir) = names.iter().find_map(|name| heirs.get(name)) {
            next = *heir;
        }
        if missing.is_empty() {
            continue;
        }
        let cause = mistakes.cause(site, &missing);
        let is_mistaken = cause.is_some() || missing.iter().any(|name| contested.contains(name));
        if !is_mistaken && allows_loss {
            kept.lost.extend(missing.iter().map(name_text));
            continue;
        }
        let whole = missing.len() == names.len();
        let title = if whole { title(site) } else { listed(&missing) };
        if is_mistaken {
            if let Some(cause) = cause {
                costs.entry(cause).or_default().push(title.clone());
            }
            kept.mistaken.push(title);
        } else {
            kept.missing.push(format!("{title} ({})", site.origin));
        }
        let names = missing.into_iter().flatten().collect();
        back.push((next, if whole { site.clone() } else { Arc::new(Site { names, ..(**site).clone() }) }));
    }
    for diagnostic in &mut loaded.diagnostics {
        let Some(titles) = diagnostic.costs.and_then(|at| costs.get_mut(&at)) else { continue };
        titles.sort_unstable();
        let verb = if titles.len() == 1 { "stays as it was" } else { "stay as they were" };
        let titles = titles.join(", ");
        diagnostic.in_force = Some(format!("{titles} {verb}; the other sites are as written now"));
    }
    for list in [&mut kept.mistaken, &mut kept.missing, &mut kept.lost] {
        list.reverse();
    }
    keep_applications(settings, present, back.iter().map(|(_, site)| site));
    kept.sites = back.iter().map(|(_, site)| site.clone()).collect();
    let mut fresh = std::mem::take(&mut settings.sites).into_iter();
    let mut taken = 0;
    for (before, site) in back.into_iter().rev() {
        settings.sites.extend(fresh.by_ref().take(before.saturating_sub(taken)));
        taken = taken.max(before);
        settings.sites.push(site);
    }
    settings.sites.extend(fresh);
    kept
}

/// Sees to it that every address that is listened on now is listened on by the next revision as well: names may be reachable
/// there alone.
fn keep_addresses(settings: &mut Settings, present: &Settings, allows_loss: bool, kept: &mut Kept) {
    // Port 0 may be written several times.
    let mut written: Vec<&ListenAddress> =
        settings.listeners.iter().map(|listener| &listener.address).collect();
    let is_missing = |listener: &&Listener| match written.iter().position(|known| **known == listener.address)
    {
        Some(at) => {
            written.swap_remove(at);
            false
        }
        None => true,
    };
    let missing: Vec<Listener> = present.listeners.iter().filter(is_missing).cloned().collect();
    if allows_loss {
        kept.closed = missing.iter().map(|listener| listener.address.to_string()).collect();
        return;
    }
    for listener in missing {
        kept.unlisted.push(format!("{} ({})", listener.address, listener.origin));
        settings.listeners.push(listener);
    }
}

/// What a site is called in messages.
pub fn title(site: &Site) -> String {
    match site.names.first() {
        Some(name) => format!("site {name}"),
        None => "the site without a name".to_owned(),
    }
}

/// The names of `present` that the sites of `next` do not have, as one says them.
pub fn lost_names(present: &[String], next: &Settings) -> Vec<String> {
    let claimed: HashSet<String> = served(next).flat_map(names_of).map(|name| name_text(&name)).collect();
    present.iter().filter(|name| !claimed.contains(*name)).cloned().collect()
}

/// Every name that is served, as one says it.
pub fn served_names(settings: &Settings) -> Vec<String> {
    served(settings).flat_map(names_of).map(|name| name_text(&name)).collect()
}

/// The sites that are served: none that is left out and only answers that it is.
fn served(settings: &Settings) -> impl Iterator<Item = &Site> {
    settings.sites.iter().map(|site| &**site).filter(|site| site.left_out.is_none())
}

fn names_of(site: &Site) -> Vec<Name> {
    match site.names.as_slice() {
        [] => vec![None],
        names => names.iter().cloned().map(Some).collect(),
    }
}

fn name_text(name: &Name) -> String {
    name.as_ref().map_or_else(|| "the site without a name".to_owned(), ToString::to_string)
}

fn listed(names: &[Name]) -> String {
    names.iter().map(name_text).collect::<Vec<_>>().join(" ")
}

/// A site without the names that are contested; `None` when it has no other. It never becomes one without a
/// name, which would answer for everybody.
fn without(site: &Arc<Site>, contested: &HashSet<&Name>) -> Option<Arc<Site>> {
    let mut names = names_of(site);
    let before = names.len();
    names.retain(|name| !contested.contains(name));
    if names.len() == before {
        return Some(site.clone());
    }
    let names: Vec<HostPattern> = names.into_iter().flatten().collect();
    (!names.is_empty()).then(|| Arc::new(Site { names, ..(**site).clone() }))
}

/// Which rejected site may be the reason that a name is missing.
struct Mistakes<'a> {
    names: HashMap<&'a str, usize>,
    /// Files in which a site stands whose names could not all be made out.
    files: HashMap<&'a str, usize>,
    nameless: Option<usize>,
}

impl<'a> Mistakes<'a> {
    fn of(rejected: &'a [RejectedSite]) -> Self {
        let (mut names, mut files, mut nameless) = (HashMap::new(), HashMap::new(), None);
        for (at, site) in rejected.iter().enumerate() {
            for name in &site.names {
                names.entry(name.as_str()).or_insert(at);
            }
            if site.has_unread_names {
                files.entry(&*site.origin.file).or_insert(at);
            } else if site.names.is_empty() {
                nameless = nameless.or(Some(at));
            }
        }
        Self { names, files, nameless }
    }

    fn cause(&self, site: &Site, missing: &[Name]) -> Option<usize> {
        let named = missing.iter().find_map(|name| match name {
            Some(name) => self.names.get(name.to_string().as_str()).copied(),
            None => self.nameless,
        });
        named.or_else(|| self.files.get(&*site.origin.file).copied())
    }
}

/// Keeps the pools and groups that sites which stay as they were pass requests on to.
fn keep_applications<'a>(
    settings: &mut Settings,
    present: &Settings,
    sites: impl Iterator<Item = &'a Arc<Site>>,
) {
    let deciders: Vec<Destination> =
        settings.users.iter().flat_map(|users| users.gateways()).map(|gateway| gateway.to.clone()).collect();
    deciders.iter().for_each(|to| keep_application(settings, present, to));
    for route in sites.flat_map(|site| &site.routes) {
        let to = match &route.action {
            Action::Cgi(application) | Action::Fastcgi(application) | Action::Scgi(application) => {
                &application.gateway.to
            }
            Action::Proxy(proxy) => &proxy.gateway.to,
            Action::Files(_)
            | Action::HandTo { .. }
            | Action::Redirect { .. }
            | Action::Respond { .. }
            | Action::Close
            | Action::Status
            | Action::Console { .. } => continue,
        };
        keep_application(settings, present, to);
    }
}

fn keep_application(settings: &mut Settings, present: &Settings, to: &Destination) {
    let Destination::Named(name) = to else { return };
    let is_there = settings.pools.iter().any(|pool| pool.name == *name)
        || settings.upstreams.iter().any(|upstream| upstream.name == *name);
    if !is_there {
        settings.pools.extend(present.pools.iter().find(|pool| pool.name == *name).cloned());
        settings.upstreams.extend(present.upstreams.iter().find(|group| group.name == *name).cloned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::path::Path;
    use tidegate_config::load_str;

    fn load(text: &str) -> Loaded {
        load_str("a.kdl", text, Path::new("/"), &BTreeMap::new())
    }

    /// What each name is answered with after a reload from `before` to `after`, and what was said.
    fn reload(before: &str, after: &str, allows_loss: bool) -> (Vec<String>, Kept) {
        let present = load(&format!("listen \":1\"\n{before}")).settings.expect("sound settings");
        let mut next = load(&format!("listen \":1\"\n{after}"));
        let kept = keep_served(&mut next, &present, allows_loss);
        let settings = next.settings.unwrap_or(present);
        let answers = settings.sites.iter().flat_map(|site| {
            let Action::Respond { body, .. } = &site.routes[site.routes.len() - 1].action else { panic!() };
            let body = body.as_deref().unwrap_or_default();
            names_of(site).into_iter().map(move |name| format!("{}={body}", name_text(&name)))
        });
        (answers.collect(), kept)
    }

    const BEFORE: &str = "site \"a.x\" { respond 200 \"a1\" }\nsite \"b.x\" \"c.x\" { respond 200 \"b1\" }\n";

    /// A name may be reachable at one address alone.
    #[test]
    fn an_address_that_is_not_written_any_more_stays_unless_it_may_go() {
        let site = "site { respond 204 }\n";
        let present = load(&format!("listen \"127.0.0.1:0\"\nlisten \"127.0.0.1:0\"\nlisten \":2\"\n{site}"));
        let present = present.settings.expect("sound settings");
        let next = || load(&format!("listen \":3\"\nlisten \"127.0.0.1:0\"\n{site}"));
        let addresses = |loaded: &Loaded| {
            let settings = loaded.settings.as_ref().expect("sound settings");
            settings.listeners.iter().map(|listener| listener.address.to_string()).collect::<Vec<_>>()
        };
        let mut kept = next();
        let told = keep_served(&mut kept, &present, false);
        assert_eq!(addresses(&kept), ["[::]:3", "127.0.0.1:0", "127.0.0.1:0", "[::]:2"]);
        assert_eq!(told.unlisted.len(), 2, "{told:?}");
        let mut gone = next();
        let told = keep_served(&mut gone, &present, true);
        assert_eq!((addresses(&gone).len(), told.closed.len()), (2, 2), "{told:?}");
    }

    /// FAULTS 73: wherever the mistake stands, what was served is served.
    #[test]
    fn no_mistake_takes_a_served_name_away() {
        let rest = "site \"b.x\" \"c.x\" { respond 200 \"b2\" }";
        for (mistake, after, expected) in [
            ("in its block", format!("site \"a.x\" {{ respnd 200 }}\n{rest}"), "a.x=a1 b.x=b2 c.x=b2"),
            ("a name that is none", format!("site \"a..x\" {{ respond 200 \"a2\" }}\n{rest}"), "a.x=a1 b.x=b2 c.x=b2"),
            ("a number for a name", format!("site 5 {{ respond 200 \"a2\" }}\n{rest}"), "a.x=a1 b.x=b2 c.x=b2"),
            ("an unset variable", format!("site \"${{NO}}\" {{ respond 200 \"a2\" }}\n{rest}"), "a.x=a1 b.x=b2 c.x=b2"),
            (
                "another site's name, behind it",
                "site \"a.x\" { respond 200 \"a2\" }\nsite \"b.x\" \"a.x\" { respond 200 \"b2\" }".to_owned(),
                "a.x=a1 b.x=b1 c.x=b1",
            ),
            (
                "another site's name, before it",
                format!("site \"a.x\" \"b.x\" {{ respond 200 \"a2\" }}\n{rest}"),
                "a.x=a2 b.x=b1 c.x=b1",
            ),
            (
                "the name of a site that has a mistake itself",
                "site \"a.x\" { respnd 200 }\nsite \"b.x\" \"a.x\" \"c.x\" { respond 200 \"b2\" }\nsite \"n.x\" { respond 200 \"n\" }".to_owned(),
                "a.x=a1 b.x=b1 c.x=b1 n.x=n",
            ),
            ("a name of its own twice", format!("site \"a.x\" \"a.x\" {{ respond 200 }}\n{rest}"), "a.x=a1 b.x=b2 c.x=b2"),
            ("some names moved, the rest mistaken", "site \"b.x\" { respond 200 \"new\" }\nsite \"a.x\" \"c.x\" { respnd 200 }".to_owned(), "a.x=a1 c.x=b1 b.x=new"),
        ] {
            let (answers, kept) = reload(BEFORE, &after, false);
            let mut sorted: Vec<&str> = expected.split(' ').collect();
            let mut found: Vec<&str> = answers.iter().map(String::as_str).collect();
            sorted.sort_unstable();
            found.sort_unstable();
            assert_eq!(found, sorted, "{mistake}");
            assert!(!kept.mistaken.is_empty() && kept.missing.is_empty(), "{mistake}: {kept:?}");
            assert_eq!(reload(BEFORE, &after, true), (answers, kept), "{mistake}: no word takes it away");
        }
    }

    #[test]
    fn what_the_files_no_longer_hold_goes_only_when_it_may() {
        let after = "site \"c.x\" { respond 200 \"c2\" }";
        let (answers, kept) = reload(BEFORE, after, false);
        assert_eq!(answers, ["a.x=a1", "b.x=b1", "c.x=c2"]);
        assert_eq!(kept.missing, ["site a.x (a.kdl:2)", "b.x (a.kdl:3)"]);
        let (answers, kept) = reload(BEFORE, after, true);
        assert_eq!(answers, ["c.x=c2"]);
        assert_eq!((kept.missing.len(), kept.lost), (0, vec!["a.x".to_owned(), "b.x".to_owned()]));
        let (answers, kept) =
            reload("site { respond 200 \"1\" }", "site \"a.x\" { respond 200 \"2\" }", false);
        assert_eq!(answers.len(), 2, "the site without a name answers for everybody");
        assert_eq!(kept.missing.len(), 1);
    }

    #[test]
    fn two_sites_without_a_name_leave_the_one_that_serves() {
        let twice =
            "site { respond 200 \"2\" }\nsite { respond 200 \"3\" }\nsite \"a.x\" { respond 200 \"a\" }";
        let (answers, kept) = reload("site { respond 200 \"1\" }", twice, false);
        assert!(answers.contains(&"the site without a name=1".to_owned()), "{answers:?}");
        assert_eq!((answers.len(), kept.mistaken.len()), (2, 1));
    }

    #[test]
    fn a_site_that_stays_keeps_its_place_and_its_application() {
        let before = "pool \"app\" { address \"unix:/s\" }\nsite \"a.x\" { respond 200 \"a\" }\n\
            site \"b.x\" { root \"/\"; fastcgi \"app\" }\nsite { respond 200 \"d\" }\n";
        let present = load(&format!("listen \":1\"\n{before}")).settings.expect("sound settings");
        let mut next = load(
            "listen \":1\"\nsite \"a.x\" { respond 200 \"new\" }\nsite \"b.x\" { fastcgi \"app\" }\n\
             site { respond 200 \"d\" }\n",
        );
        let kept = keep_served(&mut next, &present, false);
        assert_eq!(kept.mistaken, ["site b.x"]);
        let said = next.render(false);
        assert!(said.contains("site b.x stays as it was"), "{said}");
        let settings = next.settings.expect("the other sites");
        let titles: Vec<String> = settings.sites.iter().map(|site| title(site)).collect();
        assert_eq!(titles, ["site a.x", "site b.x", "the site without a name"]);
        assert!(Arc::ptr_eq(&settings.sites[1], &present.sites[1]));
        assert_eq!(settings.pools, present.pools);
    }

    #[test]
    fn a_site_that_was_never_good_stays_out() {
        let (answers, kept) = reload(
            "site { respond 200 \"d\" }",
            "site { respond 200 \"d\" }\nsite \"n.x\" { respnd 200 }",
            false,
        );
        assert_eq!((answers.len(), kept), (1, Kept::default()));
    }
}
