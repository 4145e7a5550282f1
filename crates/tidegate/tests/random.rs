//! Some seeds of the random client against the real binary, each as a test of its own name:
//! `cargo test -p tidegate --test random seed-3`. `cargo xtask random` tries others for as long as one likes.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use tidegate_testkit::random::{Options, run_application, run_seed};
use tidegate_testkit::reachable;

/// Each takes some seconds; together they have listeners, applications and crowds of every kind.
const SEEDS: [u64; 6] = [1, 2, 3, 4, 5, 6];
const WAVES: u64 = 2;

fn main() -> ExitCode {
    // What a pool of the settings runs is this program.
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [word, protocol] = &words[..]
        && word == "application"
    {
        let problem = run_application(protocol);
        eprintln!("{problem:?}");
        return ExitCode::FAILURE;
    }
    let mut arguments = Arguments::from_args();
    // Two at once: the clients of one are many threads already.
    arguments.test_threads = arguments.test_threads.or(Some(2));
    libtest_mimic::run(&arguments, SEEDS.into_iter().map(trial).collect()).exit_code()
}

fn trial(seed: u64) -> Trial {
    Trial::test(format!("seed-{seed}"), move || {
        let options = Options {
            binary: env!("CARGO_BIN_EXE_tidegate").into(),
            program: reachable(&std::env::current_exe()?),
            waves: WAVES,
            without: Vec::new(),
            clients: usize::MAX,
        };
        let report = run_seed(&options, seed).map_err(Failed::from)?;
        if report.findings.is_empty() {
            return Ok(());
        }
        Err(format!("{report}\nto repeat it: cargo xtask random --seed {seed} --waves {WAVES}").into())
    })
}
