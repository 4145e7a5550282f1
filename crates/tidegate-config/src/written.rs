//! The settings of a revision as they were written, for `tidegate status settings`: the text of its files, kept until the next
//! revision, since the files may be others by now.

use crate::check::{Checker, File, Rules};
use crate::effective;
use crate::environment::Environment;
use crate::include::TopNode;
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
}

impl WrittenSettings {
    /// Those that these nodes stand in, each once.
    pub(crate) fn of(nodes: &[TopNode], read: Vec<(PathBuf, Source)>) -> WrittenSettings {
        let mut seen: HashSet<&str> = HashSet::new();
        let files = nodes.iter().map(|top| &top.file).filter(|file| seen.insert(&file.source.name));
        let files = files.map(|file| (file.source.clone(), file.folder.clone())).collect();
        let mut seen: HashSet<PathBuf> = HashSet::new();
        let read = read.into_iter().filter(|(path, _)| seen.insert(path.clone()));
        let documents = read.map(|(path, source)| Document { path, text: source.text }).collect();
        WrittenSettings { files, documents, arguments: Vec::new() }
    }

    /// The files that were read, the main one first; none where the settings are of no file.
    pub fn documents(&self) -> &[Document] {
        &self.documents
    }

    /// An argument of the command says this in place of the files.
    pub fn set_argument(&mut self, directive: &'static str, value: String) {
        self.arguments.push((directive, value));
    }

    /// Every value that is in force, as a list of directives in the form of `check --print-effective`, but for three things:
    /// what is inherited is not repeated, secrets are not told, and properties that are not written are named as `defaults`.
    pub fn in_force(&self, environment: &dyn Environment) -> Json {
        let mut nodes = Vec::new();
        for (source, folder) in &self.files {
            let file = File { source: source.clone(), folder: folder.clone() };
            let parsed = syntax::parse(source).nodes.into_iter().filter(|node| node.name != "include");
            nodes.extend(parsed.map(|node| TopNode { file: file.clone(), node, mistakes: 0..0, lost: None }));
        }
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
