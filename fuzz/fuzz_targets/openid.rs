//! Feeds libFuzzer's bytes to `tidegate_modules::login::fuzz_openid`, which says what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_modules::login::fuzz_openid(data));
