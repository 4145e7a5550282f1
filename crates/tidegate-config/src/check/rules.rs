//! `rules` and `use`: directives under a name, checked in each place that they are used in, as if they stood there.
//!
//! A mistake in them costs what uses them, and is told where it stands.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::{Checker, File, Item};
use crate::diagnostic::Diagnostic;
use crate::directive::Context;
use crate::include::TopNode;
use crate::settings::NESTING;
use crate::suggest;
use crate::syntax::document::{Literal, Node};

/// Most directives that rules may come to in all the places that they are used in: rules that use rules double quickly.
const MOST: usize = 100_000;

/// What `use` may name.
#[derive(Default)]
pub(crate) struct Rules {
    written: HashMap<String, Rc<Written>>,
    /// The names that are being used, outermost first; not more than [`NESTING`].
    open: Vec<String>,
    used: HashSet<String>,
    count: usize,
    /// Some stand in each other too deep, so that nobody has looked at those behind them.
    is_too_deep: bool,
}

/// A `rules`.
struct Written {
    file: File,
    node: Node,
}

/// The name behind a `rules`.
fn name(node: &Node) -> Option<String> {
    let first = node.arguments().next()?;
    if let Literal::Text(name) = &first.value { Some(name.clone()) } else { None }
}

/// How names lead back to one of them: from there on, and no more of it than one reads.
pub(crate) fn way<'n>(open: impl Iterator<Item = &'n str>, again: &str, verb: &str) -> String {
    let mut names: Vec<&str> = open.collect();
    if names.len() > NESTING {
        names.drain(..names.iter().position(|name| *name == again).unwrap_or(0));
    }
    let mut way: Vec<String> = names.iter().take(NESTING).map(|name| format!("`{name}`")).collect();
    if names.len() > NESTING {
        way.push("and so on".to_owned());
    }
    way.push(format!("`{again}`"));
    way.join(verb)
}

impl Rules {
    /// Those of all files.
    pub fn of(nodes: &[TopNode]) -> Rules {
        let mut rules = Rules::default();
        for TopNode { file, node, .. } in nodes.iter().filter(|top| top.node.name == "rules") {
            if let Some(name) = name(node) {
                let written = Written { file: file.clone(), node: node.clone() };
                rules.written.entry(name).or_insert_with(|| Rc::new(written));
            }
        }
        rules
    }

    /// The nodes of a block, those of the rules that it uses in their place. Only for files without mistakes.
    pub fn expand<'n>(&'n self, nodes: Vec<(&'n File, &'n Node)>) -> Vec<(&'n File, &'n Node)> {
        let mut out = Vec::with_capacity(nodes.len());
        for (file, node) in nodes {
            if node.name != "use" {
                out.push((file, node));
                continue;
            }
            for entry in node.arguments() {
                let Literal::Text(name) = &entry.value else { continue };
                let Some(written) = self.written.get(name) else { continue };
                let inside = written.node.children.iter().flatten().map(|node| (&written.file, node));
                out.extend(self.expand(inside.collect()));
            }
        }
        out
    }
}

impl Checker<'_> {
    /// Puts the directives of rules where they are used.
    pub(super) fn use_rules(&mut self, item: &Item, context: Context, items: &mut Vec<Item>) {
        for (at, name) in item.texts().into_iter().enumerate() {
            let Some(written) = self.rules.written.get(&name).cloned() else {
                let near = suggest::nearest(&name, self.rules.written.keys().map(String::as_str));
                let help = near.map_or_else(
                    || format!("add them at the top level: `rules \"{name}\" {{ header \"X-Content-Type-Options\" \"nosniff\" }}`"),
                    |near| format!("did you mean `{near}`?"),
                );
                self.diagnostics
                    .push(item.error_at(at, format!("no `rules` are called `{name}`")).help(help));
                continue;
            };
            if self.rules.open.contains(&name) {
                let way = way(self.rules.open.iter().map(String::as_str), &name, " uses ");
                let message = format!("these rules use themselves: {way}");
                self.diagnostics.push(item.error_at(at, message).help("take one of the `use` out"));
                continue;
            }
            if self.rules.open.len() >= NESTING {
                let message = format!("`rules` use each other more than {NESTING} deep here");
                let help = "write the directives of the innermost ones where they are used";
                self.diagnostics.push(item.error_at(at, message).help(help));
                self.rules.is_too_deep = true;
                continue;
            }
            let nodes = written.node.children.as_deref().unwrap_or_default();
            self.rules.count += nodes.len();
            if self.rules.count > MOST {
                let message = format!("rules come to more than {MOST} directives");
                self.diagnostics.push(item.error_at(at, message).help("use fewer of them, or shorter ones"));
                return;
            }
            self.rules.open.push(name.clone());
            self.items_into(&written.file, nodes, context, items);
            self.rules.open.pop();
            self.rules.used.insert(name);
        }
    }

    /// Says which rules are given twice, and which nothing uses, so that nobody has looked at them.
    pub fn check_rules(&mut self, nodes: &[TopNode]) {
        let mut seen: HashSet<String> = HashSet::new();
        for TopNode { file, node, .. } in nodes.iter().filter(|top| top.node.name == "rules") {
            let Some(name) = name(node) else { continue };
            let diagnostic = if seen.contains(&name) {
                let message = format!("the rules `{name}` are given twice");
                Diagnostic::error(message).help("give one of the two another name")
            } else if self.rules.used.contains(&name) || self.rules.is_too_deep {
                continue;
            } else {
                let message =
                    format!("nothing uses the rules `{name}`, and what stands in them is not checked");
                Diagnostic::warning(message).help(format!("write `use \"{name}\"` in a site or a route"))
            };
            self.diagnostics.push(diagnostic.at(&file.source, node.name_range.clone()));
            seen.insert(name);
        }
    }
}
