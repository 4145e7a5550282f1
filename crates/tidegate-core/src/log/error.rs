//! The error log: what the operator should know, one line each, with time and level.

use super::record;
use super::thinning::{LeftOut, Thinning};
use super::{Level, Sink, Writer, applications, output, push_escaped};
use std::io::Write;
use std::panic::Location;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use tidegate_io::clock::monotonic_ns;

struct ErrorLog {
    writer: Arc<Writer>,
    sink: Sink,
    level: Level,
}

static ERROR_LOG: RwLock<Option<ErrorLog>> = RwLock::new(None);
/// The level that an operator has asked for in place of that of the log, by its place among [`LEVELS`] from 1; 0: none.
static ASKED: AtomicUsize = AtomicUsize::new(0);
const LEVELS: [Level; 4] = [Level::Error, Level::Warn, Level::Info, Level::Debug];
static THINNING: Mutex<Thinning> = Mutex::new(Thinning::new());

/// Sends what follows to `sink`. Before the first call lines go to standard error.
pub fn set_error_log(writer: Arc<Writer>, sink: Sink, level: Level) {
    if let Ok(mut log) = ERROR_LOG.write() {
        *log = Some(ErrorLog { writer, sink, level });
    }
}

/// Has messages up to this level be written in place of that of the log, which may be another one meanwhile; `None`: no longer.
pub fn set_level(level: Option<Level>) {
    let place = level.and_then(|level| LEVELS.iter().position(|known| *known == level));
    ASKED.store(place.map_or(0, |place| place + 1), Relaxed);
}

impl ErrorLog {
    /// The one in force.
    fn level(&self) -> Level {
        let asked = ASKED.load(Relaxed).checked_sub(1).and_then(|place| LEVELS.get(place));
        asked.copied().unwrap_or(self.level)
    }
}

/// Something failed.
#[track_caller]
pub fn error(message: impl std::fmt::Display) {
    say(Level::Error, Location::caller(), &message);
}

/// Something is not as it should be, and serving goes on.
#[track_caller]
pub fn warn(message: impl std::fmt::Display) {
    say(Level::Warn, Location::caller(), &message);
}

/// Something worth knowing happened.
#[track_caller]
pub fn info(message: impl std::fmt::Display) {
    say(Level::Info, Location::caller(), &message);
}

/// What is written whatever else is, so that nobody's deeds vanish behind those of another: never left out as one of many.
pub fn always(message: impl std::fmt::Display) {
    write_line(Level::Info, &message.to_string());
}

/// What the writer has to say of a log: into the error log, unless that is the one.
pub(super) fn say_of_log(sink: Sink, message: std::fmt::Arguments<'_>) {
    if !say_of_error_log(sink, message) {
        write_line(Level::Warn, &message.to_string());
    }
}

/// The same where it is the error log, in which it could not be said. Whether it is.
pub(super) fn say_of_error_log(sink: Sink, message: std::fmt::Arguments<'_>) -> bool {
    let is_error_log = ERROR_LOG.read().is_ok_and(|log| log.as_ref().is_some_and(|log| log.sink == sink));
    if is_error_log {
        output::say_on_stderr(&format!("tidegate: {message}\n"));
    }
    is_error_log
}

/// Says which messages were left out, where their second is over.
pub(super) fn say_what_was_left_out() {
    applications::say_what_was_left_out();
    let left_out = match THINNING.lock() {
        Ok(mut thinning) if thinning.leaves_out() => thinning.take(monotonic_ns()),
        _ => return,
    };
    for LeftOut { level, count, like } in left_out {
        write_line(
            level,
            &format!("... and {count} more of the kind, left out; the last one written: {like}"),
        );
    }
}

/// Whether there will be something to say of that.
pub(super) fn leaves_out() -> bool {
    applications::leaves_out() || THINNING.lock().is_ok_and(|thinning| thinning.leaves_out())
}

/// The error log and its level; `None` before there is one.
pub(super) fn error_log() -> Option<(Arc<Writer>, Sink, Level)> {
    let log = ERROR_LOG.read().ok()?;
    log.as_ref().map(|log| (log.writer.clone(), log.sink, log.level()))
}

fn say(level: Level, location: &'static Location<'static>, message: &dyn std::fmt::Display) {
    let is_wanted = ERROR_LOG.read().is_ok_and(|log| log.as_ref().is_none_or(|log| level <= log.level()));
    if !is_wanted {
        return;
    }
    let (admitted, begins_to_leave_out) = {
        let mut thinning = THINNING.lock().unwrap_or_else(PoisonError::into_inner);
        let did_leave_out = thinning.leaves_out();
        let admitted = thinning.admit(location, level, monotonic_ns(), || message.to_string());
        (admitted, !did_leave_out && thinning.leaves_out())
    };
    if let Some(message) = admitted {
        write_line(level, &message);
    }
    if begins_to_leave_out && let Ok(Some(log)) = ERROR_LOG.read().as_deref() {
        log.writer.wake();
    }
}

fn write_line(level: Level, message: &str) {
    let mut out = Vec::with_capacity(128);
    push_line(&mut out, level, message);
    match ERROR_LOG.read().ok().as_deref() {
        Some(Some(log)) if level <= log.level() => log.writer.write(log.sink, out),
        Some(Some(_)) => {}
        _ => drop(std::io::stderr().write_all(&out)),
    }
}

/// Appends a message with time and level; its further lines are indented.
pub(super) fn push_line(out: &mut Vec<u8>, level: Level, message: &str) {
    let name = level.name();
    out.extend_from_slice(&record::time());
    let _ = write!(out, " {name}: ");
    for (n, part) in message.split('\n').enumerate() {
        if n > 0 {
            out.extend_from_slice(b"\n    ");
        }
        push_escaped_prose(out, part);
    }
    out.push(b'\n');
}

/// Quotes and the ellipsis of the server's own sentences stay readable here; control bytes and foreign bytes do not get
/// through.
fn push_escaped_prose(out: &mut Vec<u8>, text: &str) {
    for piece in text.split_inclusive(['"', '\\', '…']) {
        let last = piece.char_indices().next_back().filter(|(_, last)| matches!(last, '"' | '\\' | '…'));
        let (front, last) = piece.split_at(last.map_or(piece.len(), |(at, _)| at));
        push_escaped(out, front.as_bytes());
        out.extend_from_slice(last.as_bytes());
    }
}
