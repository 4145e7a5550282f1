//! Development tasks of Tidegate: `cargo xtask TASK`.
//!
//! The entry point: parses the arguments and hands over to the file of the task. Called by the Makefile,
//! by `.ci/run` and by hand. It depends on no crate of the product, so it builds when they do not.

mod bench;
mod book;
mod console;
mod first_hour;
mod fuzz;
mod miri;
mod package;
mod packages;
mod programs;
mod random;
mod site;
mod test;
mod tidy;
mod tools;
mod workspace;

use std::process::ExitCode;

use clap::Parser;

/// Checks, benches, fuzzing and the sample site of Tidegate.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", disable_help_subcommand = true)]
enum Task {
    /// Run every check, as `make test` does; the last line counts the steps
    Test(test::Arguments),
    /// Run the tests of all packages, several programs at once
    Tests(programs::Arguments),
    /// Check the rules of the house: direction of dependencies, unsafe, headers, licences
    Tidy,
    /// Measure: static files beside nginx, lighttpd and Apache; idle connections; instructions
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Fuzz the parsers for a while, one target or all
    Fuzz(fuzz::Arguments),
    /// Run the model test of the executor under Miri, which wants a nightly toolchain
    Miri,
    /// Random settings, applications and clients against the server, for minutes or hours
    Random(random::Arguments),
    /// Install through apt what tests and benches need
    Tools(tools::Arguments),
    /// Build the console (console/) where Node.js is, for the program to take it in
    Console(console::Arguments),
    /// Make the generated files of examples/site
    Site,
    /// Build the program as packages carry it: all crates as one, debug lines in a file beside it
    Package,
    /// Build the documents as a site with a search (mdBook), into target/book
    Book,
    /// Make what people install, into target/packages: the package of Debian, the container image, notices
    Packages(packages::Arguments),
    /// Copy program, service, manual, completions and documents to where they belong
    Install(packages::InstallArguments),
    /// Install, upgrade under load and remove the packages in a copy of this system; takes root
    PackageTest(packages::TestArguments),
    /// Run the program for 64-bit ARM under qemu: one that is built for it, or those in packages
    Aarch64(packages::aarch64::Arguments),
    /// Play docs/first-hour.md on a fresh Debian 12 in a folder, with systemd; takes root and debootstrap
    FirstHour(first_hour::Arguments),
    /// The floor of the static bench: a fixed answer to everything
    #[command(hide = true)]
    Canned(bench::canned::Arguments),
    /// The floor of the gateway bench: a fixed request for everything, and a fixed answer
    #[command(hide = true)]
    Relay(bench::relay::Arguments),
    /// The requests of the profile
    #[command(hide = true)]
    Mix,
    /// The floor of the generator bench: the same request over and over
    #[command(hide = true)]
    Bare(bench::bare::Arguments),
    /// The server of known delays of the generator bench
    #[command(hide = true)]
    Scripted(bench::scripted::Arguments),
    /// The application of the gateway bench
    #[command(hide = true)]
    Responder(bench::responder::Arguments),
}

fn main() -> ExitCode {
    match run(Task::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The causes suffice; where in the task it happened is nobody's concern.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the same task in an optimised build of this program: the floor that servers are measured against is part of it. All
/// other tasks wait for others, and are built in a fifth of the time without.
fn optimised() -> anyhow::Result<()> {
    let mut command = workspace::cargo();
    command.args(["run", "--quiet", "--release", "--package", "xtask", "--"]);
    workspace::run(command.args(std::env::args_os().skip(1)))
}

fn run(task: Task) -> anyhow::Result<()> {
    match task {
        Task::Test(arguments) => test::run(&arguments),
        Task::Tests(arguments) => programs::run(&arguments),
        Task::Tidy => tidy::run(),
        Task::Bench(_) if cfg!(debug_assertions) => optimised(),
        Task::Bench(bench) => bench::run(&bench),
        Task::Fuzz(arguments) => fuzz::run(&arguments),
        Task::Miri => miri::run(),
        Task::Random(arguments) => random::run(&arguments),
        Task::Tools(arguments) => tools::run(&arguments),
        Task::Console(arguments) => console::run(&arguments),
        Task::Site => site::run(),
        Task::Package => package::run(),
        Task::Book => book::run(),
        Task::Packages(arguments) => packages::run(&arguments),
        Task::Install(arguments) => packages::install(&arguments),
        Task::PackageTest(arguments) => packages::test(&arguments),
        Task::Aarch64(arguments) => packages::aarch64::run(&arguments),
        Task::FirstHour(arguments) => first_hour::run(&arguments),
        Task::Canned(arguments) => bench::canned::run(&arguments),
        Task::Relay(arguments) => bench::relay::run(&arguments),
        Task::Mix => bench::mix::run(),
        Task::Bare(arguments) => bench::bare::run(&arguments),
        Task::Scripted(arguments) => bench::scripted::run(&arguments),
        Task::Responder(arguments) => bench::responder::run(&arguments),
    }
}
