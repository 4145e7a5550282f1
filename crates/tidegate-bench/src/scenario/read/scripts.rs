//! The script, and what is called of it.

use super::{Reader, text_of_file};
use crate::scenario::USER;
use crate::scenario::script::{Call, Engine, Export, MOST_TEXT, Mistake, Purpose, Script};
use std::path::Path;
use std::time::Duration;
use tidegate_config::language::Item;
use tidegate_config::{Diagnostic, Source, nearest};

/// What is known of the script.
#[derive(Debug, Default)]
pub(super) enum Known {
    /// None is named.
    #[default]
    Nothing,
    /// It cannot be used, which has been said.
    Broken,
    /// The name of its file, and what it exports.
    Exports(String, Vec<Export>),
}

impl Reader {
    /// Reads the script, and runs what stands outside of its functions.
    pub(super) fn script(&mut self, item: Option<&Item>) -> Option<Script> {
        let item = item?;
        self.script = Known::Broken;
        let path = item.text(0)?;
        let name = Path::new(&path).file_name().map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_else(|| path.clone());
        let within = item.duration_of("within").unwrap_or(Duration::from_millis(100));
        let text = match text_of_file(Path::new(&path), MOST_TEXT) {
            Ok(text) => text,
            Err(fault) => {
                let help = "name a file of JavaScript beside the scenario";
                self.error(item.error_at(0, format!("`script`: {path} {fault}")), help);
                return None;
            }
        };
        match Engine::new(&name, &text, within) {
            Ok(engine) => {
                let exports = engine.exports();
                self.script = Known::Exports(name.clone(), exports.clone());
                Some(Script { name, text: text.into(), within, exports })
            }
            Err(mistake @ Mistake::NotBuilt) => {
                let help = "build it with them: `cargo build --release --features scripting`";
                self.error(item.error_at(0, format!("`script`: {mistake}")), help);
                None
            }
            Err(Mistake::Wrong(None, what)) => {
                let help = "put it right in that file; an `Error` that is thrown has its line";
                self.error(item.error_at(0, format!("`script`: {name}: {what}")), help);
                None
            }
            Err(Mistake::Wrong(Some((line, column)), what)) => {
                let at = offset(&text, line, column);
                let source = Source::new(&path, &text);
                let (line, _) = item.position();
                let help = format!("line {line} of the scenario names this file with `script`");
                self.error(Diagnostic::error(what).at(&source, at..at), help);
                None
            }
        }
    }

    /// `call` and `check`; `None` where there is a mistake.
    pub(super) fn call(&mut self, item: &Item) -> Option<Call> {
        let function = self.function(item)?;
        let purpose = if item.name() == "check" {
            Purpose::Check
        } else {
            let names = item.all_texts();
            let filled = names.iter().skip(1).filter(|name| *name != USER);
            Purpose::Fill(filled.filter_map(|name| self.place(name)).collect())
        };
        Some(Call { function, purpose })
    }

    /// The place of the function that an item names first.
    pub(super) fn function(&mut self, item: &Item) -> Option<u16> {
        let wanted = item.text(0)?;
        let (message, help) = match &self.script {
            Known::Broken => return None,
            Known::Nothing => {
                let message = format!("`{} {wanted}`: the scenario has no script", item.name());
                (message, "add `script \"FILE.js\"` at the top level".to_owned())
            }
            Known::Exports(file, exports) => {
                let known = (0..).zip(exports).find(|(_, export)| export.name == wanted);
                match known.map(|(place, export)| (place, export.is_function)) {
                    Some((place, true)) => return Some(place),
                    Some((_, false)) => {
                        let message = format!("`{wanted}` of {file} is no function");
                        (message, format!("write `export function {wanted}({{ vars }}) {{ … }}` there"))
                    }
                    None => {
                        let functions = exports.iter().filter(|export| export.is_function);
                        let near = nearest(&wanted, functions.map(|export| export.name.as_str()));
                        let help = match near {
                            Some(near) => format!("did you mean `{near}`?"),
                            None => format!("write `export function {wanted}({{ vars }}) {{ … }}` there"),
                        };
                        (format!("{file} exports no `{wanted}`"), help)
                    }
                }
            }
        };
        self.error(item.error_at(0, message), help);
        None
    }
}

/// Where a line and a column of a text begin; both are counted from 1.
fn offset(text: &str, line: u32, column: u32) -> usize {
    let lines = text.split_inclusive('\n');
    let (mut start, mut last) = (0, "");
    for (number, content) in (1..).zip(lines) {
        last = content;
        if number == line {
            break;
        }
        start += content.len();
        last = "";
    }
    let within: usize = last
        .trim_end_matches(['\r', '\n'])
        .chars()
        .take(column.saturating_sub(1) as usize)
        .map(char::len_utf8)
        .sum();
    (start + within).min(text.len())
}

#[cfg(test)]
mod tests {
    use super::offset;

    /// A program without the engine says how it is built with it, and nothing of what the script may hold.
    #[cfg(not(feature = "scripting"))]
    #[test]
    fn a_program_without_the_engine_says_so() {
        let folder = std::env::temp_dir().join(format!("tidegate-lean-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("s.js"), "export const f = () => 1;").unwrap();
        let text = "target \"http://a\"; users 1 { steady \"1m\" }; think fixed \"1s\"\nscript \"s.js\"\n\
                    op a { call f x; get \"/{x}\" }";
        let environment = std::collections::BTreeMap::new();
        let loaded = crate::scenario::load_text("s.kdl", text, &folder, &environment);
        let told = loaded.render(false);
        assert!(
            told.contains("s.kdl:2:8: error: `script`: this program was built without scripts"),
            "{told}"
        );
        assert!(told.contains("--features scripting") && loaded.diagnostics.len() == 1, "{told}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn places_of_lines_and_columns() {
        let text = "aé\nbcd\n";
        for (line, column, at) in
            [(1, 1, 0), (1, 3, 3), (1, 9, 3), (2, 1, 4), (2, 3, 6), (3, 1, 8), (9, 9, 8)]
        {
            assert_eq!(offset(text, line, column), at, "{line}:{column}");
        }
    }
}
