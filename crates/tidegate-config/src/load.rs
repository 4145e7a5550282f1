//! Loading: text to `Settings`, or to all that is wrong with it.
//!
//! Called by the command at start, on reload and for `check`. The order: read files (`include`), check every
//! node against the table (`check`), lower the server's settings, then each site by itself (`lower`), so that
//! a site with a mistake is left out while the others are served.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::check::{Checker, Rules};
use crate::diagnostic::Diagnostic;
use crate::disk::{AskedOnce, Disk, RealDisk, WithTexts};
use crate::environment::Environment;
use crate::include::{Reader, TopNode, files_of, unreadable};
use crate::lower;
use crate::settings::{HostPattern, Origin, Settings, Site};
use crate::source::Source;
use crate::value::IS_EXPRESSION;
use crate::written::WrittenSettings;

/// The outcome of loading.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Loaded {
    /// What can be served; `None` when nothing can.
    pub settings: Option<Settings>,
    /// Every error and warning, in the order they were found.
    pub diagnostics: Vec<Diagnostic>,
    /// The sites that were left out of `settings`; on reload they keep their last good revision.
    pub rejected: Vec<RejectedSite>,
    /// Names that more than one site claims, `None` for being without a name. Whose they are cannot be told
    /// from these files, so on reload they stay with the site that has them.
    pub contested: Vec<Option<HostPattern>>,
    /// The files in which the settings stand.
    pub sources: Vec<Source>,
    /// The same with their folders, for as long as the settings are in force.
    pub written: WrittenSettings,
    /// Where nothing can be served: what could be read all the same, for whoever looks for further mistakes in it.
    pub partial: Option<Settings>,
    /// The sites that a mistake costs, as far as they could be read, each with its place in `rejected`: for the same.
    pub unserved: Vec<(usize, Arc<Site>)>,
}

impl Loaded {
    /// Points at what is written at `origin`, from its first word to the end of the line or its block.
    pub fn point_at(&self, diagnostic: Diagnostic, origin: &Origin) -> Diagnostic {
        let source = self.sources.iter().find(|source| source.name == origin.file);
        match source.and_then(|source| Some((source, source.written_at(origin)?))) {
            Some((source, range)) => diagnostic.at(source, range),
            None => {
                let message = format!("{origin}: {}", diagnostic.message);
                Diagnostic { message, ..diagnostic }
            }
        }
    }

    /// Adds what was found out after loading. An error with a place among the sites costs that site, as a mistake
    /// in it does; any other costs everything.
    pub fn add(&mut self, findings: Vec<(Option<usize>, Diagnostic)>) {
        let Some(mut settings) = self.settings.take() else {
            for (_, mut finding) in findings {
                finding.in_force = finding.is_error().then(|| in_force(None));
                self.diagnostics.push(finding);
            }
            return order(&mut self.diagnostics);
        };
        let is_fatal = findings.iter().any(|(site, finding)| finding.is_error() && site.is_none());
        let mut rejected: HashMap<usize, usize> = HashMap::new();
        let mut found_out = Vec::new();
        for (site, finding) in &findings {
            let Some((at, site)) = site.and_then(|at| Some((at, settings.sites.get(at)?))) else { continue };
            if finding.is_error() && !rejected.contains_key(&at) {
                rejected.insert(at, self.rejected.len());
                found_out.push((self.rejected.len(), site.clone()));
                self.rejected.push(RejectedSite {
                    names: site.names.iter().map(lower::host_text).collect(),
                    has_unread_names: false,
                    origin: site.origin.clone(),
                    is_whole_file: false,
                    before: at,
                });
            }
        }
        let is_fatal = is_fatal || (!rejected.is_empty() && rejected.len() == settings.sites.len());
        for (site, mut finding) in findings {
            if finding.is_error() {
                finding.costs = site.and_then(|at| rejected.get(&at)).copied().filter(|_| !is_fatal);
                finding.in_force = Some(in_force(finding.costs.and_then(|at| self.rejected.get(at))));
            }
            self.diagnostics.push(finding);
        }
        if is_fatal {
            for diagnostic in self.diagnostics.iter_mut().filter(|diagnostic| diagnostic.costs.is_some()) {
                (diagnostic.costs, diagnostic.in_force) = (None, Some(in_force(None)));
            }
        } else {
            let mut at = 0..;
            settings.sites.retain(|_| !at.next().is_some_and(|at| rejected.contains_key(&at)));
            for site in &mut self.rejected {
                site.before -= rejected.keys().filter(|gone| **gone < site.before).count();
            }
            self.unserved.extend(found_out);
            self.settings = Some(settings);
        }
        order(&mut self.diagnostics);
    }

