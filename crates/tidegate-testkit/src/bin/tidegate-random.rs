//! `tidegate-random`: the random client as a command, for hours or for one seed.
//!
//! `cargo xtask random` builds the server and calls it. It ends at the first seed that finds something, with exit
//! code 1 and all that is needed to see it again.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use tidegate_testkit::random::{Invariant, Options, run_application, run_seed};
use tidegate_testkit::reachable;

const USAGE: &str = "\
usage: tidegate-random --binary TIDEGATE [--seed N] [--seeds N] [--minutes N] [--waves N] [--clients N]
                       [--without INVARIANT]... [--keep-going]

Runs one round for each seed from --seed on (1), until --seeds rounds are done (1) or --minutes are over.
";

struct Arguments {
    options: Options,
    first: u64,
    seeds: Option<u64>,
    time: Option<Duration>,
    keeps_going: bool,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [word, protocol] = &words[..]
        && word == "application"
    {
        let problem = run_application(protocol);
        eprintln!("{problem:?}");
        return ExitCode::FAILURE;
    }
    let arguments = match parse(words.into_iter()) {
        Ok(arguments) => arguments,
        Err(problem) => {
            eprint!("{problem}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let began = Instant::now();
    let (mut rounds, mut failed) = (0, Vec::new());
    for seed in arguments.first.. {
        if arguments.seeds.is_some_and(|seeds| rounds >= seeds)
            || arguments.time.is_some_and(|time| began.elapsed() >= time)
        {
            break;
        }
        rounds += 1;
        match run_seed(&arguments.options, seed) {
            Ok(report) => {
                println!("{report}");
                if !report.findings.is_empty() {
                    println!(
                        "to repeat it: cargo xtask random --seed {seed} --waves {}",
                        arguments.options.waves
                    );
                    failed.push(seed);
                }
            }
            Err(problem) => {
                println!("seed {seed} could not be run: {problem}");
                failed.push(seed);
            }
        }
        if !failed.is_empty() && !arguments.keeps_going {
            break;
        }
    }
    println!(
        "{rounds} seeds in {:.1} s, {} found something: {failed:?}",
        began.elapsed().as_secs_f64(),
        failed.len()
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let (mut binary, mut first, mut seeds, mut time, mut keeps_going) = (None, 1, None, None, false);
    let (mut waves, mut clients, mut without) = (6, usize::MAX, Vec::new());
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} wants a value"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("`{text}` is no number"));
        match word.as_str() {
            "--binary" => binary = Some(PathBuf::from(value()?)),
            "--seed" => first = number(value()?)?,
            "--seeds" => seeds = Some(number(value()?)?),
            "--minutes" => time = Some(Duration::from_secs(60 * number(value()?)?)),
            "--waves" => waves = number(value()?)?,
            "--clients" => clients = number(value()?)? as usize,
            "--keep-going" => keeps_going = true,
            "--without" => {
                let name = value()?;
                let known = Invariant::ALL.into_iter().find(|invariant| invariant.name() == name);
                without.push(known.ok_or_else(|| format!("`{name}` is no invariant"))?);
            }
            _ => return Err(format!("`{word}` is not known")),
        }
    }
    let binary = binary.ok_or("--binary says what is to be tried")?;
    let binary = binary.canonicalize().map_err(|error| format!("{}: {error}", binary.display()))?;
    let program = reachable(&std::env::current_exe().map_err(|error| error.to_string())?);
    if seeds.is_none() && time.is_none() {
        seeds = Some(1);
    }
    Ok(Arguments {
        options: Options { binary, program, waves, without, clients },
        first,
        seeds,
        time,
        keeps_going,
    })
}
