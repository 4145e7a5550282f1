//! Has the linker pack the relocations of the program (`DT_RELR`): a megabyte less to carry and to read at each start.
//!
//! The dynamic linker must know them, which that of glibc does since 2.36. Where the C library is another or older, or
//! cannot be asked, they stay as they are.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|present| present == value);
    let is_here = std::env::var("HOST").is_ok_and(|host| is("TARGET", &host));
    if is_here && is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") && knows_packed() {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// `glibc 2.36` and later.
fn knows_packed() -> bool {
    let told = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    let told = told.map(|told| String::from_utf8_lossy(&told.stdout).into_owned()).unwrap_or_default();
    let version = told.trim().strip_prefix("glibc ").and_then(|version| version.split_once('.'));
    version.is_some_and(|(major, minor)| {
        matches!((major.parse::<u32>(), minor.parse::<u32>()), (Ok(major), Ok(minor)) if (major, minor) >= (2, 36))
    })
}
