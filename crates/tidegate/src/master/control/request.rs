//! What an operator asks of the server: a request, and the line that it is on the control socket.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidegate_config::settings::Level;
use tidegate_core::selection::Selection;
use tidegate_modules::cache_desk::CacheOrder;
use tidegate_modules::gateway::balance::groups::{SteeringOrder, Way};
use tidegate_modules::status::{Format, HistoryRange};

/// What an operator asks of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// A report.
    Status(Format),
    /// A question to every worker about its file cache: `report`, `list`, `start`, `stop`, `restart`, each
    /// also with ` json` behind it.
    Cache(String),
    /// What lies in the stores of responses, what of it is to go, how they do. The answer is JSON.
    Stores(CacheOrder),
    /// Something beside the report, as text or JSON.
    Show(Subject, Format),
    /// One of those under way is to end.
    Cancel { id: String, is_rehearsal: bool },
    /// Those of a selection are to end; `is_rehearsal` only says which those are.
    CancelAll { selection: Selection, is_rehearsal: bool },
    /// What one who watches requests end has not been told yet; without a selection it watches no longer.
    Tail { name: String, selection: Option<Selection> },
    /// Who is banned.
    Bans,
    /// Somebody is banned no longer.
    Lift(IpAddr),
    /// Nobody is banned any longer.
    LiftAll,
    /// Take up new settings.
    Reload {
        /// Whether names that the files no longer hold may go.
        allows_loss: bool,
        /// The settings file that the operator means; `None` is the server's, whatever it is.
        config: Option<PathBuf>,
    },
    /// End; `now` cuts what is in flight.
    Stop {
        /// Whether to wait for nothing.
        now: bool,
        /// The settings file of the server that is meant.
        config: Option<PathBuf>,
    },
    /// What a member of an upstream group is to get.
    Steer {
        /// The name of its group.
        group: String,
        /// The member as written.
        member: String,
        /// What is said of it.
        order: SteeringOrder,
    },
    /// Replace the processes of a pool.
    RestartPool(String),
    /// Open the logs anew, after a rotation.
    ReopenLogs,
    /// What the error log takes until the next reload.
    LogLevel(Level),
    /// Nothing: whether the server has its settings from this file.
    Of(PathBuf),
    /// Hand over to a new program.
    Upgrade {
        /// `None` is the one that was started.
        binary: Option<PathBuf>,
        /// Whether names that the files no longer hold may go.
        allows_loss: bool,
    },
}

impl Request {
    /// How long the next bytes of its answer are waited for; `None`: as long as it takes, since it may wait for clients.
    pub fn patience(&self) -> Option<Duration> {
        match self {
            Request::Stop { .. }
            | Request::Upgrade { .. }
            | Request::RestartPool(_)
            | Request::Tail { .. } => None,
            Request::Reload { .. } => Some(Duration::from_secs(120)),
            _ => Some(Duration::from_secs(60)),
        }
    }

    /// Whether the answer is JSON.
    pub fn is_for_programs(&self) -> bool {
        match self {
            Request::Status(format) | Request::Show(_, format) => *format == Format::Json,
            Request::Cache(question) => question.ends_with(" json"),
            Request::Stores(_) => true,
            _ => false,
        }
    }

