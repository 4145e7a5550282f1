//! The last revisions of the settings, with their texts: who has changed what, and what can be put back.

use super::files::tag_of;
use crate::admin::messages::{By, FileText, RevisionInfo};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tidegate_config::settings::Site;
use tidegate_config::{Document, Settings};
use tidegate_io::clock::wall_seconds;

/// Revisions that are kept.
const KEPT: usize = 20;
/// Bytes that their texts may take, but for those of the last one. What two have in common counts once.
const BYTES: usize = 64 << 20;
/// Sites that a sentence names.
const NAMED: usize = 3;

/// The revisions.
#[derive(Default)]
pub struct History {
    /// The last one is in force.
    kept: VecDeque<Kept>,
    /// What the last one means.
    settings: Option<Arc<Settings>>,
    /// Who has written the texts of this tag, and what for where that is no plain change.
    expected: Option<(String, By, Option<String>)>,
    /// Revisions of which it was not said yet what they have changed, with the settings before and after.
    undescribed: Vec<Undescribed>,
}

/// A revision, and the settings before and after.
pub type Undescribed = (u64, Arc<Settings>, Arc<Settings>);

struct Kept {
    info: RevisionInfo,
    documents: Vec<Document>,
    /// Bytes of texts that the one before has not.
    own: usize,
}

impl History {
    /// The texts of this tag are about to be taken up, and who wants it.
    pub fn expect(&mut self, tag: String, by: &By, what: Option<String>) {
        self.expected = Some((tag, by.clone(), what));
    }

    /// A revision is in force.
    pub fn add(&mut self, number: u64, settings: &Arc<Settings>, documents: &[Document]) {
        let before = self.kept.back();
        let known: HashMap<_, _> = before
            .iter()
            .flat_map(|kept| &kept.documents)
            .map(|document| (document.path.as_path(), &document.text))
            .collect();
        let mut own = 0;
        let shared = documents.iter().map(|document| match known.get(document.path.as_path()) {
            Some(text) if ***text == *document.text => Document { text: (*text).clone(), ..document.clone() },
            _ => {
                own += document.text.len();
                document.clone()
            }
        });
        let documents: Vec<Document> = shared.collect();
        let expected = self.expected.take_if(|(expected, ..)| *expected == tag_of_documents(&documents));
        let what = match (&expected, &self.settings) {
            (Some((_, _, Some(what))), _) => what.clone(),
            (_, None) => "the server has started".to_owned(),
            (_, Some(before)) => {
                self.undescribed.push((number, before.clone(), settings.clone()));
                "settings taken up".to_owned()
            }
        };
        let who = expected.map_or_else(|| "the operator of this machine".to_owned(), |(_, by, _)| by.who);
        let info = RevisionInfo { revision: number, at: wall_seconds(), who, what, is_in_force: true };
        if let Some(before) = self.kept.back_mut() {
            before.info.is_in_force = false;
        }
        self.kept.push_back(Kept { info, documents, own });
        self.settings = Some(settings.clone());
        let mut bytes: usize = self.kept.iter().skip(1).map(|kept| kept.own).sum();
        while self.kept.len() > KEPT || (bytes > BYTES && self.kept.len() > 2) {
            self.kept.pop_front();
            bytes = self.kept.iter().skip(1).map(|kept| kept.own).sum();
        }
    }

    /// Revisions of which it is still to be said what they have changed: that takes its time where there are many sites.
    pub fn take_undescribed(&mut self) -> Vec<Undescribed> {
        std::mem::take(&mut self.undescribed)
    }

    /// What a revision has changed.
    pub fn describe(&mut self, number: u64, what: String) {
        if let Some(kept) = self.kept.iter_mut().find(|kept| kept.info.revision == number) {
            kept.info.what = what;
        }
    }

    /// A revision, without its texts.
    pub fn info(&self, number: u64) -> Option<RevisionInfo> {
        Some(self.kept.iter().find(|kept| kept.info.revision == number)?.info.clone())
    }

    /// The number of the revision in force, and its files.
    pub fn in_force(&self) -> (u64, Vec<Document>) {
        self.kept.back().map(|kept| (kept.info.revision, kept.documents.clone())).unwrap_or_default()
    }

    /// The files of a revision.
    pub fn documents(&self, number: u64) -> Option<Vec<Document>> {
        let kept = self.kept.iter().find(|kept| kept.info.revision == number)?;
        Some(kept.documents.clone())
    }

    /// All of them, the last one first.
    pub fn list(&self) -> Vec<RevisionInfo> {
        self.kept.iter().rev().map(|kept| kept.info.clone()).collect()
    }
}

/// What tells these texts from all others.
pub fn tag_of_files(files: &[FileText]) -> String {
    tag_of(files.iter().map(|file| (file.path.as_str(), file.text.as_str())))
}

