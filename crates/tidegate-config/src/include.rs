//! Reading the main file and all it includes into one list of top-level nodes, in order.
//!
//! Called by `load`. Bounds: depth, number of files, bytes of all together; a file that includes itself is
//! refused. A mistake of form costs the node it stands in; where it concerns a whole file that plainly holds
//! only sites, it costs those sites and no others.

use rustix::io::Errno;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::check::{Checker, File};
use crate::diagnostic::{Diagnostic, Severity};
use crate::directive::Context;
use crate::disk::{Disk, What, expand, is_glob};
use crate::foreign;
use crate::load::{LeftOut, RejectedSite};
use crate::settings::Origin;
use crate::source::Source;
use crate::syntax::document::Node;
use crate::syntax::{self, Parsed};
use crate::value::Value;

/// How deep files may include files.
const DEPTH: usize = 8;
/// Most files of one configuration.
const FILES: usize = 100_000;
/// Most bytes of all files together.
const BYTES: usize = 64 * 1024 * 1024;

/// A node of the top level and the file it stands in.
pub(crate) struct TopNode {
    pub file: File,
    pub node: Node,
    /// Which diagnostics tell of mistakes of form in it.
    pub mistakes: Range<usize>,
    /// It is only examined: the file is lost, as this one of `Reader::lost` says.
    pub lost: Option<usize>,
}

/// The files that nodes stand in, in their order: one for each run of nodes that follow each other in a file.
pub(crate) fn files_of(nodes: &[TopNode]) -> impl DoubleEndedIterator<Item = &File> {
    let runs = nodes.chunk_by(|one, next| Arc::ptr_eq(&one.file.source.name, &next.file.source.name));
    runs.filter_map(|run| run.first()).map(|top| &top.file)
}

/// Reads files, following `include`.
pub(crate) struct Reader<'a, 'b> {
    pub checker: &'b mut Checker<'a>,
    pub disk: &'b dyn Disk,
    pub nodes: Vec<TopNode>,
    /// Sites lost with files that could not be read.
    pub lost: Vec<LeftOut>,
    /// The files being read, outermost first.
    open: Vec<PathBuf>,
    files: usize,
    bytes: usize,
    /// A mistake of form concerns more than sites.
    pub is_fatal: bool,
    /// The files that were read, each with its absolute path.
    pub read: Vec<(PathBuf, Source)>,
}

impl<'a, 'b> Reader<'a, 'b> {
    pub fn new(checker: &'b mut Checker<'a>, disk: &'b dyn Disk) -> Self {
        Self {
            checker,
            disk,
            nodes: Vec::new(),
            lost: Vec::new(),
            open: Vec::new(),
            files: 0,
            bytes: 0,
            is_fatal: false,
            read: Vec::new(),
        }
    }

    /// Reads a text that is the main file.
    pub fn main(&mut self, source: Source, folder: &Path, path: Option<&Path>) {
        self.open.extend(path.map(|path| self.disk.identity(path)));
        self.read.extend(path.map(|path| (path.to_owned(), source.clone())));
        self.source(source, folder, true);
    }

    fn source(&mut self, source: Source, folder: &Path, is_main: bool) {
        self.files += 1;
        self.bytes = self.bytes.saturating_add(source.text.len());
        let file = File { source, folder: Arc::from(folder) };
        let mut parsed = syntax::parse(&file.source);
        if let Some(error) = foreign::refusal(&file.source, &parsed) {
            let at = self.checker.diagnostics.len();
            self.checker.diagnostics.push(error);
            self.checker.form.push(Range { start: at, end: at + 1 });
            self.is_fatal = true;
            return;
        }
        parsed.explain_unquoted(&file.source);
        parsed.explain_foreign(&file.source);
        let start = self.checker.diagnostics.len();
        let lost = self.lost_sites(&file, &parsed, is_main).map(|site| {
            let told = start..start + parsed.diagnostics.len();
            let diagnostics = Vec::from([told]);
            self.lost.push(LeftOut { site, diagnostics, read: Vec::new() });
            self.lost.len() - 1
        });
        // Whose mistakes are nobody's else is for everybody.
        self.is_fatal |= parsed.is_lost && lost.is_none();
        let mistakes: Vec<Range<usize>> = parsed.nodes.iter().map(|node| parsed.mistakes_in(node)).collect();
        let end = start + parsed.diagnostics.len();
        self.checker.form.push(start..end);
        self.checker.diagnostics.extend(parsed.diagnostics);
        self.nodes.reserve(parsed.nodes.len());
        for (node, mistakes) in parsed.nodes.into_iter().zip(mistakes) {
            self.checker.note_broken(&file.source, &node);
            self.is_fatal |= node.is_broken && node.name != "site";
            if node.name == "include" {
                self.include(&file, &node);
            } else {
                let mistakes = start + mistakes.start..start + mistakes.end;
                self.nodes.push(TopNode { file: file.clone(), node, mistakes, lost });
            }
        }
    }

