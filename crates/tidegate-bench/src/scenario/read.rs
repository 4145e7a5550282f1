//! A scenario file to a [`Scenario`], or to all that is wrong with it: every mistake at once, each with its place.

use super::clock::{Clock, Distribution};
use super::data::{DataSet, Draw, read_csv};
use super::html::Selector;
use super::language::{LANGUAGE, OUTERMOST};
use super::template::{Template, TemplateError};
use super::{
    Body, Client, Counted, Expect, Operation, Part, Pick, Scenario, Step, Take, TakeFrom, USER, Upload,
};
use crate::quantity::show_bytes;
use crate::random::Random;
use crate::target::Url;
use regex::bytes::RegexBuilder;
use scripts::Known;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tidegate_config::language::{Contents, Item, read};
use tidegate_config::{Diagnostic, Environment, Severity, Source, nearest};

mod configured;
mod loads;
mod mixes;
mod scripts;
mod steps;
mod systems;

/// What became of a file.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// `None` where there is a mistake.
    pub scenario: Option<Scenario>,
    /// Mistakes and warnings, in the order of the file.
    pub diagnostics: Vec<Diagnostic>,
}

impl Loaded {
    /// All diagnostics as text, a blank line between two.
    pub fn render(&self, color: bool) -> String {
        self.diagnostics.iter().map(|found| found.render(color)).collect::<Vec<_>>().join("\n")
    }
}

/// Most variables of a scenario: users hold a place for each.
const VARIABLES: usize = 1_000;
/// Most bytes of a file of data.
const DATA_SIZE: u64 = 256 << 20;

/// Reads a file. `target` takes the place of the one that stands there.
///
/// # Errors
/// The file cannot be read at all.
pub fn load(path: &Path, target: Option<&str>, environment: &dyn Environment) -> std::io::Result<Loaded> {
    let bytes = std::fs::read(path)?;
    let source = Source::from_bytes(&path.display().to_string(), &bytes);
    let folder = path.parent().unwrap_or(Path::new("."));
    let name = path.file_stem().map(|name| name.to_string_lossy().into_owned());
    Ok(lower(&source, folder, &name.unwrap_or_default(), target, (environment, true)))
}

/// Reads a text; relative paths count from `folder`.
pub fn load_text(name: &str, text: &str, folder: &Path, environment: &dyn Environment) -> Loaded {
    lower(&Source::new(name, text), folder, name, None, (environment, true))
}

/// Reads a text as another process has it, without its systems: they are that process's. `target` takes the place of the one that
/// stands there.
pub fn load_for(
    name: &str,
    text: &[u8],
    folder: &Path,
    target: Option<&str>,
    environment: &dyn Environment,
) -> Loaded {
    lower(&Source::from_bytes(name, text), folder, name, target, (environment, false))
}

fn lower(
    source: &Source,
    folder: &Path,
    name: &str,
    target: Option<&str>,
    (environment, has_systems): (&dyn Environment, bool),
) -> Loaded {
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let mut contents = read(&LANGUAGE, source, OUTERMOST, &folder, environment);
    let items = std::mem::take(&mut contents.items);
    let mut reader = Reader {
        diagnostics: std::mem::take(&mut contents.diagnostics),
        contents,
        variables: vec![USER.to_owned()],
        unknown_data: Vec::new(),
        seed: 0,
        made_up: 0,
        had_mistakes: false,
        target: None,
        script: Known::default(),
    };
    reader.had_mistakes = reader.has_errors();
    let scenario = reader.scenario(&items, name, target, has_systems.then_some(environment));
    let mut diagnostics = reader.diagnostics;
    let place = |found: &Diagnostic| found.span.as_ref().map_or(0, |(_, range)| range.start);
    diagnostics.sort_by_key(place);
    let is_sound = !diagnostics.iter().any(Diagnostic::is_error);
    Loaded { scenario: scenario.filter(|_| is_sound), diagnostics }
}

/// Bytes of the content of all uploads at most: they are in memory throughout a run.
const MADE_UP: usize = 256 << 20;

/// Reads items, and gathers what is wrong with them.
struct Reader {
    diagnostics: Vec<Diagnostic>,
    /// What was read, without its items and what was wrong with them.
    contents: Contents,
    variables: Vec<String>,
    /// Names of `data` with a mistake: which variables they would fill nobody knows.
    unknown_data: Vec<String>,
    /// For made-up content.
    seed: u64,
    /// Bytes of it so far.
    made_up: usize,
    /// The form or a type was wrong already: what seems to be missing may be what is broken.
    had_mistakes: bool,
    /// The server, where it could be read.
    target: Option<Url>,
    /// What may be called.
    script: Known,
}

