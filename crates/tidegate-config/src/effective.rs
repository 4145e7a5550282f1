//! `check --print-effective`: the settings as they are in force, in the JSON form that the schema describes.
//!
//! Files are joined, variables filled in, paths absolute; defaults are written out, and what a site or a route inherits
//! stands in it. `at` says where each directive was written: `FILE:LINE`, or `default`.

use serde_json::{Map, Value as Json, json};

use crate::check::{Checker, File};
use crate::directive::{Children, Context, Directive, Inheritance, Kind, argument_at};
use crate::directives;
use crate::environment::substitute;
use crate::include::TopNode;
use crate::settings::LogTarget;
use crate::syntax::document::{Entry, Literal, Node};
use crate::value::{self, Value, Written};

/// A directive that is in force somewhere.
#[derive(Clone)]
struct InForce {
    directive: &'static Directive,
    json: Json,
}

/// All of `nodes`, which are sound, as text.
pub(crate) fn text(checker: &Checker<'_>, nodes: &[TopNode]) -> String {
    let written = nodes.iter().map(|top| (&top.file, &top.node));
    let list = block(&View { checker, is_for_status: false }, Context::Top, written.collect(), &[]);
    let mut text = serde_json::to_string_pretty(&list).expect("invariant: a JSON value has a text");
    text.push('\n');
    text
}

/// The same for `tidegate status settings`: what is inherited stands where it was written alone, and secrets are not told.
pub(crate) fn for_status(checker: &Checker<'_>, nodes: &[TopNode]) -> Json {
    let written = nodes.iter().map(|top| (&top.file, &top.node));
    block(&View { checker, is_for_status: true }, Context::Top, written.collect(), &[])
}

/// How settings are shown.
struct View<'v> {
    checker: &'v Checker<'v>,
    is_for_status: bool,
}

/// What stands in the place of a secret.
const CONCEALED: &str = "(not shown)";

/// Directives whose arguments from this one on may be secrets: keys and passwords for applications.
const SECRETS: [(&str, usize); 2] = [("request-header", 1), ("param", 1)];

/// Properties that are secrets, each with its directive.
const SECRET_PROPERTIES: [(&str, &str); 2] = [("authority", "eab-key"), ("dns-update", "key")];

/// What is in force in a block: what is written there, what it inherits, and defaults.
fn block(view: &View<'_>, context: Context, nodes: Vec<(&File, &Node)>, outer: &[InForce]) -> Json {
    let known = |node: &Node| directives::find(context, &node.name);
    // Sites and routes inherit what stands beside them, wherever it does.
    let nodes = view.checker.rules.expand(nodes);
    let is_used = |(_, node): &(&File, &Node)| node.name != "rules"; // they stand where they are used
    let (later, first): (Vec<_>, Vec<_>) = nodes
        .into_iter()
        .filter(is_used)
        .partition(|(_, node)| matches!(node.name.as_str(), "site" | "route"));
    let mut list: Vec<InForce> = Vec::new();
    for (file, node) in first {
        let Some(directive) = known(node) else { continue };
        let json = self::directive(view, file, node, directive, false, &[]);
        list.push(InForce { directive, json });
    }
    let inherited = outer.iter().filter(|outer| {
        comes_down(outer)
            && directives::find(context, outer.directive.name).is_some()
            && !list.iter().any(|inner| hides(inner, outer))
    });
    let inherited: Vec<InForce> = inherited.cloned().collect();
    list.extend(inherited);
    let file =
        File { source: crate::source::Source::new("default", ""), folder: std::path::Path::new("/").into() };
    complete_limits(&mut list, outer);
    for directive in directives::in_context(context) {
        // A default holds where the directive stands first; further in, it comes from there.
        if directive.contexts.first() != Some(&context)
            || list.iter().any(|known| stands_for(known.directive.name, directive.name))
        {
            continue;
        }
        // A block that is not written has the defaults of what may stand in it.
        let bounds = match (context, directive.children) {
            (Context::Top, Children::Block(Context::Limits | Context::FileCache | Context::Statistics)) => {
                Some(directive.name)
            }
            _ => None,
        };
        if let Some(node) = directive.default.or(bounds).and_then(Node::parse) {
            let json = self::directive(view, &file, &node, directive, true, &[]);
            list.push(InForce { directive, json });
        }
    }
    // Of the `limits` of the top level, sites have those that they may set themselves.
    // `access off` has done its work where it stands.
    let is_inherited = |known: &&InForce| {
        let name = known.directive.name;
        name == "limits" || (name != "access" && comes_down(known))
    };
    let inner: Vec<InForce> = match view.is_for_status {
        true => Vec::new(),
        false => list.iter().filter(is_inherited).cloned().collect(),
    };
    for (file, node) in later {
        let Some(directive) = known(node) else { continue };
        let json = self::directive(view, file, node, directive, false, &inner);
        list.push(InForce { directive, json });
    }
    Json::Array(list.into_iter().map(|known| known.json).collect())
}

