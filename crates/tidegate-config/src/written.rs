//! The settings of a revision as they were written, for `tidegate status settings`: the text of its files, kept until the next
//! revision, since the files may be others by now.

use crate::check::{Checker, File, Rules};
use crate::effective;
use crate::environment::Environment;
use crate::include::{TopNode, files_of};
use crate::settings::Origin;
use crate::source::Source;
use crate::syntax;
use serde_json::{Value as Json, json};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file of the settings as it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// Absolute, as it was asked for: what it leads to may be elsewhere.
    pub path: PathBuf,
    /// The whole text; where it is no UTF-8, with U+FFFD in place of what is none.
    pub text: Arc<str>,
}

/// The files of a revision, and what arguments have put in their place.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WrittenSettings {
    files: Vec<(Source, Arc<Path>)>,
    /// All of them, also those that hold nothing but an `include`; the main one first.
    documents: Vec<Document>,
    /// Directives of the top level, each with its value.
    arguments: Vec<(&'static str, String)>,
    /// Where a mistake has cost sites, or nobody has said that they may go.
    stayed: Option<Stayed>,
}

/// Which sites are in force, where those are not all that the files have.
#[derive(Debug, Clone, PartialEq)]
struct Stayed {
    /// Those of the files.
    fresh: HashSet<Origin>,
    /// Those of earlier revisions, each with the file that it stood in.
    earlier: Vec<(Origin, Source, Arc<Path>)>,
}

impl WrittenSettings {
    /// Those that these nodes stand in, each once.
    pub(crate) fn of(nodes: &[TopNode], read: Vec<(PathBuf, Source)>) -> WrittenSettings {
        let mut seen: HashSet<&str> = HashSet::new();
        let files = files_of(nodes).filter(|file| seen.insert(&file.source.name));
        let files = files.map(|file| (file.source.clone(), file.folder.clone())).collect();
        let mut seen: HashSet<PathBuf> = HashSet::new();
        let read = read.into_iter().filter(|(path, _)| seen.insert(path.clone()));
        let documents = read.map(|(path, source)| Document { path, text: source.text }).collect();
        WrittenSettings { files, documents, ..WrittenSettings::default() }
    }

    /// The files that were read, the main one first; none where the settings are of no file.
    pub fn documents(&self) -> &[Document] {
        &self.documents
    }

    /// Of the sites in force, `fresh` are as these files have them, and `earlier` as they were in the revision `before`.
    pub fn keep(&mut self, fresh: HashSet<Origin>, earlier: &[Origin], before: &WrittenSettings) {
        let of_before = |at: &Origin| {
            let stayed = before.stayed.iter().flat_map(|stayed| &stayed.earlier);
            let stayed =
                stayed.filter(|(origin, ..)| origin == at).map(|(_, source, folder)| (source, folder));
            let file = before.files.iter().filter(|(source, _)| source.name == at.file);
            let (source, folder) = stayed.chain(file.map(|(source, folder)| (source, folder))).next()?;
            Some((at.clone(), source.clone(), folder.clone()))
        };
        self.stayed = Some(Stayed { fresh, earlier: earlier.iter().filter_map(of_before).collect() });
    }

    /// Every directive of the top level that is in force.
    fn nodes(&self) -> Vec<TopNode> {
        let nodes_of = |(source, folder): (&Source, &Arc<Path>)| {
            let file = File { source: source.clone(), folder: folder.clone() };
            let parsed = syntax::parse(source).nodes.into_iter().filter(|node| node.name != "include");
            parsed.map(move |node| TopNode { file: file.clone(), node, mistakes: 0..0, lost: None })
        };
        let mut nodes: Vec<TopNode> =
            self.files.iter().flat_map(|(source, folder)| nodes_of((source, folder))).collect();
        let Some(Stayed { fresh, earlier }) = &self.stayed else { return nodes };
        let at = |top: &TopNode| top.file.source.origin(top.node.name_range.start);
        let is_site = |top: &TopNode| top.node.name == "site";
        nodes.retain(|top| !is_site(top) || fresh.contains(&at(top)));
        for (origin, source, folder) in earlier {
            nodes.extend(nodes_of((source, folder)).filter(|top| is_site(top) && at(top) == *origin));
        }
        nodes
    }

    /// An argument of the command says this in place of the files.
    pub fn set_argument(&mut self, directive: &'static str, value: String) {
        self.arguments.push((directive, value));
    }

    /// Every value that is in force, as a list of directives in the form of `check --print-effective`, but for three things:
    /// what is inherited is not repeated, secrets are not told, and properties that are not written are named as `defaults`.
    pub fn in_force(&self, environment: &dyn Environment) -> Json {
        let nodes = self.nodes();
        let mut checker = Checker::new(environment);
        checker.rules = Rules::of(&nodes);
        let mut told = effective::for_status(&checker, &nodes);
        if let Some(list) = told.as_array_mut() {
            let is_given =
                |known: &Json| self.arguments.iter().any(|(directive, _)| known["directive"] == *directive);
            list.retain(|known| !is_given(known));
            for (directive, value) in self.arguments.iter().rev() {
                list.insert(
                    0,
                    json!({ "directive": directive, "at": "<command line>", "arguments": [value] }),
                );
            }
        }
        told
    }
}
