//! Changes of the settings: texts are checked, written, taken up, and put back where the server does not take them up or nobody
//! confirms them.
//!
//! One change at a time. All of it is done on threads of their own, which may wait for disks and for the master; the master itself
//! only tells which revision is in force ([`Editor::adopt`]).

use super::files::{read_all, replace};
use super::helper;
use super::history::{History, as_files, tag_of_files, what_changed};
use super::unconfirmed::{Attempts, PutBack, Rewritten, Unconfirmed, rewritten};
use crate::admin::messages::{By, CheckInput, Checked, FileText, Refusal, Reply, RevisionInfo};
use crate::master::Event;
use crate::master::control;
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tidegate_config::{Settings, WrittenSettings};
use tidegate_core::log;
use tidegate_io::clock::wall_seconds;

/// The longest time that a revision may wait to be confirmed, seconds.
pub const CONFIRM_MAX: u64 = 3600;

/// The settings in the hands of editors.
pub struct Editor {
    history: Mutex<History>,
    /// Held by whoever changes the files.
    changing: Mutex<()>,
    unconfirmed: Mutex<Option<Unconfirmed>>,
    /// Somebody has confirmed, or put something in its place.
    is_settled: Condvar,
    /// No change is begun any more.
    is_ending: AtomicBool,
    /// None is begun for now.
    is_upgrading: AtomicBool,
    events: Sender<Event>,
    /// The settings file; `None` where the settings are of none.
    main: Option<PathBuf>,
}

/// A change that somebody wants.
pub struct Wanted {
    /// What the files hold, as who wants it knows them.
    pub tag: String,
    /// In place of these texts.
    pub files: Vec<FileText>,
    /// The texts before come back unless somebody confirms these within so many seconds.
    pub confirm_within: Option<u64>,
    /// Who wants it.
    pub by: By,
    /// What it is called where it is no plain change.
    pub what: Option<String>,
}

