//! What the process of the admin API may have the master do: each command, and nothing else.

use super::editor::{Editor, Wanted};
use super::helper;
use crate::admin::messages::{By, Command, FromAdmin, Refusal, Reply, ToAdmin};
use crate::link::Link;
use crate::master::Event;
use crate::master::control::{self, Request};
use crate::master::status_registry::StatusRegistry;
use crate::master::stores::NO_STORE;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use tidegate_core::log;
use tidegate_modules::cache_desk::CacheOrder;

/// Commands that are carried out at once.
const AT_ONCE: usize = 16;
/// Of these, such as have a process look at settings, which may take half a minute: no confirmation waits for them.
const HELPED: usize = 4;
/// The longest line, bytes.
const LINE: usize = 8 << 10;

/// Whoever carries them out.
#[derive(Clone)]
pub struct Office {
    editor: Arc<Editor>,
    status_registry: Arc<StatusRegistry>,
    events: Sender<Event>,
    busy: Arc<AtomicUsize>,
    helped: Arc<AtomicUsize>,
}

impl Office {
    /// Of this server.
    pub fn new(
        editor: &Arc<Editor>,
        status_registry: &Arc<StatusRegistry>,
        events: &Sender<Event>,
    ) -> Office {
        Office {
            editor: editor.clone(),
            status_registry: status_registry.clone(),
            events: events.clone(),
            busy: Arc::default(),
            helped: Arc::default(),
        }
    }

    /// The process has said something. Commands are carried out on threads of their own.
    pub fn hear(&self, link: &Arc<Link>, message: FromAdmin) {
        let (number, command) = match message {
            FromAdmin::Ready => return,
            FromAdmin::Warn(said) => {
                let said: String = said.chars().filter(|c| !c.is_control()).take(500).collect();
                return log::warn(format_args!("admin: {said}"));
            }
            FromAdmin::Command(number, command) => (number, command),
        };
        let refuse = |why: &str| {
            link.send(&ToAdmin::Reply(number, Reply::Refused(Refusal::Busy, why.into())), Vec::new());
        };
        let is_helped = matches!(command, Command::Check(_) | Command::Explain { .. });
        let (places, most) = if is_helped { (&self.helped, HELPED) } else { (&self.busy, AT_ONCE) };
        let place = places.fetch_update(Relaxed, Relaxed, |busy| (busy < most).then_some(busy + 1));
        if place.is_err() {
            return refuse("too much is asked for at once: try again");
        }
        let (own, back, taken) = (self.clone(), link.clone(), places.clone());
        let doing = std::thread::Builder::new().name("tidegate-admin-do".into()).spawn(move || {
            let reply = own.carry_out(command).unwrap_or_else(|(why, said)| Reply::Refused(why, said));
            taken.fetch_sub(1, Relaxed);
            back.send(&ToAdmin::Reply(number, reply), Vec::new());
        });
        if doing.is_err() {
            places.fetch_sub(1, Relaxed);
            refuse("there is no thread to do it: try again");
        }
    }

    fn carry_out(&self, command: Command) -> Result<Reply, (Refusal, String)> {
        match command {
            Command::Read(line) => self.read(&line),
            Command::Operate(line, by) => self.operate(&line, &by),
            Command::Bans => Ok(Reply::Text(self.bans())),
            Command::Settings => self.editor.settings(),
            Command::Check(files) => Ok(Reply::Checked(self.editor.check(&files)?)),
            Command::Write { tag, files, confirm_within, by } => {
                self.editor.write(Wanted { tag, files, confirm_within, by, what: None })
            }
            Command::Restore { revision, tag, confirm_within, by } => {
                let wanted = Wanted { tag, files: Vec::new(), confirm_within, by, what: None };
                self.editor.restore(revision, wanted)
            }
            Command::Confirm { revision, by } => self.editor.confirm(revision, &by),
            Command::Revisions => Ok(Reply::Revisions(self.editor.revisions())),
            Command::Revision(revision) => match self.editor.revision(revision) {
                Some(files) => {
                    Ok(Reply::Files { tag: super::history::tag_of_files(&files), revision, files })
                }
                None => {
                    let why = format!("revision {revision} is not known any more, or not yet");
                    Err((Refusal::Missing, why))
                }
            },
            Command::Explain { url, method, from, user } => {
                self.explain(&url, &method, from.as_deref(), user.as_deref())
            }
        }
    }