    /// Adds what else was found out about sites that are left out already, each by its place in `rejected`. What has been
    /// said of the same place is not said again.
    pub fn add_of_rejected(&mut self, findings: Vec<(usize, Diagnostic)>) {
        for (at, mut finding) in findings {
            if self.diagnostics.iter().any(|said| said.is_error() && said.span == finding.span) {
                continue;
            }
            if finding.is_error() {
                finding.costs = self.settings.is_some().then_some(at);
                finding.in_force = Some(in_force(finding.costs.and_then(|at| self.rejected.get(at))));
            }
            self.diagnostics.push(finding);
        }
        order(&mut self.diagnostics);
    }

    /// Whether anything is wrong; warnings do not count.
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(Diagnostic::is_error)
    }

    /// Says for who has a server that goes on as it was what these settings would have come to: nothing is in force of them.
    pub fn is_refused_by_a_server(&mut self) {
        for mistake in self.diagnostics.iter_mut().filter(|found| found.in_force.as_deref() == Some(NOTHING))
        {
            mistake.in_force = Some("the settings before; with these nothing would be served".into());
        }
    }

    /// All diagnostics as text, a blank line between two.
    pub fn render(&self, color: bool) -> String {
        let texts: Vec<String> = self.diagnostics.iter().map(|diagnostic| diagnostic.render(color)).collect();
        texts.join("\n")
    }
}

/// A site that is not served because of a mistake in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedSite {
    /// Its names, as far as they could be read, else as written; empty for the site without a name.
    pub names: Vec<String>,
    /// There may be names that could not be made out: an unset variable, bytes that are no text.
    pub has_unread_names: bool,
    /// Where it begins.
    pub origin: Origin,
    /// The file could not be read as KDL: all sites of `origin.file` are lost, and `names` are those that
    /// could be made out.
    pub is_whole_file: bool,
    /// Sites that are served and stand before it; of a whole file it is not known, and all do.
    pub before: usize,
}

/// Loads a file and all it includes.
pub fn load_file(path: &Path, environment: &dyn Environment) -> Loaded {
    load_texts(path, &HashMap::new(), environment)
}

/// The same for who only wants to know where the server of the file is found: the folders of caches are left alone, since a disk that does not answer may be why
/// its server is asked.
pub fn load_to_find(path: &Path, environment: &dyn Environment) -> Loaded {
    load_from(path, &WithTexts { texts: &HashMap::new(), knows_caches: false }, environment)
}

/// Loads a file and all it includes, but for these files their texts in place of what lies on the disk; each by its absolute path.
pub fn load_texts(path: &Path, texts: &HashMap<PathBuf, String>, environment: &dyn Environment) -> Loaded {
    load_from(path, &WithTexts { texts, knows_caches: true }, environment)
}

fn load_from(path: &Path, disk: &WithTexts<'_>, environment: &dyn Environment) -> Loaded {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    match disk.read(&absolute) {
        Ok(bytes) => {
            let folder = absolute.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned);
            let source = Source::from_bytes(&path.display().to_string(), &bytes);
            load(source, &folder, Some(&absolute), environment, disk)
        }
        Err(error) => {
            Loaded { diagnostics: vec![unreadable(path, &error).in_force(NOTHING)], ..Loaded::default() }
        }
    }
}

/// Loads a text; relative paths, those of `include` too, count from `base`.
pub fn load_str(name: &str, text: &str, base: &Path, environment: &dyn Environment) -> Loaded {
    let base = std::path::absolute(base).unwrap_or_else(|_| base.to_owned());
    load(Source::new(name, text), &base, None, environment, &RealDisk)
}

/// The settings of a file as they are in force, in the JSON form that the schema describes; `None` when the file
/// cannot be read. Only for a file without mistakes.
pub fn effective(path: &Path, environment: &dyn Environment) -> Option<String> {
    let absolute = std::path::absolute(path).ok()?;
    let bytes = RealDisk.read(&absolute).ok()?;
    let source = Source::from_bytes(&path.display().to_string(), &bytes);
    let mut checker = Checker::new(environment);
    let mut reader = Reader::new(&mut checker, &RealDisk);
    reader.main(source, absolute.parent()?, Some(&absolute));
    let nodes = reader.nodes;
    checker.rules = Rules::of(&nodes);
    Some(crate::effective::text(&checker, &nodes))
}

/// What is in force when nothing can be served.
const NOTHING: &str = "nothing is served; a running server keeps the settings it has";