type Outcome = Result<Reply, (Refusal, String)>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Editor {
    /// Of a server whose settings stand in the file `main`.
    pub fn new(events: Sender<Event>, main: Option<&Path>) -> Arc<Editor> {
        let main = main.map(|main| std::path::absolute(main).unwrap_or_else(|_| main.to_owned()));
        Arc::new(Editor {
            history: Mutex::default(),
            changing: Mutex::default(),
            unconfirmed: Mutex::default(),
            is_settled: Condvar::new(),
            is_ending: AtomicBool::new(false),
            is_upgrading: AtomicBool::new(false),
            events,
            main,
        })
    }

    /// A revision is in force.
    pub fn adopt(&self, number: u64, settings: &Arc<Settings>, written: &WrittenSettings) {
        lock(&self.history).add(number, settings, written.documents());
    }

    /// Says what revisions have changed of which that is not known yet: those.
    pub fn describe(&self) -> Vec<RevisionInfo> {
        let undescribed = lock(&self.history).take_undescribed();
        let described = undescribed.into_iter().filter_map(|(number, before, after)| {
            let what = what_changed(&before, &after);
            let mut history = lock(&self.history);
            history.describe(number, what);
            history.info(number)
        });
        described.collect()
    }

    /// The number of the revision in force, and what is known of it.
    pub fn in_force(&self) -> Option<RevisionInfo> {
        lock(&self.history).list().into_iter().next()
    }

    /// Whether a revision waits to be confirmed.
    pub fn waits(&self) -> bool {
        lock(&self.unconfirmed).is_some()
    }

    /// The settings file, absolute.
    pub fn main(&self) -> Option<&Path> {
        self.main.as_deref()
    }

    /// The last revisions.
    pub fn revisions(&self) -> Vec<RevisionInfo> {
        lock(&self.history).list()
    }

    /// The texts of one.
    pub fn revision(&self, number: u64) -> Option<Vec<FileText>> {
        let documents = lock(&self.history).documents(number);
        documents.map(|documents| as_files(&documents))
    }

    /// The revision in force, and what its files hold now.
    pub fn settings(&self) -> Outcome {
        let (revision, files) = self.read()?;
        Ok(Reply::Files { tag: tag_of_files(&files), revision, files })
    }

    fn read(&self) -> Result<(u64, Vec<FileText>), (Refusal, String)> {
        let (revision, documents) = lock(&self.history).in_force();
        if documents.is_empty() {
            let why = "the settings of this server stand in no file: it was started with arguments alone";
            return Err((Refusal::Missing, why.into()));
        }
        let files = read_all(&documents).map_err(|why| (Refusal::Failed, format!("{why:#}")))?;
        Ok((revision, files))
    }

    /// What would be wrong with these texts, and what they would change.
    pub fn check(&self, files: &[FileText]) -> Result<Box<Checked>, (Refusal, String)> {
        let (_, present) = self.read()?;
        examine(&present, files)?;
        self.check_against(&present, files)
    }

    fn check_against(
        &self,
        present: &[FileText],
        files: &[FileText],
    ) -> Result<Box<Checked>, (Refusal, String)> {
        let failed = |why: String| (Refusal::Failed, format!("the settings could not be checked: {why}"));
        let Some(main) = self.main.clone() else { return Err(failed("they stand in no file".into())) };
        let input = CheckInput { main, present: present.to_vec(), files: files.to_vec() };
        let input = serde_json::to_vec(&input).map_err(|error| failed(error.to_string()))?;
        let said = helper::run(&["check-texts"], input).map_err(failed)?;
        serde_json::from_str(&said.text).map_err(|_| failed(said.complaint.trim().to_owned()))
    }

    /// Writes texts and takes them up.
    pub fn write(self: &Arc<Editor>, wanted: Wanted) -> Outcome {
        let Ok(_changing) = self.changing.try_lock() else {
            return Err((Refusal::Conflict, "another change is under way: try again when it is done".into()));
        };
        if self.is_ending.load(SeqCst) {
            return Err((Refusal::Conflict, "the server is ending".into()));
        }
        if self.is_upgrading.load(SeqCst) {
            let why = "the server is being upgraded: try again when that is done";
            return Err((Refusal::Conflict, why.into()));
        }
        let waiting = lock(&self.unconfirmed)
            .as_ref()
            .map(|other| format!("revision {} of {}", other.revision, other.by));
        if let Some(other) = waiting.filter(|_| wanted.what.is_none()) {
            let why = format!(
                "{other} waits to be confirmed: confirm it, restore another one, or wait until it has gone"
            );
            return Err((Refusal::Conflict, why));
        }
        let confirm_within = wanted.confirm_within.filter(|seconds| *seconds > 0);
        if confirm_within.is_some_and(|seconds| seconds > CONFIRM_MAX) {
            let why = format!("a revision waits for {CONFIRM_MAX} seconds at most to be confirmed");
            return Err((Refusal::Wrong, why));
        }
        let (_, present) = self.read()?;
        if tag_of_files(&present) != wanted.tag {
            let why = "the files have been changed since they were read: read them again, and put both changes together";
            return Err((Refusal::Changed, why.into()));
        }
        examine(&present, &wanted.files)?;
        let checked = self.check_against(&present, &wanted.files)?;
        if checked.has_errors() {
            return Ok(Reply::Checked(checked));
        }
        let next = joined(&present, &wanted.files);
        let (revision, notes) = self.take_up(&present, &next, &wanted.by, wanted.what)?;
        *lock(&self.unconfirmed) = None;
        self.is_settled.notify_all();
        let confirm_by = match confirm_within {
            None => None,
            Some(seconds) => {
                let written = rewritten(&present, &next);
                Some(self.await_confirmation(revision, written, seconds, &wanted.by)?)
            }
        };
        log::always(format_args!("admin: {} has changed the settings: revision {revision}", wanted.by));
        Ok(Reply::Written { revision, tag: tag_of_files(&next), notes, confirm_by })
    }

    /// Writes the texts of an earlier revision and takes them up.
    pub fn restore(self: &Arc<Editor>, revision: u64, wanted: Wanted) -> Outcome {
        let Some(files) = self.revision(revision) else {
            return Err((Refusal::Missing, format!("revision {revision} is not known any more, or not yet")));
        };
        let (_, known) = lock(&self.history).in_force();
        let is_known =
            |file: &FileText| known.iter().any(|known| known.path.as_os_str() == file.path.as_str());
        if let Some(gone) = files.iter().find(|file| !is_known(file)) {
            let why = format!(
                "{} was a part of revision {revision} and is none of the settings in force: put it back by hand",
                gone.path
            );
            return Err((Refusal::Forbidden, why));
        }
        self.write(Wanted { files, what: Some(format!("revision {revision} restored")), ..wanted })
    }

    /// A revision that waits for it stays.
    pub fn confirm(&self, revision: u64, by: &By) -> Outcome {
        let mut unconfirmed = lock(&self.unconfirmed);
        if unconfirmed.as_ref().is_some_and(|waiting| waiting.revision == revision && waiting.is_going) {
            let why =
                format!("the time of revision {revision} is over, and the texts before are being put back");
            return Err((Refusal::Conflict, why));
        }
        match unconfirmed.take_if(|waiting| waiting.revision == revision) {
            Some(_) => {
                self.is_settled.notify_all();
                log::always(format_args!("admin: {by} has confirmed revision {revision}"));
                Ok(Reply::Text(String::new()))
            }
            None => Err((Refusal::Missing, format!("revision {revision} does not wait to be confirmed"))),
        }
    }

    /// From these texts to those: all of it, or nothing. The revision that came of it, and what the server says.
    fn take_up(
        &self,
        present: &[FileText],
        next: &[FileText],
        by: &By,
        what: Option<String>,
    ) -> Result<(u64, Vec<String>), (Refusal, String)> {
        let number = || lock(&self.history).in_force().0;
        let before = number();
        let tag = tag_of_files(next);
        lock(&self.history).expect(tag, by, what);
        if let Err(why) = write_all(present, next) {
            let is_read_only = why.downcast_ref::<Errno>() == Some(&Errno::ROFS);
            let help =
                if is_read_only { "; under systemd, `ReadWritePaths=` of the unit allows it" } else { "" };
            return Err((Refusal::Failed, format!("{why:#}{help}; nothing has changed")));
        }
        let reply = self.reload(true);
        if reply.is_ok {
            let notes = reply.text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
            return Ok((number(), notes));
        }
        let mut said = reply.text;
        if let Err(why) = write_all(next, present) {
            said += &format!("{why:#}: put the texts before back by hand\n");
            log::error(format_args!("admin: {why:#}: the settings before could not be put back"));
        } else if number() != before {
            // Some of it was taken up.
            let (tag, what) = (tag_of_files(present), "put back: not all of it was taken up".to_owned());
            lock(&self.history).expect(tag, by, Some(what));
            let back = self.reload(true);
            said += if back.is_ok { "the settings before are in force again\n" } else { &back.text };
        }
        log::warn(format_args!("admin: a change of {by} was not taken up, and the files are as they were"));
        Err((Refusal::NotTakenUp, said))
    }

    fn reload(&self, allows_loss: bool) -> control::Reply {
        let request = control::Request::Reload { allows_loss, config: None };
        control::order(&self.events, request)
    }

    /// Has the texts before come back, unless somebody confirms. When that is, seconds since 1970.
    fn await_confirmation(
        self: &Arc<Editor>,
        revision: u64,
        written: Vec<Rewritten>,
        seconds: u64,
        by: &By,
    ) -> Result<i64, (Refusal, String)> {
        let until = Instant::now() + Duration::from_secs(seconds);
        *lock(&self.unconfirmed) =
            Some(Unconfirmed { revision, written, until, by: by.clone(), is_going: false });
        let own = self.clone();
        let waiting = std::thread::Builder::new().name("tidegate-confirm".into());
        if let Err(error) = waiting.spawn(move || own.wait_for_confirmation(revision)) {
            *lock(&self.unconfirmed) = None;
            let why = format!(
                "revision {revision} is in force, and stays: nobody can wait for its confirmation: {error}"
            );
            return Err((Refusal::Failed, why));
        }
        Ok(wall_seconds().saturating_add_unsigned(seconds))
    }

    fn wait_for_confirmation(&self, revision: u64) {
        let mut unconfirmed = lock(&self.unconfirmed);
        loop {
            let Some(waiting) = unconfirmed.as_ref().filter(|waiting| waiting.revision == revision) else {
                return;
            };
            let left = waiting.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let woken = self.is_settled.wait_timeout(unconfirmed, left);
            unconfirmed = woken.map_or_else(|poisoned| poisoned.into_inner().0, |(guard, _)| guard);
        }
        drop(unconfirmed);
        let mut attempts = Attempts::new();
        while !self.has_gone(revision, &mut attempts) {
            let waiting = lock(&self.unconfirmed);
            drop(self.is_settled.wait_timeout(waiting, attempts.pause()));
        }
    }

    /// Puts the texts before back and has them taken up, unless somebody has settled it meanwhile. `false`: something is in the way,
    /// which is said when it is something else than before.
    fn has_gone(&self, revision: u64, attempts: &mut Attempts) -> bool {
        // Another change may have begun, such as one that puts something else in its place.
        let _changing = lock(&self.changing);
        let gone =
            lock(&self.unconfirmed).as_mut().filter(|waiting| waiting.revision == revision).map(|waiting| {
                waiting.is_going = true;
                waiting.clone()
            });
        let Some(gone) = gone else { return true };
        if self.is_ending.load(SeqCst) {
            return true; // the end puts it back
        }
        let outcome = gone.put_back().and_then(|outcome| match outcome {
            PutBack::Done => self.take_up_again(&gone, attempts).map(Some),
            PutBack::ByHand(path) => {
                self.keep(&gone, &path);
                Ok(None)
            }
        });
        let is_over = match outcome {
            Ok(Some(back)) => {
                log::always(format_args!(
                    "admin: nobody has confirmed revision {revision} of {}: {back}",
                    gone.by
                ));
                true
            }
            Ok(None) => true,
            Err(why) => {
                if attempts.is_news(&why) {
                    log::error(format_args!(
                        "admin: nobody has confirmed revision {revision}, and the settings before cannot be put back, which is \
                         tried again: {why}"
                    ));
                }
                false
            }
        };
        if is_over {
            *lock(&self.unconfirmed) = None;
        }
        is_over
    }

    /// What nobody has confirmed stays: somebody is writing the same file, and what is half written is taken up by who writes it.
    fn keep(&self, gone: &Unconfirmed, path: &str) {
        log::error(format_args!("admin: {}", gone.stays_for(path)));
        let mut history = lock(&self.history);
        if let Some(info) = history.info(gone.revision) {
            history.describe(gone.revision, format!("{}; not confirmed, and not put back", info.what));
        }
    }

    /// Has the files taken up as any reload would. What is in force then; an error says why it is not.
    fn take_up_again(&self, gone: &Unconfirmed, attempts: &mut Attempts) -> Result<String, String> {
        let by = By { who: "the server".into(), from: gone.by.from.clone() };
        let (_, known) = lock(&self.history).in_force();
        let (_, files) = self.read().map_err(|(_, why)| why)?;
        let tag = tag_of_files(&files);
        if !attempts.is_due(&tag, Instant::now()) {
            return Err(attempts.last().to_owned());
        }
        // What others have written into other files is taken up as they would: it takes no name away.
        let is_by_hand =
            |(file, known): &(&FileText, &FileText)| !gone.has_written(&file.path) && file.text != known.text;
        let known = as_files(&known);
        let by_hand = files.iter().zip(&known).find(is_by_hand).map(|(file, _)| file.path.clone());
        let mut what = format!("revision {} was not confirmed", gone.revision);
        if let Some(path) = &by_hand {
            what += &format!("; with what {path} holds by hand");
        }
        lock(&self.history).expect(tag.clone(), &by, Some(what));
        let before = lock(&self.history).in_force().0;
        let reply = self.reload(by_hand.is_none());
        let now = lock(&self.history).in_force().0;
        // A mistake that somebody else has made leaves its site as it was, and is no reason to keep what nobody has confirmed.
        if !reply.is_ok && now == before {
            attempts.refuse(tag, Instant::now());
            return Err(reply.text.trim().to_owned());
        }
        Ok(match by_hand {
            None => format!("the settings before are in force as revision {now}"),
            Some(path) => format!(
                "the settings before are in force as revision {now}, with what {path} holds, which somebody else has changed \
                 since; names that are served go by `tidegate reload --allow-loss` alone"
            ),
        })
    }

    /// Whether a new program is about to take over.
    pub fn set_upgrading(&self, is_upgrading: bool) {
        self.is_upgrading.store(is_upgrading, SeqCst);
    }

    /// Whether somebody changes the files.
    pub fn is_changing(&self) -> bool {
        self.changing.try_lock().is_err()
    }

    /// The server ends: no change is begun any more, and what nobody has confirmed goes from the disk.
    pub fn end(&self) {
        self.is_ending.store(true, SeqCst);
        self.is_settled.notify_all();
        let Some(gone) = lock(&self.unconfirmed).take() else { return };
        match gone.put_back() {
            Ok(PutBack::Done) => log::always(format_args!(
                "admin: nobody has confirmed revision {}: the files hold the settings before",
                gone.revision
            )),
            Ok(PutBack::ByHand(path)) => log::error(format_args!("admin: {}", gone.stays_for(&path))),
            Err(why) => log::error(format_args!(
                "admin: nobody has confirmed revision {}, and the settings before could not be put back: {why}",
                gone.revision
            )),
        }
    }
}

