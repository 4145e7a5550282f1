//! The claims of the fuzz target over its corpus, over mutations of it with a fixed seed, and over inputs
//! that would be slow if anything were more than linear in them (FAULTS 29, 31, 32).

use std::fs;
use std::path::Path;
use tidegate_http::fuzzing::fuzz_http_fields;

#[test]
fn corpus_and_mutations() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/http_fields");
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let seeds: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
    seeds.iter().for_each(|seed| fuzz_http_fields(seed));
    let words: [&[u8]; 14] =
        [b",", b";", b"=", b"\"", b"\\", b"q=", b"-", b"bytes=", b"%2e", b"/", b"..", b"\n", b"*", b"\xff"];
    let mut state = 1_u64;
    let mut below = |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % bound.max(1) as u64) as usize
    };
    for _ in 0..20_000 {
        let mut input = seeds[below(seeds.len())].clone();
        for _ in 0..=below(4) {
            let at = below(input.len() + 1);
            match below(3) {
                0 => drop(input.splice(at..at, words[below(words.len())].iter().copied())),
                1 => input.truncate(at.max(1)),
                _ => {
                    let other = &seeds[below(seeds.len())];
                    input.extend_from_slice(&other[below(other.len())..]);
                }
            }
        }
        fuzz_http_fields(&input);
    }
}

/// A field value is at most a head long; these are that long. What is quadratic takes minutes here.
#[test]
fn long_values() {
    for piece in
        [",", ";", "=", "\"", "\\", "a,", "a;q=1,", "a=\"", "W/\"a\",", "0-,", "/..", "/%2e", "%", "a "]
    {
        for start in ["@", "@bytes=", "@/", "@\"", "@max-age=\""] {
            let input = format!("{start}{}", piece.repeat((32 << 10) / piece.len()));
            fuzz_http_fields(input.as_bytes());
        }
    }
}
