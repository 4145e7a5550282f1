//! All transcripts of the workspace can be read, are numbered uniquely, and say in their first line what their
//! name says.

use std::collections::BTreeSet;
use std::path::Path;

use tidegate_testkit::Transcript;

#[test]
fn transcripts_are_sound() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/transcripts");
    let mut numbers = BTreeSet::new();
    let mut problems = Vec::new();
    for entry in std::fs::read_dir(&folder).expect("the folder of transcripts") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "txt") {
            continue;
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).expect("a transcript");
        let number = name.split('-').next().unwrap_or_default().to_owned();
        let is_number = number.len() == 5
            && number.starts_with('r')
            && number.bytes().skip(1).all(|byte| byte.is_ascii_digit());
        if !is_number || !numbers.insert(number.clone()) {
            problems.push(format!("{name}: the name begins with a number of its own, rNNNN-"));
        }
        match Transcript::parse(&text) {
            Ok(transcript) if transcript.title().starts_with(&format!("{number} ")) => {}
            Ok(transcript) => problems.push(format!("{name}: the first line says {}", transcript.title())),
            Err(error) => problems.push(format!("{name}: {error}")),
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