    /// As a line, without its end.
    pub fn to_line(&self) -> String {
        match self {
            Request::Status(Format::Text | Format::Html) => "status text".into(),
            Request::Status(Format::Json) => "status json".into(),
            Request::Status(Format::Xml) => "status xml".into(),
            Request::Status(Format::Prometheus | Format::Protobuf) => "status prometheus".into(),
            Request::Status(Format::OpenMetrics) => "status openmetrics".into(),
            Request::Cache(question) => format!("cache {question}").trim_end().into(),
            // JSON of one line: it escapes line ends.
            Request::Stores(order) => format!("stores {}", serde_json::to_string(order).unwrap_or_default()),
            Request::Show(subject, format) => {
                let form = if *format == Format::Json { "json" } else { "text" };
                match subject {
                    Subject::History(range) => format!("history {} {form}", range.name()),
                    subject => format!("{} {form}", subject.word()),
                }
            }
            Request::Cancel { id, is_rehearsal: false } => format!("cancel {id}"),
            Request::Cancel { id, is_rehearsal: true } => format!("cancel-dry {id}"),
            Request::CancelAll { selection, is_rehearsal } => {
                format!("cancel-all {} {selection}", if *is_rehearsal { "dry" } else { "now" })
            }
            Request::Tail { name, selection: Some(selection) } => format!("tail {name} {selection}"),
            Request::Tail { name, selection: None } => format!("tail-end {name}"),
            Request::Bans => "bans".into(),
            Request::Lift(address) => format!("lift {address}"),
            Request::LiftAll => "lift all".into(),
            Request::Reload { allows_loss, config } => {
                line("reload", ("allow-loss", *allows_loss), ("of", config.as_deref()))
            }
            // Neither name holds a line end or a tab: the settings refuse both.
            Request::Steer { group, member, order } => {
                let said = match order {
                    SteeringOrder::Way(Way::Serve) => "serve".to_owned(),
                    SteeringOrder::Way(Way::Drain) => "drain".to_owned(),
                    SteeringOrder::Way(Way::Pause) => "pause".to_owned(),
                    SteeringOrder::Weight(None) => "weight=own".to_owned(),
                    SteeringOrder::Weight(Some(weight)) => format!("weight={weight}"),
                };
                format!("upstream {said} {group}\t{member}")
            }
            Request::RestartPool(name) => format!("restart-pool {name}"),
            Request::ReopenLogs => "reopen-logs".into(),
            Request::LogLevel(level) => format!("log-level {level}"),
            Request::Stop { now, config } => line("stop", ("now", *now), ("of", config.as_deref())),
            Request::Of(config) => format!("of {}", config.display()),
            Request::Upgrade { binary, allows_loss } => {
                line("upgrade", ("allow-loss", *allows_loss), ("to", binary.as_deref()))
            }
        }
    }

    /// Reads a line.
    pub fn parse(line: &str) -> Option<Request> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        Some(match (word, rest) {
            ("status", "" | "text") => Request::Status(Format::Text),
            ("status", "json") => Request::Status(Format::Json),
            ("status", "xml") => Request::Status(Format::Xml),
            ("status", "prometheus") => Request::Status(Format::Prometheus),
            ("status", "openmetrics") => Request::Status(Format::OpenMetrics),
            ("cache", question) => Request::Cache(question.into()),
            ("stores", order) => Request::Stores(serde_json::from_str(order).ok()?),
            ("requests" | "slow" | "findings" | "sites" | "busiest" | "settings" | "history", rest) => {
                let (subject, form) = Subject::parse(word, rest)?;
                Request::Show(subject, form)
            }
            ("cancel" | "cancel-dry", id) if is_request_id(id) => {
                Request::Cancel { id: id.into(), is_rehearsal: word == "cancel-dry" }
            }
            ("cancel-all", rest) => {
                let (how, selection) = rest.split_once(' ')?;
                let is_rehearsal = match how {
                    "dry" => true,
                    "now" => false,
                    _ => return None,
                };
                let selection: Selection = selection.parse().ok()?;
                // All of them are meant by nobody.
                let is_some = !selection.is_everything();
                is_some.then_some(Request::CancelAll { selection, is_rehearsal })?
            }
            ("tail", rest) => {
                let (name, selection) = rest.split_once(' ')?;
                let selection = Some(selection.parse().ok()?);
                is_request_id(name).then(|| Request::Tail { name: name.into(), selection })?
            }
            ("tail-end", name) if is_request_id(name) => Request::Tail { name: name.into(), selection: None },
            ("bans", "") => Request::Bans,
            ("lift", "all") => Request::LiftAll,
            ("lift", address) => Request::Lift(address.parse().ok()?),
            ("upstream", rest) => {
                let (said, names) = rest.split_once(' ')?;
                let (group, member) = names.split_once('\t')?;
                let order = match said {
                    "serve" => SteeringOrder::Way(Way::Serve),
                    "drain" => SteeringOrder::Way(Way::Drain),
                    "pause" => SteeringOrder::Way(Way::Pause),
                    "weight=own" => SteeringOrder::Weight(None),
                    other => SteeringOrder::Weight(Some(other.strip_prefix("weight=")?.parse().ok()?)),
                };
                Request::Steer { group: group.into(), member: member.into(), order }
            }
            ("restart-pool", name) if !name.is_empty() => Request::RestartPool(name.into()),
            ("reopen-logs", "") => Request::ReopenLogs,
            ("log-level", level) => Request::LogLevel(level.parse().ok()?),
            ("reload", rest) => {
                let (allows_loss, config) = parse_order(rest, "allow-loss", "of")?;
                Request::Reload { allows_loss, config }
            }
            ("stop", rest) => {
                let (now, config) = parse_order(rest, "now", "of")?;
                Request::Stop { now, config }
            }
            ("of", path) if !path.is_empty() => Request::Of(path.into()),
            ("upgrade", rest) => {
                let (allows_loss, binary) = parse_order(rest, "allow-loss", "to")?;
                Request::Upgrade { binary, allows_loss }
            }
            _ => return None,
        })
    }
}