/// Adds to the `limits` of a site or a route what the level around says in its own.
fn complete_limits(list: &mut [InForce], outer: &[InForce]) {
    let is_limits = |known: &&InForce| known.directive.name == "limits";
    let around = outer.iter().find(is_limits).and_then(|around| around.json["children"].as_array());
    let own = list.iter_mut().find(|known| is_limits(&&**known));
    let (Some(around), Some(own)) = (around, own.and_then(|own| own.json["children"].as_array_mut())) else {
        return;
    };
    for child in around {
        let name = child["directive"].as_str().unwrap_or_default();
        let is_known = directives::find(Context::RequestLimits, name).is_some();
        if is_known && !own.iter().any(|own| own["directive"] == name) {
            own.push(child.clone());
        }
    }
}

/// Whether the levels inside have it too.
fn comes_down(known: &InForce) -> bool {
    // At the top level the word also defines stores, which nobody inherits.
    let is_store = |child: &Json| child["directive"] == "memory" || child["directive"] == "disk";
    known.directive.inheritance.is_some()
        || known.directive.name == "cache"
            && !known.json["children"].as_array().is_some_and(|children| children.iter().any(is_store))
}

/// Whether two directives set the same thing.
fn stands_for(one: &str, other: &str) -> bool {
    let pair = ["expires", "cache-control"];
    one == other || pair.contains(&one) && pair.contains(&other)
}

/// Whether an inner directive takes the place of an outer one.
fn hides(inner: &InForce, outer: &InForce) -> bool {
    // `access off` opens what the levels outside have closed.
    if inner.directive.name == "access" {
        return matches!(outer.directive.name, "access" | "allow" | "deny");
    }
    let key = |known: &InForce| known.json["arguments"][0].to_string().to_ascii_lowercase();
    // Access adds up: each level has to let a client in.
    let adds_up = matches!(inner.directive.name, "allow" | "deny") || inner.json["arguments"][2] == "add";
    !adds_up
        && stands_for(inner.directive.name, outer.directive.name)
        && match inner.directive.inheritance {
            Inheritance::Adds(_) => {
                inner.directive.name == outer.directive.name
                    && !matches!(inner.directive.children, Children::Pairs { .. })
                    && key(inner) == key(outer)
            }
            Inheritance::None | Inheritance::Replaces(_) => true,
        }
}

fn directive(
    view: &View<'_>,
    file: &File,
    node: &Node,
    directive: &Directive,
    is_default: bool,
    inherited: &[InForce],
) -> Json {
    let mut out = Map::new();
    out.insert("directive".to_owned(), json!(directive.name));
    let at = || file.source.origin(node.name_range.start).to_string();
    out.insert("at".to_owned(), if is_default { json!("default") } else { json!(at()) });
    let count = node.arguments().count();
    let mut arguments = Vec::new();
    let mut properties = Map::new();
    for entry in &node.entries {
        match &entry.name {
            None => {
                let argument = argument_at(directive.arguments, arguments.len(), count);
                let is_secret =
                    |(name, first): &(&str, usize)| *name == directive.name && *first <= arguments.len();
                if view.is_for_status && SECRETS.iter().any(is_secret) {
                    arguments.push(json!(CONCEALED));
                    continue;
                }
                let known = argument.map(|known| (known.kind, known.words));
                arguments.push(written(view, file, entry, known));
            }
            Some(name)
                if view.is_for_status && SECRET_PROPERTIES.contains(&(directive.name, name.as_str())) =>
            {
                properties.insert(name.clone(), json!(CONCEALED));
            }
            Some(name) => {
                let known = directive.properties.iter().find(|known| known.name == name);
                let kind = known.map(|known| (known.kind, &[][..]));
                properties.insert(name.clone(), written(view, file, entry, kind));
            }
        }
    }
    let is_off = arguments.first().is_some_and(|first| first == "off");
    let mut defaults = Vec::new();
    for property in directive.properties.iter().filter(|_| !is_off) {
        if let Some(default) = property.default.filter(|_| !properties.contains_key(property.name)) {
            properties.insert(property.name.to_owned(), crate::schema::default_value(property.kind, default));
            defaults.push(property.name);
        }
    }
    if !directive.arguments.is_empty() {
        out.insert("arguments".to_owned(), Json::Array(arguments));
    }
    if !properties.is_empty() {
        out.insert("properties".to_owned(), Json::Object(properties));
    }
    if view.is_for_status && !defaults.is_empty() && !is_default {
        out.insert("defaults".to_owned(), json!(defaults));
    }
    let children = node.children.as_deref().unwrap_or_default();
    match directive.children {
        Children::None => {}
        Children::Block(_) if is_off => {}
        Children::Deferred | Children::Rows { .. } => {}
        Children::Block(context) => {
            let children = children.iter().map(|child| (file, child)).collect();
            out.insert("children".to_owned(), block(view, context, children, inherited));
        }
        Children::Pairs { value, .. } => {
            let pairs = children.iter().filter_map(|child| {
                let entry = child.entries.first()?;
                if view.is_for_status && directive.name == "environment" {
                    return Some((child.name.clone(), json!(CONCEALED)));
                }
                Some((child.name.clone(), written(view, file, entry, Some((value, &[])))))
            });
            out.insert("children".to_owned(), Json::Object(pairs.collect()));
        }
    }
    Json::Object(out)
}