    fn read(&self, line: &str) -> Result<Reply, (Refusal, String)> {
        let request = parse(line)?;
        match request {
            Request::Status(_) | Request::Show(..) | Request::Bans | Request::Tail { .. } => {}
            Request::Stores(CacheOrder::List(_) | CacheOrder::Show(_) | CacheOrder::Figures { .. }) => {}
            _ => return Err((Refusal::Forbidden, "this is no question".into())),
        }
        if let Some(why) = self.missing(&request) {
            return Err((Refusal::Missing, why));
        }
        match control::answer(request, &self.status_registry) {
            Ok(control::Reply { is_ok: true, text }) => Ok(Reply::Text(text)),
            Ok(control::Reply { text, .. }) => Err((Refusal::Busy, text.trim().to_owned())),
            Err(_) => Err((Refusal::Forbidden, "this is no question".into())),
        }
    }

    /// What a question is about and there is not, as a sentence.
    fn missing(&self, request: &Request) -> Option<String> {
        match request {
            Request::Tail { selection: Some(selection), .. } => {
                self.status_registry.nothing_called(selection)
            }
            Request::Stores(_) if self.status_registry.stores().0.is_empty() => Some(NO_STORE.to_owned()),
            _ => None,
        }
    }

    /// As JSON: each ban, whom it is of, and until when, seconds since 1970.
    fn bans(&self) -> String {
        let kept = self.status_registry.rates().bans_to_keep(tidegate_io::clock::wall_seconds());
        let row = |line: &str| {
            let (ban, client, until) = serde_json::from_str::<(String, String, i64)>(line).ok()?;
            Some(serde_json::json!({ "ban": ban, "client": client, "until": until }))
        };
        let rows: Vec<serde_json::Value> = kept.lines().filter_map(row).collect();
        serde_json::json!({ "bans": rows }).to_string()
    }

    fn operate(&self, line: &str, by: &By) -> Result<Reply, (Refusal, String)> {
        let request = parse(line)?;
        match request {
            Request::Cancel { .. }
            | Request::CancelAll { .. }
            | Request::Lift(_)
            | Request::Stores(CacheOrder::Purge(_))
            | Request::Steer { .. }
            | Request::RestartPool(_)
            | Request::ReopenLogs
            | Request::LogLevel(_) => {}
            _ => return Err((Refusal::Forbidden, "this cannot be ordered here".into())),
        }
        let is_rehearsal = matches!(
            request,
            Request::Cancel { is_rehearsal: true, .. } | Request::CancelAll { is_rehearsal: true, .. }
        );
        let reply = control::answer(request, &self.status_registry)
            .unwrap_or_else(|order| control::order(&self.events, *order));
        let (outcome, text) = (if reply.is_ok { "done" } else { "refused" }, reply.text.trim().to_owned());
        if !is_rehearsal {
            let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).take(500).collect();
            log::always(format_args!("admin: {by} wants `{line}`: {outcome}"));
        }
        if reply.is_ok { Ok(Reply::Text(text)) } else { Err((Refusal::Missing, text)) }
    }

    /// As `tidegate explain` has it.
    fn explain(
        &self,
        url: &str,
        method: &str,
        from: Option<&str>,
        user: Option<&str>,
    ) -> Result<Reply, (Refusal, String)> {
        let Some(main) = self.editor.main() else {
            return Err((Refusal::Missing, "the settings of this server stand in no file".into()));
        };
        let mut arguments = vec!["explain".to_owned(), format!("--config={}", main.display())];
        arguments.extend(from.map(|from| format!("--from={from}")));
        arguments.extend(user.map(|user| format!("--user={user}")));
        arguments.extend(["--".to_owned(), method.to_owned(), url.to_owned()]);
        if arguments.iter().any(|argument| argument.contains('\0') || argument.len() > LINE) {
            return Err((Refusal::Wrong, "a zero byte, or more than 8 KiB, is no part of a request".into()));
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let said = helper::run(&arguments, Vec::new()).map_err(|why| (Refusal::Failed, why))?;
        // A request that is refused is explained as well.
        match said.is_ok || !said.text.is_empty() {
            true => Ok(Reply::Text(said.text)),
            false => Err((Refusal::Wrong, sentence(&said.complaint))),
        }
    }
}

/// What a command complains of, in one sentence: of settings it shows the place and gives advice in further lines.
fn sentence(complaint: &str) -> String {
    let first = complaint.trim().lines().next().unwrap_or_default();
    ["tidegate: ", "error: "]
        .iter()
        .fold(first, |text, name| text.strip_prefix(name).unwrap_or(text))
        .to_owned()
}

fn parse(line: &str) -> Result<Request, (Refusal, String)> {
    let is_line = line.len() <= LINE && !line.contains(['\n', '\0']);
    let request = if is_line { Request::parse(line) } else { None };
    request.ok_or_else(|| (Refusal::Wrong, "the server does not understand what is asked for".into()))
}
