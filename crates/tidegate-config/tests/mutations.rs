//! Changed, cut and multiplied settings: no panic, no endless recursion, no endless time.

use std::fs;
use std::path::Path;

use tidegate_config::fuzzing::fuzz_config;

#[test]
fn no_mutation_of_the_cases_panics() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut seeds: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path().join("input.kdl")).collect();
    seeds.sort();
    let pieces: [&[u8]; 20] = [
        b"{",
        b"}",
        b"\"",
        b"\"\"\"",
        b"#",
        b"/-",
        b"/*",
        b"*/",
        b"//",
        b"\\",
        b"=",
        b";",
        b"\n",
        b" ",
        b"${",
        b"(",
        b"\xff",
        b"\0",
        "é".as_bytes(),
        b"99999999999999999999999999999999999999999999",
    ];
    // The same in every run.
    let mut random = fastrand::Rng::with_seed(17);
    for seed in seeds {
        let text = fs::read(&seed).unwrap();
        fuzz_config(&text);
        for _ in 0..12 {
            let mut changed = text.clone();
            for _ in 0..=random.usize(..4) {
                let at = random.usize(..changed.len() + 1);
                match random.usize(..4) {
                    0 => changed.truncate(at),
                    1 => drop(changed.splice(at..at, pieces[random.usize(..pieces.len())].iter().copied())),
                    2 => drop(changed.drain(at..(at + random.usize(..9)).min(changed.len()))),
                    _ => {
                        let part = changed[at..].to_vec();
                        changed.extend_from_slice(&part);
                    }
                }
            }
            fuzz_config(&changed);
        }
    }
}

#[test]
fn what_overwhelms_a_recursive_parser_does_not_overwhelm_this_one() {
    let many = 20_000;
    for text in [
        "}".repeat(many),
        "a {".repeat(many),
        "a {b=}\n".repeat(many),
        "a /-{".repeat(many),
        "/*".repeat(many),
        "a \"\\q\"\n".repeat(many),
        "a ".repeat(many),
        "(".repeat(many),
        "site {\n".repeat(many) + &"}\n".repeat(many),
        "a /-{".repeat(16) + &"}".repeat(16),
        format!("root \"{}\"", "x".repeat(900_000)),
        "#".repeat(900_000),
        "#\"".repeat(many),
        "\"\"\"\n".repeat(many),
        "x".repeat(2_000_000),
    ] {
        fuzz_config(text.as_bytes());
    }
}
