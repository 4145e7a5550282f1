//! Takes the console that `cargo xtask console` has built into the program: the files of `console/dist`, compressed already.
//! Where nothing has been built there the program is one without a console, which says so.

use std::fmt::Write;
use std::path::{Path, PathBuf};

fn main() {
    let folder = Path::new("../../console/dist");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", folder.display());
    let output = std::env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok()?.strip_suffix(".gz").map(str::to_owned))
        .collect();
    names.sort();
    let mut table = String::from("&[");
    for name in &names {
        let copy = output.join(format!("{name}.gz"));
        if let Err(error) = std::fs::copy(folder.join(format!("{name}.gz")), &copy) {
            println!("cargo::error=the file {name} of the console cannot be read: {error}");
        }
        // Writing to a `String` cannot fail.
        let _ = write!(table, "({name:?}, include_bytes!({copy:?})), ");
    }
    table.push(']');
    if let Err(error) = std::fs::write(output.join("console.rs"), table) {
        println!("cargo::error=the table of the console cannot be written: {error}");
    }
}