fn tag_of_documents(documents: &[Document]) -> String {
    let paths: Vec<_> = documents.iter().map(|document| document.path.to_string_lossy()).collect();
    tag_of(paths.iter().zip(documents).map(|(path, document)| (&**path, &*document.text)))
}

/// The texts of documents, for an editor.
pub fn as_files(documents: &[Document]) -> Vec<FileText> {
    let file = |document: &Document| FileText {
        path: document.path.to_string_lossy().into_owned(),
        text: document.text.to_string(),
    };
    documents.iter().map(file).collect()
}

/// What one calls a site.
pub fn name_of(site: &Site) -> String {
    match site.names.as_slice() {
        [] => "(any)".to_owned(),
        names => names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
    }
}

/// Sites that differ, each with what has become of it; where things stand does not count.
pub fn site_changes(before: &Settings, after: &Settings) -> Vec<(String, &'static str)> {
    let of = |settings: &Settings| -> HashMap<String, String> {
        settings.sites.iter().map(|site| (name_of(site), plain(&**site))).collect()
    };
    let (present, next) = (of(before), of(after));
    let mut changes: Vec<(String, &'static str)> = Vec::new();
    for site in &after.sites {
        let name = name_of(site);
        match present.get(&name) {
            None => changes.push((name, "added")),
            Some(known) if next.get(&name) != Some(known) => changes.push((name, "changed")),
            Some(_) => {}
        }
    }
    let gone = before.sites.iter().map(|site| name_of(site)).filter(|name| !next.contains_key(name));
    changes.extend(gone.map(|name| (name, "removed")));
    changes
}

/// Whether anything outside of sites differs.
pub fn server_changes(before: &Settings, after: &Settings) -> bool {
    let without = |settings: &Settings| {
        let mut settings = settings.clone();
        settings.sites.clear();
        plain(&settings)
    };
    without(before) != without(after)
}

/// Settings as data, without the places that they stand at.
fn plain(what: &impl serde::Serialize) -> String {
    fn forget(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::Object(fields) => {
                let is_place = |fields: &serde_json::Map<String, serde_json::Value>| {
                    fields.len() == 3
                        && ["file", "line", "column"].iter().all(|name| fields.contains_key(*name))
                };
                if is_place(fields) {
                    fields.clear();
                }
                fields.values_mut().for_each(forget);
            }
            serde_json::Value::Array(list) => list.iter_mut().for_each(forget),
            _ => {}
        }
    }
    let mut value = serde_json::to_value(what).unwrap_or_default();
    forget(&mut value);
    value.to_string()
}

/// What two settings differ in, as a sentence.
pub fn what_changed(before: &Settings, after: &Settings) -> String {
    let changes = site_changes(before, after);
    let mut said: Vec<String> =
        changes.iter().take(NAMED).map(|(name, what)| format!("site {name} {what}")).collect();
    if changes.len() > NAMED {
        said.push(format!("{} more sites", changes.len() - NAMED));
    }
    if server_changes(before, after) {
        said.push("the server".to_owned());
    }
    match said.is_empty() {
        true => "taken up again, nothing changed".to_owned(),
        false => format!("settings changed: {}", said.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn settings(text: &str) -> Arc<Settings> {
        let loaded =
            tidegate_config::load_str("a", text, Path::new("/"), &tidegate_config::ProcessEnvironment);
        Arc::new(loaded.settings.expect("sound settings"))
    }

    fn documents(text: &str) -> Vec<Document> {
        vec![Document { path: "/a.kdl".into(), text: text.into() }]
    }

    #[test]
    fn a_revision_says_who_and_what() {
        let mut history = History::default();
        let one = "listen \":1\"\nsite \"a.test\" { respond 200 }\n";
        let two =
            "workers 2\nlisten \":1\"\n\nsite \"a.test\" { respond 200 }\nsite \"b.test\" { respond 200 }\n";
        let add = |history: &mut History, number, text| {
            history.add(number, &settings(text), &documents(text));
            for (number, before, after) in history.take_undescribed() {
                history.describe(number, what_changed(&before, &after));
            }
            history.info(number).unwrap()
        };
        assert_eq!(add(&mut history, 1, one).what, "the server has started");
        let by = By { who: "anna".into(), from: "::1".into() };
        history.expect(tag_of_files(&as_files(&documents(two))), &by, None);
        let info = add(&mut history, 2, two);
        assert_eq!(info.who, "anna");
        assert_eq!(info.what, "settings changed: site b.test added, the server");
        let info = add(&mut history, 3, one);
        assert_eq!(info.who, "the operator of this machine");
        assert_eq!(info.what, "settings changed: site b.test removed, the server");
        assert_eq!(history.list().iter().filter(|info| info.is_in_force).count(), 1);
        assert_eq!(history.in_force().0, 3);
        for number in 4..40 {
            add(&mut history, number, one);
        }
        assert_eq!(history.list().len(), KEPT);
        assert!(history.documents(3).is_none() && history.documents(39).is_some());
    }
}