    /// The sites of a file that is lost as a whole; `None` when it is not, or may have held more than sites.
    fn lost_sites(&self, file: &File, parsed: &Parsed, is_main: bool) -> Option<RejectedSite> {
        let only_sites = !parsed.outline.is_empty() && parsed.outline.iter().all(|(name, _)| name == "site");
        if !parsed.is_lost || is_main || !only_sites {
            return None;
        }
        let names = parsed.outline.iter().flat_map(|(_, names)| names.iter().cloned()).collect();
        let origin = Origin { file: file.source.name.clone(), line: 1, column: 1 };
        Some(RejectedSite { names, has_unread_names: true, origin, is_whole_file: true, before: usize::MAX })
    }

    fn include(&mut self, file: &File, node: &Node) {
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
        let mut unread: Vec<LeftOut> = Vec::new();
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
                    "too much is included: more than 100000 files or 64 MiB".to_owned(),
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
                Ok(bytes) => {
                    self.open.push(self.disk.identity(&path));
                    let folder = path.parent().unwrap_or(Path::new("/")).to_owned();
                    let source = Source::from_bytes(&shown(&path, file), &bytes);
                    self.read.push((path, source.clone()));
                    self.source(source, &folder, false);
                    self.open.pop();
                }
                Err(error) => {
                    let message = format!("{} cannot be read: {error}", path.display());
                    let help = match error.kind() {
                        ErrorKind::FileTooLarge => "split it with `include`",
                        _ if is_pattern => "put the file right, or take it out of there",
                        _ => "name a file that is there, or use a pattern with `*`, which may find nothing",
                    };
                    let at = self.checker.diagnostics.len();
                    self.checker.diagnostics.push(item.error_at(0, message).help(help));
                    let origin = Origin { file: shown(&path, file).into(), line: 1, column: 1 };
                    let names = Vec::new();
                    let site = RejectedSite {
                        names,
                        has_unread_names: true,
                        origin,
                        is_whole_file: true,
                        before: usize::MAX,
                    };
                    unread.push(LeftOut {
                        site,
                        diagnostics: vec![Range { start: at, end: at + 1 }],
                        read: Vec::new(),
                    });
                }
            }
        }
        // What such a file held can only be told from its neighbours. Where those are sites, it costs its
        // sites; else it may have held rules for everybody, and nothing is served without them.
        let neighbours = &self.nodes[nodes..];
        let has_neighbours = !neighbours.is_empty() || self.lost.len() > lost;
        if is_pattern && has_neighbours && neighbours.iter().all(|top| top.node.name == "site") {
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
    Diagnostic::error(format!("{} cannot be read: {error}", path.display())).help(match error.kind() {
        ErrorKind::PermissionDenied => {
            "let the user who runs this read it and enter the folders on the way, or run this as one who may"
        }
        _ if [Some(Errno::MFILE.raw_os_error()), Some(Errno::NFILE.raw_os_error())]
            .contains(&error.raw_os_error()) =>
        {
            "raise the limit of descriptors (`ulimit -Hn`, or LimitNOFILE= of the service)"
        }
        _ => "name the settings file with `--config FILE`",
    })
}