pub(crate) fn load(
    source: Source,
    folder: &Path,
    path: Option<&Path>,
    environment: &dyn Environment,
    disk: &dyn Disk,
) -> Loaded {
    let main = source.clone();
    let disk = &AskedOnce::new(disk);
    let mut checker = Checker::new(environment);
    let mut reader = Reader::new(&mut checker, disk);
    reader.main(source, folder, path);
    let (nodes, mut left_out, is_fatal, files) = (reader.nodes, reader.lost, reader.is_fatal, reader.read);
    let read = checker.diagnostics.len();
    checker.rules = Rules::of(&nodes);
    let mut server = lower::server(&mut checker, disk, &nodes);
    // Errors of meaning so far concern everything, and so does what could not be read and costs no site.
    let costs_sites = |at: usize| {
        let form = checker.form.iter().any(|range| range.contains(&at));
        form || left_out.iter().flat_map(|left| &left.diagnostics).any(|range| range.contains(&at))
    };
    let is_fatal = is_fatal
        || checker
            .diagnostics
            .iter()
            .enumerate()
            .any(|(at, diagnostic)| diagnostic.is_error() && (at >= read || !costs_sites(at)));
    let contested = lower::sites(&mut checker, disk, &nodes, &mut server, &mut left_out);
    lower::implied_pools(&mut checker, &mut server.settings);
    lower::implied_upstreams(&mut checker, &mut server.settings);
    let whole = checker.diagnostics.len();
    checker.check_rules(&nodes);
    // A main file that could not be read says nothing about what it names or leaves out.
    let is_main_broken = checker.form.first().is_some_and(|range| !range.is_empty());
    if !(is_fatal && is_main_broken) {
        lower::consistency(&mut checker, &server, &left_out, &nodes, &main);
    }
    let is_fatal = is_fatal
        || checker.diagnostics[whole..].iter().any(Diagnostic::is_error)
        || server.settings.sites.is_empty();
    say_what_is_in_force(&mut checker.diagnostics, &left_out, &contested, is_fatal);
    let mut diagnostics = without_consequences(checker);
    order(&mut diagnostics);
    let (settings, partial) =
        if is_fatal { (None, Some(server.settings)) } else { (Some(server.settings), None) };
    let unserved = left_out.iter().enumerate();
    let unserved = unserved.flat_map(|(at, left)| left.read.iter().map(move |site| (at, site.clone())));
    Loaded {
        settings,
        partial,
        unserved: unserved.collect(),
        diagnostics,
        rejected: left_out.into_iter().map(|left| left.site).collect(),
        contested,
        sources: sources_of(&nodes),
        written: WrittenSettings::of(&nodes, files),
    }
}

/// The files that the settings stand in, each once.
fn sources_of(nodes: &[TopNode]) -> Vec<Source> {
    let mut seen: HashSet<&str> = HashSet::new();
    let files = files_of(nodes).map(|file| &file.source);
    files.filter(|source| seen.insert(&source.name)).cloned().collect()
}

/// A site that is left out, and the ranges of the diagnostics that say why.
pub(crate) struct LeftOut {
    pub site: RejectedSite,
    pub diagnostics: Vec<Range<usize>>,
    /// As far as it could be read.
    pub read: Vec<Arc<Site>>,
}

fn say_what_is_in_force(
    diagnostics: &mut [Diagnostic],
    left_out: &[LeftOut],
    contested: &[Option<HostPattern>],
    is_fatal: bool,
) {
    // A name alone would not tell which of two sites is meant.
    let contested: HashSet<String> =
        contested.iter().map(|name| name.as_ref().map(lower::host_text).unwrap_or_default()).collect();
    let is_contested = |site: &RejectedSite| match site.names.first() {
        None => contested.contains(""),
        Some(first) => contested.contains(first),
    };
    let mut costs: Vec<Option<usize>> = vec![None; diagnostics.len()];
    for (at, left) in left_out.iter().enumerate() {
        for range in &left.diagnostics {
            if let Some(told) = costs.get_mut(range.clone()) {
                told.fill(Some(at));
            }
        }
    }
    for (diagnostic, site) in diagnostics.iter_mut().zip(costs) {
        if !diagnostic.is_error() || diagnostic.in_force.is_some() {
            continue;
        }
        diagnostic.costs = site.filter(|_| !is_fatal);
        let cost = diagnostic.costs.and_then(|at| left_out.get(at));
        diagnostic.in_force = Some(match cost.map(|left| &left.site) {
            Some(site) if is_contested(site) => {
                format!(
                    "the site at {} is left out; the one that has the name already is served",
                    site.origin
                )
            }
            site => in_force(site),
        });
    }
}

/// What is in force where a mistake costs a site, or everything.
fn in_force(site: Option<&RejectedSite>) -> String {
    site.map_or_else(
        || NOTHING.to_owned(),
        |site| format!("{} left out; the other sites are served", site.title()),
    )
}

