//! Servers under load in turn, round after round, and the table that comes of it.
//!
//! Used by `tls`, `h2`, `gateway` and `cgi`. All servers run at once and one is under load at a time; ratios are taken
//! within a round, so what changes on the machine meanwhile meets all of them alike. The first server is Tidegate.

use anyhow::{Context, Result};

use super::cpu;
use super::report::{Spread, Table, grouped, verdict};

/// How a bench goes about it: the arguments that all have that load servers in turn.
#[derive(Debug, Clone, clap::Args)]
pub struct Course {
    /// Rounds; the median of them is shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Seconds under load, for each server and round
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub seconds: u32,
    /// Use the release binary that is there
    #[arg(long)]
    pub no_build: bool,
}

/// One server under load for a while.
#[derive(Debug)]
pub struct Sample {
    /// CPU microseconds of the server per request.
    pub cost: f64,
    /// Instructions of the server per request, those of the kernel for it included, where the processor counts them.
    pub instructions: Option<f64>,
    /// Requests per second.
    pub rate: f64,
    /// Answers that were not what was asked for, and connections that failed.
    pub errors: u64,
    /// Why the figure is not about what it should be about.
    pub doubt: Option<String>,
}

/// What a server of a run is called that looks at nothing: what it costs is the kernel's share of all others.
pub const FLOOR: &str = "canned floor";

/// One server of a run, with what came of each round. The first of a run is Tidegate.
#[derive(Debug)]
pub struct Series {
    pub server: String,
    pub samples: Vec<Sample>,
}

impl Sample {
    /// Of a load of so many requests.
    pub fn of(used: cpu::Used, requests: u64, rate: f64, errors: u64) -> Self {
        let cost = used.time.as_secs_f64() * 1e6 / requests as f64;
        let instructions = used.instructions.map(|count| count / requests as f64);
        Self { cost, instructions, rate, errors, doubt: None }
    }
}

/// Loads each server in turn, round after round, after a second that does not count; one list of samples for each
/// server.
pub fn measure<S>(
    servers: &[S],
    course: &Course,
    load: impl Fn(&S, u32) -> Result<Sample>,
) -> Result<Vec<Vec<Sample>>> {
    for server in servers {
        load(server, 1)?;
    }
    let mut samples: Vec<Vec<Sample>> = servers.iter().map(|_| Vec::new()).collect();
    for round in 0..course.rounds {
        let mut turn: Vec<_> = servers.iter().zip(&mut samples).collect();
        // Whoever comes behind the same other each time would have its warm caches, or its heat.
        if round % 2 == 1 {
            turn.reverse();
        }
        for (server, samples) in turn {
            samples.push(load(server, course.seconds)?);
        }
    }
    Ok(samples)
}

/// A row for each server: its name, the most that Tidegate may cost in parts of its cost, its samples.
pub fn table(unit: &str, rows: &[(&str, Option<f64>, Vec<Sample>)]) -> Result<Table<6>> {
    let mut table = Table::new(["server", unit, "per second", "tidegate / it", "budget", "errors"]);
    let (_, _, ours) = rows.first().context("Tidegate comes first")?;
    for (index, (name, budget, theirs)) in rows.iter().enumerate() {
        let ratio = Spread::of(ours.iter().zip(theirs).map(|(ours, theirs)| ours.cost / theirs.cost));
        let ratio = ratio.filter(|_| index > 0);
        let cost = Spread::of(theirs.iter().map(|sample| sample.cost)).context("no round was measured")?;
        let rate = Spread::of(theirs.iter().map(|sample| sample.rate)).context("no round was measured")?;
        let errors: u64 = theirs.iter().map(|sample| sample.errors).sum();
        let doubt = theirs.iter().find_map(|sample| sample.doubt.as_ref());
        table.row([
            (*name).to_owned(),
            cost.to_string(),
            grouped(rate.median),
            ratio.map_or_else(String::new, |ratio| ratio.to_string()),
            ratio.zip(*budget).map_or_else(String::new, |(ratio, budget)| verdict(ratio.median, budget)),
            match (errors, doubt) {
                (0, None) => "0".to_owned(),
                (0, Some(doubt)) => format!("{doubt}: ROW IS VOID"),
                (errors, _) => format!("{errors} ERRORS: ROW IS VOID"),
            },
        ]);
    }
    Ok(table)
}

