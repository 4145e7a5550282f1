//! Reading the main file and all it includes into one list of top-level nodes, in order.
//!
//! Called by `load`. Bounds: depth, number of files, bytes of all together; a file that includes itself is
//! refused. A file that cannot be read as KDL but plainly holds only sites costs those sites and no others.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kdl::KdlNode;

use crate::check::{Checker, File};
use crate::diagnostic::{Diagnostic, Severity};
use crate::directive::Context;
use crate::disk::{Disk, What, expand, is_glob};
use crate::load::RejectedSite;
use crate::settings::Origin;
use crate::source::Source;
use crate::syntax;
use crate::value::Value;

/// How deep files may include files.
const DEPTH: usize = 8;
/// Most files of one configuration.
const FILES: usize = 10_000;
/// Most bytes of all files together.
const BYTES: usize = 64 * 1024 * 1024;

/// A node of the top level and the file it stands in.
pub(crate) struct TopNode {
    pub file: File,
    pub node: KdlNode,
}

/// Reads files, following `include`.
pub(crate) struct Reader<'a, 'b> {
    pub checker: &'b mut Checker<'a>,
    pub disk: &'b dyn Disk,
    pub nodes: Vec<TopNode>,
    /// Sites lost with files that could not be read, and the diagnostics that tell of each.
    pub lost: Vec<(RejectedSite, Range<usize>)>,
    /// The files being read, outermost first.
    open: Vec<PathBuf>,
    files: usize,
    bytes: usize,
}

impl<'a, 'b> Reader<'a, 'b> {
    pub fn new(checker: &'b mut Checker<'a>, disk: &'b dyn Disk) -> Self {
        Self { checker, disk, nodes: Vec::new(), lost: Vec::new(), open: Vec::new(), files: 0, bytes: 0 }
    }

    /// Reads a text that is the main file.
    pub fn main(&mut self, source: Source, folder: &Path, path: Option<&Path>) {
        self.open.extend(path.map(|path| self.disk.identity(path)));
        self.source(source, folder, true);
    }

    fn source(&mut self, source: Source, folder: &Path, is_main: bool) {
        self.files += 1;
        self.bytes = self.bytes.saturating_add(source.text.len());
        let file = File { source, folder: Arc::from(folder) };
        let document = match syntax::parse(&file.source) {
            Ok(document) => document,
            Err(broken) => return self.broken(&file, broken, is_main),
        };
        for node in document.nodes() {
            if node.name().value() == "include" {
                self.include(&file, node);
            } else {
                self.nodes.push(TopNode { file: file.clone(), node: node.clone() });
            }
        }
    }

    fn broken(&mut self, file: &File, broken: syntax::Broken, is_main: bool) {
        let start = self.checker.diagnostics.len();
        self.checker.diagnostics.extend(broken.diagnostics);
        let end = self.checker.diagnostics.len();
        let only_sites = !broken.outline.is_empty()
            && broken.outline.iter().all(|node| file.source.slice(&node.name) == "site");
        if is_main || !only_sites {
            return;
        }
        let names = broken.outline.iter().flat_map(|node| &node.arguments);
        let names = names.map(|range| file.source.slice(range).trim_matches('"').to_owned()).collect();
        let origin = Origin { file: file.source.name.clone(), line: 1, column: 1 };
        self.lost
            .push((RejectedSite { names, has_unread_names: true, origin, is_whole_file: true }, start..end));
    }

    fn include(&mut self, file: &File, node: &KdlNode) {
        let Some(item) = self.checker.item(file, node, Context::Top) else { return };
        let Some(Value::Path(path)) = item.first().cloned() else { return };
        let is_pattern = is_glob(&path);
        let paths = if is_pattern {
            match expand(self.disk, &path) {
                Ok(paths) => paths,
                Err((folder, error)) => {
                    let message = format!("the folder {} cannot be read: {error}", folder.display());
                    let help = "give the user that runs the server the right to read it";
                    return self.checker.diagnostics.push(item.error_at(0, message).help(help));
                }
            }
        } else {
            vec![path]
        };
        let (nodes, lost) = (self.nodes.len(), self.lost.len());
        // Files that the pattern finds and that cannot be read.
        let mut unread: Vec<(RejectedSite, Range<usize>)> = Vec::new();
        for path in paths {
            let problem = if self.open.len() >= DEPTH {
                Some((
                    "files include files more than 8 deep here".to_owned(),
                    "include them from the main file",
                ))
            } else if self.open.contains(&self.disk.identity(&path)) {
                Some((format!("{} includes itself", path.display()), "take it out of one of the two files"))
            } else if self.files >= FILES || self.bytes > BYTES {
                Some((
                    "too much is included: more than 10000 files or 64 MiB".to_owned(),
                    "include fewer files",
                ))
            } else {
                None
            };
            if let Some((message, help)) = problem {
                return self.checker.diagnostics.push(item.error_at(0, message).help(help));
            }
            if is_pattern && self.disk.what(&path) == What::Folder {
                let message = format!("{} is a folder: what is in it is not read", path.display());
                let help =
                    format!("read it with `include \"{}/*.kdl\"`, or take it out of there", path.display());
                let warning = Diagnostic { severity: Severity::Warning, ..item.error_at(0, message) };
                self.checker.diagnostics.push(warning.help(help));
                continue;
            }
            match self.disk.read(&path) {
                Ok(text) => {
                    self.open.push(self.disk.identity(&path));
                    let folder = path.parent().unwrap_or(Path::new("/")).to_owned();
                    self.source(Source::new(&shown(&path, file), &text), &folder, false);
                    self.open.pop();
                }
                Err(error) => {
                    let message = format!("{} cannot be read: {error}", path.display());
                    let help = if is_pattern {
                        "put the file right, or take it out of there"
                    } else {
                        "name a file that is there, or use a pattern with `*`, which may find nothing"
                    };
                    let at = self.checker.diagnostics.len();
                    self.checker.diagnostics.push(item.error_at(0, message).help(help));
                    let origin = Origin { file: shown(&path, file).into(), line: 1, column: 1 };
                    let names = Vec::new();
                    let site = RejectedSite { names, has_unread_names: true, origin, is_whole_file: true };
                    unread.push((site, at..at + 1));
                }
            }
        }
        // What such a file held can only be told from its neighbours. Where those are sites, it costs its
        // sites; else it may have held rules for everybody, and nothing is served without them.
        let neighbours = &self.nodes[nodes..];
        let has_neighbours = !neighbours.is_empty() || self.lost.len() > lost;
        if is_pattern && has_neighbours && neighbours.iter().all(|top| top.node.name().value() == "site") {
            self.lost.extend(unread);
        }
    }
}

/// The name of an included file as the operator would write it: beside the file that includes it.
fn shown(path: &Path, file: &File) -> String {
    let Ok(inside) = path.strip_prefix(&file.folder) else { return path.display().to_string() };
    match Path::new(&*file.source.name).parent() {
        Some(parent) if !file.source.name.starts_with('<') => parent.join(inside).display().to_string(),
        _ => inside.display().to_string(),
    }
}

/// A diagnostic for a main file that cannot be read at all.
pub(crate) fn unreadable(path: &Path, error: &std::io::Error) -> Diagnostic {
    Diagnostic::error(format!("{} cannot be read: {error}", path.display()))
        .help("name the settings file with `--config FILE`")
}
