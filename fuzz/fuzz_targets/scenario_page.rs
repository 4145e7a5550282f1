//! Feeds libFuzzer's bytes to `tidegate_bench::scenario::fuzzing::fuzz_page`, which says what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_bench::scenario::fuzzing::fuzz_page(data));
