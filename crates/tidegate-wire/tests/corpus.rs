//! Drives the fuzz functions on the stable toolchain: every corpus file, and mutations of them with a fixed
//! seed, so that each run tries the same inputs.

use std::fs;
use std::path::Path;
use tidegate_wire::fuzzing::{
    fuzz_cgi_head, fuzz_fastcgi, fuzz_h1_body, fuzz_h1_request, fuzz_h1_response, fuzz_h2_client,
    fuzz_h2_server, fuzz_hpack, fuzz_scgi,
};

const MUTATIONS: usize = 20_000;

/// Pieces of the grammar that random bytes would hardly ever spell.
const WORDS: [&[u8]; 30] = [
    b"\r\n",
    b"\n",
    b"\r",
    b"\r\n\r\n",
    b" ",
    b"\t",
    b":",
    b",",
    b";",
    b"=",
    b"\"",
    b"\\",
    b"\0",
    b"\xff",
    b"0\r\n",
    b"ffffffffffffffff",
    b"18446744073709551616",
    b"HTTP/1.0",
    b"HTTP/1.1",
    b"HTTP/2.0",
    b"Host: a\r\n",
    b"Content-Length: 3\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: close\r\n",
    b"Expect: 100-continue\r\n",
    b"Upgrade: x\r\n",
    b"http://",
    b"chunked",
    b"GET / HTTP/1.1\r\n",
    b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
];

/// The same for frames: heads of them, and pieces of blocks.
const FRAMES: [&[u8]; 24] = [
    b"\0\0\0\0\x01\0\0\0\x01",
    b"\0\0\x01\0\0\0\0\0\x01x",
    b"\0\0\x04\0\x09\0\0\0\x01\x02a\0\0",
    b"\0\0\x06\x01\x05\0\0\0\x03\x82\x86\x84\x01\x01a",
    b"\0\0\x06\x01\x04\0\0\0\x05\x83\x86\x84\x01\x01a",
    b"\0\0\x01\x01\x05\0\0\0\x01\x88",
    b"\0\0\x03\x01\0\0\0\0\x07\x82\x86\x84",
    b"\0\0\x03\x09\x04\0\0\0\x07\x01\x01a",
    b"\0\0\x04\x03\0\0\0\0\x01\0\0\0\x08",
    b"\0\0\x04\x08\0\0\0\0\x01\0\0\0\x08",
    b"\0\0\x04\x08\0\0\0\0\0\x7f\xff\xff\xff",
    b"\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\0",
    b"\0\0\x06\x04\0\0\0\0\0\0\x01\0\0\0\0",
    b"\0\0\0\x04\x01\0\0\0\0",
    b"\0\0\x05\x02\0\0\0\0\x03\0\0\0\x03\x01",
    b"\0\0\x08\x06\0\0\0\0\0abcdefgh",
    b"\0\0\x08\x07\0\0\0\0\0\0\0\0\x01\0\0\0\0",
    b"\0\0\x07\x10\0\0\0\0\0\0\0\0\x01u=1",
    b"\x40\x01a\x01b",
    b"\x00\x0econtent-length\x013",
    b"\xbe\xbf",
    b"\x20\x3f\xe1\x1f",
    b"\xff\xff\xff",
    b"\0\0\0\0\0",
];

struct Xorshift(u64);

impl Xorshift {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound.max(1) as u64) as usize
    }
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

fn mutate(input: &mut Vec<u8>, others: &[Vec<u8>], words: &[&[u8]], random: &mut Xorshift) {
    for _ in 0..=random.below(4) {
        let at = random.below(input.len() + 1);
        let end = at + random.below(input.len() - at + 1).min(20);
        match random.below(6) {
            0 => {
                let flipped = 1 << random.below(8);
                if let Some(b) = input.get_mut(at) {
                    *b ^= flipped;
                }
            }
            1 => {
                let word = words[random.below(words.len())];
                input.splice(at..at, word.iter().copied());
            }
            2 => {
                let word = words[random.below(words.len())];
                input.splice(at..end, word.iter().copied());
            }
            3 => drop(input.drain(at..end)),
            4 => {
                let copy = input[at..end].to_vec();
                input.splice(at..at, copy);
            }
            _ => {
                let other = &others[random.below(others.len())];
                let from = random.below(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
        }
    }
    // The place to cut and the limits, whatever the file says.
    for (at, bound) in [(0, 256), (1, 8)] {
        let value = random.below(bound) as u8;
        if let Some(b) = input.get_mut(at) {
            *b = value;
        }
    }
}

fn drive(target: &str, words: &[&[u8]], seed: u64, run: fn(&[u8])) {
    let files = corpus(target);
    assert!(!files.is_empty(), "{target}: no corpus");
    for file in &files {
        for cut in 0..=255 {
            let mut input = file.clone();
            if let Some(b) = input.first_mut() {
                *b = cut;
            }
            run(&input);
        }
    }
    let mut random = Xorshift(seed);
    for at in 0..MUTATIONS {
        let mut input = files[at % files.len()].clone();
        mutate(&mut input, &files, words, &mut random);
        let outcome = std::panic::catch_unwind(|| run(&input));
        assert!(outcome.is_ok(), "{target}, mutation {at}: {}", input.escape_ascii());
    }
}

#[test]
fn requests() {
    drive("h1_request", &WORDS, 0x9e37_79b9_7f4a_7c15, fuzz_h1_request);
}

#[test]
fn responses() {
    drive("h1_response", &WORDS, 0xbf58_476d_1ce4_e5b9, fuzz_h1_response);
}

#[test]
fn bodies() {
    drive("h1_body", &WORDS, 0x94d0_49bb_1331_11eb, fuzz_h1_body);
}

#[test]
fn frames_to_a_server() {
    drive("h2_server", &FRAMES, 0x2545_f491_4f6c_dd1d, fuzz_h2_server);
}

#[test]
fn frames_to_a_client() {
    drive("h2_client", &FRAMES, 0xd6e8_feb8_6659_fd93, fuzz_h2_client);
}

#[test]
fn field_blocks() {
    drive("hpack", &FRAMES, 0x9fb2_1c65_1e98_df25, fuzz_hpack);
}

#[test]
fn fastcgi() {
    drive("fastcgi", &WORDS, 0x2545_f491_4f6c_dd1d, fuzz_fastcgi);
}

#[test]
fn scgi() {
    drive("scgi", &WORDS, 0x1405_7b7e_f767_814f, fuzz_scgi);
}

#[test]
fn heads_of_scripts() {
    drive("cgi_head", &WORDS, 0x5851_f42d_4c95_7f2d, fuzz_cgi_head);
}
