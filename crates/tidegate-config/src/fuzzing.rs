//! The entry for the fuzz target: any bytes, no file system, no panic.

use std::collections::BTreeMap;
use std::path::Path;

use crate::disk::NoDisk;
use crate::source::Source;

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
