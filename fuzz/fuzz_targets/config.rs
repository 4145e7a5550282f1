//! Feeds libFuzzer's bytes to `tidegate_config::fuzzing::fuzz_config`, which says what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_config::fuzzing::fuzz_config(data));
