//! Feeds libFuzzer's bytes to `tidegate_cache::fuzzing::fuzz_object`, which says what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_cache::fuzzing::fuzz_object(data));
