//! The entries for the fuzz target and for the tests of form: any bytes, no file system, no panic.

use std::collections::BTreeMap;
use std::path::Path;

use crate::disk::NoDisk;
use crate::source::Source;
use crate::syntax::document::Node;

/// Loads and formats bytes as if they were a file of settings. Panics only where we are wrong.
pub fn fuzz_config(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let source = Source::new("fuzz.kdl", &text);
    let environment = BTreeMap::from([("HOME".to_owned(), "/root".to_owned())]);
    let loaded = crate::load::load(source, Path::new("/base"), None, &environment, &NoDisk);
    assert!(loaded.settings.is_some() || loaded.has_errors(), "what cannot be served is explained");
    for diagnostic in &loaded.diagnostics {
        assert!(!diagnostic.render(true).is_empty());
    }
    if let Ok(formatted) = crate::format(&text) {
        assert_eq!(
            crate::format(&formatted).as_deref(),
            Ok(formatted.as_str()),
            "formatting twice is formatting once"
        );
    }
}

/// What a text says as KDL, in one way of writing: values in order, then properties by name, of which the last
/// of a name counts, then the block. `None` when it is no KDL that settings may hold.
pub fn kdl_meaning(text: &str) -> Option<String> {
    let parsed = crate::syntax::parse(&Source::new("test", text));
    parsed.diagnostics.is_empty().then(|| meaning(&parsed.nodes))
}

fn meaning(nodes: &[Node]) -> String {
    let nodes = nodes.iter().map(|node| {
        let arguments: Vec<String> = node.arguments().map(|entry| format!("{:?}", entry.value)).collect();
        let mut properties = BTreeMap::new();
        for entry in &node.entries {
            if let Some(name) = &entry.name {
                properties.insert(name.clone(), format!("{:?}", entry.value));
            }
        }
        let children = node.children.as_deref().map(meaning).unwrap_or_default();
        format!("{:?} {arguments:?} {properties:?} {{{children}}}", node.name)
    });
    nodes.collect::<Vec<_>>().join("; ")
}