/// The same where requests per second count: a budget is the least that Tidegate may answer in parts of what the
/// other does, and a ratio over 1 is for Tidegate.
pub fn rate_table(unit: &str, rows: &[(&str, Option<f64>, Vec<Sample>)]) -> Result<Table<6>> {
    let mut table =
        Table::new(["server", "requests/s", unit, "tidegate / it, requests/s", "budget", "errors"]);
    let (_, _, ours) = rows.first().context("Tidegate comes first")?;
    for (index, (name, budget, theirs)) in rows.iter().enumerate() {
        let ratio = Spread::of(ours.iter().zip(theirs).map(|(ours, theirs)| ours.rate / theirs.rate));
        let ratio = ratio.filter(|_| index > 0);
        let cost = Spread::of(theirs.iter().map(|sample| sample.cost)).context("no round was measured")?;
        let rate = Spread::of(theirs.iter().map(|sample| sample.rate)).context("no round was measured")?;
        let errors: u64 = theirs.iter().map(|sample| sample.errors).sum();
        table.row([
            (*name).to_owned(),
            rate.to_string(),
            cost.to_string(),
            ratio.map_or_else(String::new, |ratio| ratio.to_string()),
            ratio.zip(*budget).map_or_else(String::new, |(ratio, budget)| least(ratio.median, budget)),
            if errors == 0 { "0".to_owned() } else { format!("{errors} ERRORS: ROW IS VOID") },
        ]);
    }
    Ok(table)
}

/// Says whether a figure reaches what it has to; what the table shows decides.
fn least(figure: f64, budget: f64) -> String {
    let reaches = (figure * 100.0).round() >= (budget * 100.0).round();
    format!("≥ {budget} {}", if reaches { "ok" } else { "MISSED" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(cost: f64) -> Sample {
        Sample { cost, instructions: None, rate: 1000.0, errors: 0, doubt: None }
    }

    #[test]
    fn a_second_that_does_not_count_and_then_rounds() {
        let calls = std::cell::RefCell::new(Vec::new());
        let samples =
            measure(&["a", "b"], &Course { rounds: 2, seconds: 5, no_build: true }, |server, seconds| {
                calls.borrow_mut().push((*server, seconds));
                Ok(sample(1.0))
            });
        assert_eq!(samples.unwrap().iter().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
        assert_eq!(calls.into_inner(), [("a", 1), ("b", 1), ("a", 5), ("b", 5), ("b", 5), ("a", 5)]);
    }

    #[test]
    fn rates_and_what_they_have_to_reach() {
        let rate = |rate| Sample { rate, ..sample(1.0) };
        let mut failed = rate(500.0);
        failed.errors = 1;
        let rows = [
            ("tidegate", None, vec![rate(1200.0), rate(1400.0)]),
            ("reached", Some(1.2), vec![rate(1000.0), rate(1000.0)]),
            ("missed", Some(1.2), vec![rate(1100.0), rate(1300.0)]),
            ("broken", Some(1.2), vec![failed, rate(500.0)]),
        ];
        let text = rate_table("CPU µs", &rows).unwrap().to_string();
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert!(lines[1].contains("1.30 [1.20–1.40]") && lines[1].contains("≥ 1.2 ok"), "{text}");
        assert!(lines[2].contains("≥ 1.2 MISSED"), "{text}");
        assert!(lines[3].contains("1 ERRORS: ROW IS VOID"), "{text}");
        assert!(rate_table("CPU µs", &[]).is_err());
    }

    #[test]
    fn ratios_budgets_and_void_rows() {
        let mut doubtful = sample(4.0);
        doubtful.doubt = Some("http/1.1".to_owned());
        let mut failed = sample(4.0);
        failed.errors = 3;
        let rows = [
            ("tidegate", None, vec![sample(2.0), sample(6.0)]),
            ("quick", Some(0.4), vec![sample(4.0), sample(12.0)]),
            ("other", None, vec![doubtful, sample(12.0)]),
            ("broken", Some(1.0), vec![failed, sample(12.0)]),
        ];
        let text = table("µs", &rows).unwrap().to_string();
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert!(!lines[0].contains("0.50"), "{text}");
        assert!(lines[1].contains("0.50 [0.50–0.50]") && lines[1].contains("≤ 0.4 MISSED"), "{text}");
        assert!(lines[2].contains("http/1.1: ROW IS VOID"), "{text}");
        assert!(lines[3].contains("3 ERRORS: ROW IS VOID") && lines[3].contains("≤ 1 ok"), "{text}");
        assert!(table("µs", &[]).is_err());
    }
}
