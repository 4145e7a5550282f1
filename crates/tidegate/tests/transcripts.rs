//! Plays every transcript of `tests/transcripts/` against the real binary, each as a test of its own name:
//! `cargo test -p tidegate --test transcripts r0042`. The format: `tests/transcripts/README.md`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use tidegate_testkit::{Binary, Transcript};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    match trials() {
        Ok(trials) => libtest_mimic::run(&arguments, trials).exit_code(),
        Err(error) => {
            eprintln!("the transcripts cannot be read: {error}");
            ExitCode::FAILURE
        }
    }
}

fn trials() -> std::io::Result<Vec<Trial>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/transcripts");
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "txt") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths.into_iter().map(trial).collect())
}

fn trial(path: PathBuf) -> Trial {
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Trial::test(name, move || {
        let shown = path.display();
        let text =
            std::fs::read_to_string(&path).map_err(|error| Failed::from(format!("{shown}: {error}")))?;
        let transcript =
            Transcript::parse(&text).map_err(|error| Failed::from(format!("{shown}: {error}")))?;
        let binary = Binary::new(env!("CARGO_BIN_EXE_tidegate"));
        transcript.run(&binary).map_err(|message| Failed::from(format!("{shown}\n{message}")))
    })
}