/// A value as the JSON form has it: numbers as numbers, paths absolute, all else as written.
fn written(
    view: &View<'_>,
    file: &File,
    entry: &Entry,
    known: Option<(Kind, &'static [&'static str])>,
) -> Json {
    let filled;
    let is_bare = !matches!(file.source.slice(&entry.value_range).chars().next(), Some('"' | '#'));
    let (plain, written) = match &entry.value {
        // As it was written: passwords come by variables.
        Literal::Text(text) if view.is_for_status && text.contains("${") => return json!(text),
        Literal::Text(text) => {
            filled = substitute(text, view.checker.environment).unwrap_or_default();
            (json!(filled), Written::Text { text: &filled, is_bare })
        }
        Literal::Integer(number) => (json!(number.to_string()), Written::Number(*number)),
        Literal::Other => return Json::Null,
    };
    let Some((kind, words)) = known else { return plain };
    match value::read(kind, words, written, &file.folder) {
        Ok(Value::Number(number))
            if !matches!(
                kind,
                Kind::Size { .. } | Kind::Speed { .. } | Kind::Share | Kind::Decimal { .. }
            ) =>
        {
            json!(number)
        }
        Ok(Value::Path(path) | Value::LogTarget(LogTarget::File(path))) => json!(path.display().to_string()),
        _ if view.is_for_status => {
            plain.as_str().map_or_else(|| plain.clone(), |text| json!(without_secrets(text)))
        }
        _ => plain,
    }
}

/// An address without the user and password in it, and without its query.
fn without_secrets(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let (rest, query) = rest.split_once('?').map_or((rest, ""), |(rest, _)| (rest, "?(not shown)"));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    match authority.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://{CONCEALED}@{host}{path}{query}"),
        None => format!("{scheme}://{rest}{query}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is called like a secret is the name of a file, or not told.
    #[test]
    fn what_is_called_a_secret_is_one() {
        let is_called =
            |name: &str| ["key", "secret", "password", "token"].iter().any(|word| name.contains(word));
        for directive in directives::all() {
            let named = directive.properties.iter().filter(|property| is_called(property.name));
            for property in named.filter(|property| !property.name.ends_with("-name")) {
                let is_kept = matches!(property.kind, Kind::File | Kind::Choice(_) | Kind::Number { .. })
                    || SECRET_PROPERTIES.contains(&(directive.name, property.name));
                assert!(is_kept, "{} {}=: {:?}", directive.name, property.name, property.kind);
            }
            if is_called(directive.name) {
                let is_text =
                    |kind| matches!(kind, Kind::Text { .. } | Kind::FieldTemplate | Kind::FieldValue);
                let is_told = directive.arguments.iter().any(|argument| is_text(argument.kind));
                assert!(!is_told || directive.name.ends_with("-endpoint"), "{}", directive.name);
            }
        }
    }

    #[test]
    fn what_comes_by_variables_is_told_as_written() {
        let environment = std::collections::BTreeMap::from([("T".to_owned(), "geheim".to_owned())]);
        let text = "listen \":1\"\nsite \"${T}.test\" { access-log \"/tmp/${T}.log\"; route \"/${T}/*\" { rewrite \"/${T}\" }; respond 200 }\n";
        let loaded = crate::load_str("a.kdl", text, std::path::Path::new("/"), &environment);
        assert!(loaded.settings.is_some(), "{}", loaded.render(false));
        let told = loaded.written.in_force(&environment).to_string();
        assert!(!told.contains("geheim") && told.contains("/${T}/*"), "{told}");
    }

    #[test]
    fn addresses_are_told_without_passwords() {
        for (text, told) in [
            ("redis://u:p@h:1/0", "redis://(not shown)@h:1/0"),
            ("http://h/a@b", "http://h/a@b"),
            ("u@h", "u@h"),
            ("http://h/hook?tok=secret", "http://h/hook?(not shown)"),
            ("http://u@h?tok=secret", "http://(not shown)@h?(not shown)"),
        ] {
            assert_eq!(without_secrets(text), told);
        }
    }
}
