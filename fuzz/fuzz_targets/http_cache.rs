//! Feeds libFuzzer's bytes to `tidegate_http::fuzzing::fuzz_http_cache`, which says what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_http::fuzzing::fuzz_http_cache(data));
