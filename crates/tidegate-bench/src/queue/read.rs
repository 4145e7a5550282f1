//! A queue file to a [`Queue`], or to all that is wrong with it.

use super::language::{LANGUAGE, OUTERMOST};
use super::{Entry, MOST_POINTS, Queue};
use std::io;
use std::path::{Path, PathBuf};
use tidegate_config::language::{Contents, Item, read};
use tidegate_config::{Diagnostic, Environment, Source};

/// What became of a file.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// `None` where there is a mistake.
    pub queue: Option<Queue>,
    /// Mistakes and warnings, in the order of the file.
    pub diagnostics: Vec<Diagnostic>,
}

/// Reads a file; relative paths in it count from its folder.
///
/// # Errors
/// It cannot be read at all.
pub fn load(path: &Path, environment: &dyn Environment) -> io::Result<Loaded> {
    let bytes = std::fs::read(path)?;
    let source = Source::from_bytes(&path.display().to_string(), &bytes);
    let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let folder = path.parent().unwrap_or(Path::new("."));
    Ok(lower(&source, folder, name, environment))
}

fn lower(source: &Source, folder: &Path, name: String, environment: &dyn Environment) -> Loaded {
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let Contents { items, mut diagnostics, .. } = read(&LANGUAGE, source, OUTERMOST, &folder, environment);
    let named = items.iter().find(|item| item.name() == "queue").and_then(|item| item.text(0));
    let runs = items.iter().filter(|item| item.name() == "run");
    let entries: Vec<Entry> = runs.filter_map(|item| entry(item, &mut diagnostics)).collect();
    let has_mistakes = diagnostics.iter().any(Diagnostic::is_error);
    if entries.is_empty() && !has_mistakes {
        let missing = Diagnostic::error("there is no `run`");
        diagnostics.push(missing.help("write `run \"shop.kdl\" { set USERS \"100\" \"200\" }`"));
    }
    let points = entries.iter().map(Entry::runs).fold(0, usize::saturating_add);
    if points > MOST_POINTS {
        let many = Diagnostic::error(format!("{points} runs are more than the {MOST_POINTS} of a queue"));
        diagnostics.push(many.help("set fewer values, or split it into several files"));
    }
    let place = |found: &Diagnostic| found.span.as_ref().map_or(0, |(_, range)| range.start);
    diagnostics.sort_by_key(place);
    let is_sound = !diagnostics.iter().any(Diagnostic::is_error);
    let queue = Queue { name: named.unwrap_or(name), entries };
    Loaded { queue: is_sound.then_some(queue), diagnostics }
}

fn entry(item: &Item, diagnostics: &mut Vec<Diagnostic>) -> Option<Entry> {
    let mut matrix: Vec<(String, Vec<String>)> = Vec::new();
    for set in item.block().iter().filter(|child| child.name() == "set") {
        let Some(name) = set.text(0) else { continue };
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && !name.starts_with(|first: char| first.is_ascii_digit());
        if !is_name {
            let wrong = set.error_at(0, format!("`{name}` is no name of a variable of the environment"));
            diagnostics.push(wrong.help("write letters, digits and `_`, such as `USERS`"));
        } else if matrix.iter().any(|(known, _)| *known == name) {
            let twice = set.error_at(0, format!("`{name}` is set already"));
            diagnostics.push(twice.help("write all of its values behind one `set`"));
        }
        matrix.push((name, set.all_texts().into_iter().skip(1).collect()));
    }
    let repeat = item.block().iter().find(|child| child.name() == "repeat").and_then(|child| child.number(0));
    Some(Entry {
        file: PathBuf::from(item.text(0)?),
        matrix,
        repeat: repeat.and_then(|times| u32::try_from(times).ok()).unwrap_or(1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn loaded(text: &str) -> Loaded {
        let environment = BTreeMap::from([("MANY".to_owned(), "900".to_owned())]);
        lower(&Source::new("q.kdl", text), Path::new("/base"), "q".into(), &environment)
    }

    #[test]
    fn a_queue_is_read() {
        let loaded =
            loaded("queue \"w\"\nrun \"a.kdl\" { set U \"5\" \"${MANY}\"; repeat 3 }\nrun \"/b.kdl\"");
        let queue = loaded.queue.unwrap();
        assert_eq!(queue.name, "w");
        let values = vec![("U".to_owned(), vec!["5".to_owned(), "900".to_owned()])];
        assert_eq!(queue.entries[0], Entry { file: "/base/a.kdl".into(), matrix: values, repeat: 3 });
        assert_eq!(queue.entries[1], Entry { file: "/b.kdl".into(), matrix: Vec::new(), repeat: 1 });
    }

    #[test]
    fn mistakes_are_said() {
        let thousand = ["x"; 101].map(|value| format!("\"{value}\"")).join(" ");
        for (text, part) in [
            ("", "there is no `run`"),
            ("run \"a.kdl\" { set 1U \"5\" }", "no name of a variable"),
            ("run \"a.kdl\" { set U \"5\"; set U \"6\" }", "is set already"),
            ("run \"a.kdl\" { repeat 0 }", "0"),
            ("rum \"a.kdl\"", "did you mean `run`?"),
            (&format!("run \"a.kdl\" {{ set A {thousand}; set B {thousand} }}"), "10201 runs are more"),
        ] {
            let loaded = loaded(text);
            assert!(loaded.queue.is_none(), "{text}");
            let told: String = loaded.diagnostics.iter().map(|found| found.render(false)).collect();
            assert!(told.contains(part), "{text}: {told}");
        }
    }
}