/// Whether these texts may be written at all.
fn examine(present: &[FileText], files: &[FileText]) -> Result<(), (Refusal, String)> {
    for (at, file) in files.iter().enumerate() {
        if !present.iter().any(|known| known.path == file.path) {
            let why = format!("{} is no file of these settings, and no other is written", file.path);
            return Err((Refusal::Forbidden, why));
        }
        if files.iter().take(at).any(|other| other.path == file.path) {
            return Err((Refusal::Wrong, format!("{} is there twice", file.path)));
        }
    }
    Ok(())
}

/// All files, those of `files` with its texts.
fn joined(present: &[FileText], files: &[FileText]) -> Vec<FileText> {
    let next = |known: &FileText| files.iter().find(|file| file.path == known.path).unwrap_or(known).clone();
    present.iter().map(next).collect()
}

/// Writes those that differ. Where one cannot be written, those before it are as they were.
fn write_all(present: &[FileText], next: &[FileText]) -> anyhow::Result<()> {
    let mut done: Vec<(&FileText, &FileText)> = Vec::new();
    for (before, after) in present.iter().zip(next).filter(|(before, after)| before.text != after.text) {
        if let Err(why) = replace(Path::new(&before.path), &before.text, &after.text) {
            for (before, after) in done {
                if let Err(error) = replace(Path::new(&before.path), &after.text, &before.text) {
                    log::error(format_args!(
                        "admin: {error:#}: it holds a new text, and others the one before"
                    ));
                }
            }
            return Err(why);
        }
        done.push((before, after));
    }
    Ok(())
}