/// Leaves out what may only be said because a mistake of form stands there.
fn without_consequences(mut checker: Checker<'_>) -> Vec<Diagnostic> {
    let mut diagnostics = std::mem::take(&mut checker.diagnostics);
    let form: Vec<usize> = checker.form.iter().flat_map(Clone::clone).collect();
    let settled = settled_values(&diagnostics, &form);
    let mut form = form.into_iter().peekable();
    let mut at = 0..;
    diagnostics.retain(|diagnostic| {
        let Some(at) = at.next() else { return true };
        let is_of_form = form.next_if_eq(&at).is_some();
        !settled.contains(&at) && (is_of_form || !checker.is_consequence(diagnostic))
    });
    diagnostics
}

/// What a value and the form of that value are both wrong: a path with an escape that is none is another path, so the escape
/// alone is told. In a regular expression of nginx the backslash is none of the mistakes.
fn settled_values(diagnostics: &[Diagnostic], form: &[usize]) -> HashSet<usize> {
    let mut settled = HashSet::new();
    if form.is_empty() {
        return settled;
    }
    let mut of_form: HashMap<&str, Vec<(usize, usize)>> = HashMap::new();
    for at in form {
        if let Some((source, range)) = diagnostics.get(*at).and_then(|diagnostic| diagnostic.span.as_ref()) {
            of_form.entry(&source.name).or_default().push((range.start, *at));
        }
    }
    of_form.values_mut().for_each(|places| places.sort_unstable());
    let is_of_form: HashSet<usize> = form.iter().copied().collect();
    for (at, diagnostic) in diagnostics.iter().enumerate().filter(|(at, _)| !is_of_form.contains(at)) {
        let Some((source, range)) = &diagnostic.span else { continue };
        let Some(places) = of_form.get(&*source.name) else { continue };
        // The value itself begins with its quote, in front of what is wrong in it.
        let first = places.partition_point(|(start, _)| *start < range.start);
        let inside: Vec<usize> =
            places[first..].iter().take_while(|(start, _)| *start < range.end).map(|(_, at)| *at).collect();
        if !inside.is_empty() && source.text[range.clone()].starts_with(QUOTES) {
            if diagnostic.message.contains(IS_EXPRESSION) {
                settled.extend(inside);
            } else {
                settled.insert(at);
            }
        }
    }
    settled
}

/// What a text begins with, in whatever quotes.
const QUOTES: [char; 6] = ['"', '#', '\'', '\u{201c}', '\u{201e}', '\u{2018}'];

/// Most diagnostics that are told; beyond them only their number is.
const TOLD: usize = 200;

/// Puts diagnostics into their order, as many as are told.
fn order(diagnostics: &mut Vec<Diagnostic>) {
    sort(diagnostics);
    shorten(diagnostics);
}

/// Leaves out what nobody would read, and says so, with what was left out before.
fn shorten(diagnostics: &mut Vec<Diagnostic>) {
    let before: usize = diagnostics.iter().map(|diagnostic| diagnostic.stands_for).sum();
    diagnostics.retain(|diagnostic| diagnostic.stands_for == 0);
    let more = before + diagnostics.len().saturating_sub(TOLD);
    if more == 0 {
        return;
    }
    // Warnings give way first, wherever they stand, and the order stays.
    let errors = diagnostics.iter().filter(|diagnostic| diagnostic.is_error()).count();
    let (mut of_errors, mut of_warnings) = (TOLD, TOLD.saturating_sub(errors));
    diagnostics.retain(|diagnostic| {
        let room = if diagnostic.is_error() { &mut of_errors } else { &mut of_warnings };
        let is_kept = *room > 0;
        *room -= usize::from(is_kept);
        is_kept
    });
    let last = if errors >= TOLD { Diagnostic::error } else { Diagnostic::warning };
    let last = last(format!("there are {more} more findings")).help("put these right first");
    diagnostics.push(Diagnostic { stands_for: more, ..last });
}

/// Puts diagnostics in the order of the text: files as they were first met, then by place.
fn sort(diagnostics: &mut [Diagnostic]) {
    let mut files: HashMap<Arc<str>, usize> = HashMap::new();
    for (source, _) in diagnostics.iter().filter_map(|diagnostic| diagnostic.span.as_ref()) {
        let next = files.len();
        files.entry(source.name.clone()).or_insert(next);
    }
    diagnostics.sort_by_key(|diagnostic| match &diagnostic.span {
        Some((source, range)) => (files.get(&source.name).copied(), range.start),
        None => (Some(usize::MAX), 0),
    });
}

impl RejectedSite {
    /// What it is called, with its verb.
    fn title(&self) -> String {
        match (self.is_whole_file, self.names.as_slice()) {
            (true, _) => format!("the sites of {} are", self.origin.file),
            (false, []) => "the site without a name is".to_owned(),
            (false, [name, ..]) => format!("site {name} is"),
        }
    }
}
