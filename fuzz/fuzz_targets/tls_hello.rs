//! Feeds libFuzzer's bytes to the first look at a TLS connection: it must survive them, and a verdict must not
//! change when more comes.
#![no_main]

use tidegate_tls::hello::{Peeked, peek};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let verdict = peek(data);
    if verdict != Peeked::Incomplete {
        let longer = [data, &[0; 64]].concat();
        assert_eq!(peek(&longer), verdict);
    }
});