/// What an operator looks at beside the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// The requests under way.
    Requests,
    /// The requests that were slow for their route.
    Slow,
    /// What limits the server.
    Findings,
    /// What each site is, and how it does; always as JSON.
    Sites,
    /// What comes most often.
    Busiest,
    /// What the settings in force say, and where.
    Settings,
    /// What there was.
    History(HistoryRange),
}

impl Subject {
    fn word(self) -> &'static str {
        match self {
            Subject::Requests => "requests",
            Subject::Slow => "slow",
            Subject::Findings => "findings",
            Subject::Sites => "sites",
            Subject::Busiest => "busiest",
            Subject::Settings => "settings",
            Subject::History(_) => "history",
        }
    }

    /// Of a word and what stands behind it: the range of a history, and the form.
    fn parse(word: &str, rest: &str) -> Option<(Subject, Format)> {
        let (subject, form) = match word {
            "history" => {
                let (range, form) = rest.split_once(' ').unwrap_or((rest, ""));
                (Subject::History(HistoryRange::from_name(range)?), form)
            }
            word => {
                let plain = [
                    Subject::Requests,
                    Subject::Slow,
                    Subject::Findings,
                    Subject::Sites,
                    Subject::Busiest,
                    Subject::Settings,
                ];
                (plain.into_iter().find(|plain| plain.word() == word)?, rest)
            }
        };
        match form {
            "" | "text" => Some((subject, Format::Text)),
            "json" => Some((subject, Format::Json)),
            _ => None,
        }
    }
}