impl Reader {
    fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(Diagnostic::is_error)
    }

    fn error(&mut self, diagnostic: Diagnostic, help: impl Into<String>) {
        self.diagnostics.push(diagnostic.help(help));
    }

    /// The same of what can be run, but hardly as meant.
    fn warn(&mut self, diagnostic: Diagnostic, help: impl Into<String>) {
        self.diagnostics.push(Diagnostic { severity: Severity::Warning, ..diagnostic }.help(help));
    }

    /// One of these must stand and none does.
    fn missing(&mut self, names: &[&str], message: &str, help: &str) {
        if !self.contents.may_have_lost(names) {
            self.error(Diagnostic::error(message), help);
        }
    }

    /// Without an environment systems are left out.
    fn scenario(
        &mut self,
        items: &[Item],
        name: &str,
        target: Option<&str>,
        environment: Option<&dyn Environment>,
    ) -> Option<Scenario> {
        let first = |name: &str| items.iter().find(|item| item.name() == name);
        self.target = self.target(first("target"), target);
        let phases = self.phases(items);
        let clock = self.clock(items, true);
        let client = first("client").map_or(Client::DEFAULT, |item| self.client(item));
        // Names come before what uses them, wherever they stand.
        let data = self.data(items);
        self.name_variables(items);
        let script = self.script(first("script"));
        let (operations, mix) = self.operations(items);
        let load = self.load(items, phases.as_ref(), mix.as_ref());
        let systems = environment.map_or_else(Vec::new, |environment| self.systems(items, environment));
        let name = first("scenario").and_then(|item| item.text(0)).unwrap_or_else(|| name.to_owned());
        // What comes at a rate is held up by nothing.
        let is_open = items.iter().any(|item| item.name() == "rate");
        let no_pause = Clock::Think(Distribution::Fixed(Duration::ZERO));
        let Some(clock) = clock.or(is_open.then_some(no_pause)) else {
            self.missing(
                &["cycle", "think", "rate"],
                "nothing says when operations start",
                "write `cycle exponential mean=\"5s\" max=\"25s\"`, or `think fixed \"1s\"`",
            );
            return None;
        };
        let variables = std::mem::take(&mut self.variables);
        let scenario = Scenario {
            name,
            target: self.target.take()?,
            load: load?,
            phases: phases?,
            clock,
            client,
            mix: mix?,
            operations,
            variables,
            data,
            systems,
            script,
        };
        // What seems to be missing may be what a mistake has cost.
        if !self.had_mistakes && !self.has_errors() {
            self.warn_of_the_absent(items, &scenario);
            self.warn_of_short_visits(items, &scenario);
        }
        Some(scenario)
    }

    fn target(&mut self, item: Option<&Item>, given: Option<&str>) -> Option<Url> {
        const HELP: &str =
            "write scheme, host and port, `target \"http://127.0.0.1:8080\"`; paths stand in the steps";
        let (text, place) = match (given, item) {
            (Some(given), _) => (given.to_owned(), None),
            (None, Some(item)) => (item.text(0)?, Some(item)),
            (None, None) => {
                self.missing(
                    &["target"],
                    "no target is named",
                    "write `target \"http://127.0.0.1:8080\"`, or give --target",
                );
                return None;
            }
        };
        let found = Url::parse(&text).map_err(|fault| fault.to_string());
        let found = found.and_then(|url| match url.request_target.as_str() {
            "/" => Ok(url),
            path => Err(format!("{text}: the path {path} stands there")),
        });
        let at = |fault: String| match place {
            Some(item) => item.error_at(0, format!("`target`: {fault}")),
            None => Diagnostic::error(format!("--target: {fault}")),
        };
        found.map_err(|fault| self.error(at(fault), HELP)).ok()
    }

    fn client(&mut self, item: &Item) -> Client {
        let is_h2 = item.text(0).is_some();
        let (connections, streams) = (item.number_of("connections"), item.number_of("streams"));
        if is_h2 && connections.is_some() {
            let help = "take it out; `streams=` says how many requests are under way at once";
            self.error(item.error_of("connections", "with `h2` each user has one connection"), help);
        } else if !is_h2 && streams.is_some() && !item.has_faults() {
            let help = "write `client h2 streams=50`, or take it out: HTTP/1.1 has `connections=`";
            self.error(item.error_of("streams", "`streams=` goes with `h2` alone"), help);
        }
        Client {
            connections: match connections {
                _ if is_h2 => 1,
                count => count.map_or(Client::DEFAULT.connections, |count| count.min(255) as u8),
            },
            streams: is_h2.then(|| streams.map_or(Client::STREAMS, |count| count as u32)),
            cold: item.number_of("cold").map_or(0.0, |millionths| millionths as f64 / 1e6),
            timeout: item.duration_of("timeout").unwrap_or(Client::DEFAULT.timeout),
            answer_timeout: item.duration_of("answer-timeout").unwrap_or(Client::DEFAULT.answer_timeout),
        }
    }

    /// The clock among these items.
    fn clock(&mut self, items: &[Item], is_outermost: bool) -> Option<Clock> {
        let mut clocks = items.iter().filter(|item| matches!(item.name(), "cycle" | "think"));
        let item = clocks.next()?;
        // A second of the same has been said.
        if let Some(second) = clocks.find(|second| second.name() != item.name()) {
            let other = item.name();
            let help = format!("`{other}` stands already; a user has a cycle time or a think time, not both");
            self.error(second.error(format!("`{}` stands beside `{other}`", second.name())), help);
        }
        let distribution = self.distribution(item);
        // What is wrong with it has been said.
        let distribution = distribution.or(is_outermost.then_some(Distribution::Fixed(Duration::ZERO)))?;
        Some(if item.name() == "cycle" { Clock::Cycle(distribution) } else { Clock::Think(distribution) })
    }

    fn distribution(&mut self, item: &Item) -> Option<Distribution> {
        let kind = item.text(0)?;
        let (time, min, max, mean) =
            (item.duration(1), item.duration_of("min"), item.duration_of("max"), item.duration_of("mean"));
        let name = item.name();
        let found = match (kind.as_str(), time, min, max, mean) {
            ("fixed", Some(time), None, None, None) => Some(Distribution::Fixed(time)),
            ("uniform", None, min, Some(max), None) => {
                Some(Distribution::Uniform(min.unwrap_or_default(), max))
                    .filter(|_| min.unwrap_or_default() <= max)
            }
            ("exponential", None, None, max, Some(mean)) => {
                let most = max.unwrap_or(mean.saturating_mul(1_000));
                Some(Distribution::Exponential { mean, most }).filter(|_| mean <= most)
            }
            _ => None,
        };
        if found.is_none() && !item.has_faults() {
            let help = match kind.as_str() {
                "fixed" => format!("write `{name} fixed \"2s\"`"),
                "uniform" => {
                    format!("write `{name} uniform min=\"2s\" max=\"8s\"`, with `min` not above `max`")
                }
                _ => {
                    format!("write `{name} exponential mean=\"5s\" max=\"25s\"`, with `mean` not above `max`")
                }
            };
            self.error(item.error(format!("`{name} {kind}` does not have the values that it needs")), help);
        }
        found
    }

    // ------------------------------------------------------------ variables

    fn place(&self, name: &str) -> Option<u16> {
        self.variables.iter().position(|known| known == name).and_then(|place| u16::try_from(place).ok())
    }

    /// The place of a variable, a new one where it has none.
    fn add_variable(&mut self, item: &Item, name: &str) -> u16 {
        if let Some(place) = self.place(name) {
            return place;
        }
        if self.variables.len() >= VARIABLES {
            self.error(item.error(format!("there are more than {VARIABLES} variables")), "take fewer values");
            return 0;
        }
        self.variables.push(name.to_owned());
        (self.variables.len() - 1) as u16
    }

    /// Knows what every `take` and `call` fills, so that its order in the file does not matter.
    fn name_variables(&mut self, items: &[Item]) {
        for item in items {
            let names = item.all_texts();
            let named = match item.name() {
                "take" => 0..1,
                "call" => 1..names.len(),
                _ => 0..0,
            };
            for (place, name) in names.iter().enumerate().filter(|(place, _)| named.contains(place)) {
                if name == USER {
                    let message = format!("`{USER}` is the number of the user");
                    self.error(item.error_at(place, message), "take it under another name");
                }
                self.add_variable(item, name);
            }
            self.name_variables(item.block());
        }
    }

    /// A template, of an argument or of a property.
    fn template(&mut self, item: &Item, at: Result<usize, &str>, text: &str) -> Template {
        // What a mistake in its `data` has cost is no mistake of its own: any place will do.
        let place = |name: &str| self.place(name).or(self.may_be_of_data(name).then_some(0));
        let fault = match Template::parse(text, place) {
            Ok(template) => return template,
            Err(fault) => fault,
        };
        let diagnostic = match at {
            Ok(argument) => item.error_at(argument, fault.to_string()),
            Err(property) => item.error_of(property, fault.to_string()),
        };
        let help = match &fault {
            TemplateError::Unknown(name) => match nearest(name, self.variables.iter().map(String::as_str)) {
                Some(near) => format!("did you mean `{{{near}}}`?"),
                None => {
                    "a `take`, a `call` or a `data` of this name fills it; `{{` stands for the bracket itself"
                        .to_owned()
                }
            },
            TemplateError::Open => "close it with `}`".to_owned(),
        };
        self.error(diagnostic, help);
        Template::default()
    }

    /// Whether a `data` with a mistake may have been meant to fill this variable.
    fn may_be_of_data(&self, variable: &str) -> bool {
        let name = variable.split_once('.').map_or(variable, |(name, _)| name);
        self.unknown_data.iter().any(|unknown| unknown == name)
    }

    fn data(&mut self, items: &[Item]) -> Vec<DataSet> {
        let mut sets: Vec<DataSet> = Vec::new();
        for item in items.iter().filter(|item| item.name() == "data") {
            let Some(name) = item.text(0) else { continue };
            if sets.iter().any(|known| known.name == name) || name == USER {
                self.error(
                    item.error_at(0, format!("`data {name}` is there already")),
                    "give it another name",
                );
                self.unknown_data.push(name);
                continue;
            }
            let values: Vec<String> = item.all_texts().into_iter().skip(1).collect();
            let (columns, rows) = match (item.path_of("file"), values.is_empty()) {
                (None, false) => (vec![name.clone()], values.into_iter().map(|value| vec![value]).collect()),
                (Some(path), true) => match text_of_file(&path, DATA_SIZE).and_then(|text| read_csv(&text)) {
                    Ok((columns, rows)) => {
                        (columns.iter().map(|column| format!("{name}.{column}")).collect(), rows)
                    }
                    Err(fault) => {
                        let message = format!("`data`: {} {fault}", path.display());
                        let help = match path.is_file() {
                            true => "the first line names the columns, and each line has a value for each",
                            false => {
                                "name a file of comma-separated values; its path counts from the scenario"
                            }
                        };
                        self.error(item.error_of("file", message), help);
                        self.unknown_data.push(name);
                        continue;
                    }
                },
                _ => {
                    if !item.has_faults() {
                        let help = "write `data tag \"music\" \"art\"`, or `data people file=\"people.csv\"`";
                        self.error(item.error("`data` needs values or a file, one of the two"), help);
                    }
                    self.unknown_data.push(name);
                    continue;
                }
            };
            let variables = columns.iter().map(|column| self.add_variable(item, column)).collect();
            let draw = match item.text_of("pick").as_deref() {
                Some("sequence") => Draw::Sequence,
                Some("user") => Draw::User,
                _ => Draw::Random,
            };
            sets.push(DataSet { name, variables, rows: Arc::new(rows), draw });
        }
        sets
    }

    /// Content that is made up, the same for the same scenario; of all of it no more than [`MADE_UP`].
    fn made_up(&mut self, item: &Item, size: usize) -> Arc<[u8]> {
        self.seed += 1;
        let sum = self.made_up.saturating_add(size);
        if sum > MADE_UP {
            let message = format!("the files of all `upload` come to more than {} MiB", MADE_UP >> 20);
            self.error(
                item.error_of("size", message),
                "they are held in memory during the run; lower `size=`",
            );
            return Arc::default();
        }
        self.made_up = sum;
        let mut random = Random::new(self.seed, 77);
        let mut content = Vec::with_capacity(size + 8);
        while content.len() < size {
            content.extend_from_slice(&random.next().to_le_bytes());
        }
        content.truncate(size);
        content.into()
    }
}

/// The text of a file that a scenario names, of a regular one alone: a pipe or a device may never end. The error is a sentence
/// without its beginning.
fn text_of_file(path: &Path, most: u64) -> Result<String, String> {
    let cannot = |error: std::io::Error| format!("cannot be read: {error}");
    let about = std::fs::metadata(path).map_err(cannot)?;
    if !about.is_file() {
        return Err("is no file".to_owned());
    }
    if about.len() > most {
        return Err(format!("is larger than {}", show_bytes(most as f64)));
    }
    std::fs::read_to_string(path).map_err(cannot)
}

impl Client {
    /// Of who says nothing.
    const DEFAULT: Client = Client {
        connections: 6,
        streams: None,
        cold: 0.0,
        timeout: Duration::from_secs(30),
        answer_timeout: Duration::from_secs(300),
    };

    /// Requests at once on a connection of HTTP/2: what servers should take at least (RFC 9113 section 6.5.2).
    const STREAMS: u32 = 100;
}

#[cfg(test)]
mod tests;
