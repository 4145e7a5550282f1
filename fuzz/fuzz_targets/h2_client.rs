//! Feeds libFuzzer's bytes to `tidegate_wire::fuzzing::fuzz_h2_client`, which says what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_wire::fuzzing::fuzz_h2_client(data));