/// Whether this may be the id of a request: numbers and dashes, not many.
pub fn is_request_id(id: &str) -> bool {
    (1..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

/// An order with its word and its path, each of which may be left out; the path is last and may hold spaces.
fn line(order: &str, (word, is_said): (&str, bool), (what, path): (&str, Option<&Path>)) -> String {
    let word = if is_said { format!(" {word}") } else { String::new() };
    let path = path.map(|path| format!(" {what} {}", path.display())).unwrap_or_default();
    format!("{order}{word}{path}")
}

fn parse_order(rest: &str, word: &str, what: &str) -> Option<(bool, Option<PathBuf>)> {
    let (is_said, rest) = match rest.strip_prefix(word) {
        Some(rest) if rest.is_empty() || rest.starts_with(' ') => (true, rest.trim_start()),
        _ => (false, rest),
    };
    match rest.split_once(' ') {
        None if rest.is_empty() => Some((is_said, None)),
        Some((before, path)) if before == what && !path.is_empty() => Some((is_said, Some(path.into()))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_modules::cache_desk::{PurgeWanted, PurgeWhat};
    use tidegate_stats::history::Range;

    #[test]
    fn requests_survive_their_line() {
        for request in [
            Request::Status(Format::Text),
            Request::Status(Format::Json),
            Request::Status(Format::Prometheus),
            Request::Status(Format::OpenMetrics),
            Request::Status(Format::Xml),
            Request::Bans,
            Request::Show(Subject::Requests, Format::Text),
            Request::Show(Subject::Requests, Format::Json),
            Request::Show(Subject::Slow, Format::Json),
            Request::Show(Subject::Findings, Format::Text),
            Request::Show(Subject::Sites, Format::Json),
            Request::Show(Subject::Settings, Format::Json),
            Request::Show(Subject::Busiest, Format::Json),
            Request::Show(Subject::History(HistoryRange::Days), Format::Json),
            Request::Show(Subject::History(HistoryRange::Recent(Range::Hours)), Format::Text),
            Request::Cancel { id: "17-0-3f-12".into(), is_rehearsal: false },
            Request::Cancel { id: "17-0-3f-12".into(), is_rehearsal: true },
            Request::CancelAll { selection: "site=a b\tstatus=5xx".parse().unwrap(), is_rehearsal: true },
            Request::CancelAll { selection: "client=10.0.0.0/8".parse().unwrap(), is_rehearsal: false },
            Request::Tail {
                name: "1a-2".into(),
                selection: Some("route=/x y/*\tat-least=10".parse().unwrap()),
            },
            Request::Tail { name: "1a-2".into(), selection: Some(Selection::default()) },
            Request::Tail { name: "1a-2".into(), selection: None },
            Request::Steer {
                group: "my app".into(),
                member: "unix:/run/a b.sock".into(),
                order: SteeringOrder::Way(Way::Drain),
            },
            Request::Steer {
                group: "app".into(),
                member: "10.0.0.1:80".into(),
                order: SteeringOrder::Weight(Some(7)),
            },
            Request::Steer { group: "a".into(), member: "b".into(), order: SteeringOrder::Weight(None) },
            Request::RestartPool("my php".into()),
            Request::ReopenLogs,
            Request::LogLevel(Level::Debug),
            Request::Lift("192.0.2.1".parse().unwrap()),
            Request::LiftAll,
            Request::Lift("2001:db8::1".parse().unwrap()),
            Request::Cache("list".into()),
            Request::Stores(CacheOrder::Purge(PurgeWanted {
                what: PurgeWhat::Tag { name: "a b\n".into(), host: None },
                is_soft: true,
                store: Some("main".into()),
            })),
            Request::Stores(CacheOrder::Figures { store: None }),
            Request::Cache(String::new()),
            Request::Reload { allows_loss: false, config: None },
            Request::Reload { allows_loss: true, config: None },
            Request::Reload { allows_loss: true, config: Some("/etc/of a/b.kdl".into()) },
            Request::Stop { now: false, config: None },
            Request::Stop { now: true, config: Some("/etc/b.kdl".into()) },
            Request::Of("/etc/of a/b.kdl".into()),
            Request::Upgrade { binary: None, allows_loss: false },
            Request::Upgrade { binary: Some("/opt/a b/tidegate".into()), allows_loss: true },
        ] {
            assert_eq!(Request::parse(&request.to_line()), Some(request.clone()), "{request:?}");
        }
        assert_eq!(Request::parse("slow"), Some(Request::Show(Subject::Slow, Format::Text)));
        assert_eq!(Request::parse("reload everything"), None);
        assert_eq!(Request::parse("cancel all of them"), None);
        for refused in [
            "cancel-all now ",
            "cancel-all now",
            "cancel-all soon site=a",
            "cancel-all dry x=y",
            "tail ../x ",
            "tail-end ",
            "history 1y json",
            "slow xml",
        ] {
            assert_eq!(Request::parse(refused), None, "{refused}");
        }
        assert_eq!(Request::parse("reload of"), None);
        assert_eq!(Request::parse("stop nowhere"), None);
        assert_eq!(Request::parse(""), None);
    }
}
