//! One log that the log thread writes: what it has not taken yet, and when that is said or given up.
//!
//! The log thread alone uses it. A pipe or a daemon that takes a little at a time is nothing to tell of, and worth waiting for at the
//! end; one that has taken nothing for [`PATIENCE`] is (FAULTS 51).

use super::Sink;
use super::error;
use super::output::Output;
use super::room::MOST_OF_ONE;
use super::writer::{Account, Counts};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Bytes of lines that are held as one.
const HELD_PIECE: usize = 64 << 10;
/// How often a log that failed is tried again, whatever else there is to write.
pub(super) const RETRY: Duration = Duration::from_secs(1);
/// How often a full pipe is tried, and how long the thread looks at one before it looks at its orders.
pub(super) const PIPE_RETRY: Duration = Duration::from_millis(20);
/// How long a pipe or a daemon may take nothing before that is said, and before nobody waits for it at the end.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// An open log and the lines that are held for it.
pub(super) struct OpenLog {
    pub(super) output: Output,
    /// The end of the file that it had before.
    pub(super) tail: Option<Tail>,
    /// What it has not taken, the front perhaps in part.
    pub(super) held: VecDeque<Vec<u8>>,
    pub(super) held_bytes: usize,
    pub(super) is_failing: bool,
    pub(super) account: Arc<Account>,
    /// How many of them have been said.
    said: u64,
    /// While it is behind: when it last took something, or began to be behind.
    taken_at: Option<Instant>,
    /// What was in the pipe when it was tried last, bytes.
    unread: Option<u64>,
}

/// The rest of a line that was torn when the log was opened anew: it belongs to the file in which the line begins.
pub(super) struct Tail {
    pub(super) output: Output,
    rest: Vec<u8>,
}

impl OpenLog {
    pub(super) fn of(output: Output, account: Arc<Account>) -> OpenLog {
        let (tail, held, held_bytes, is_failing, said) = (None, VecDeque::new(), 0, false, 0);
        OpenLog { output, tail, held, held_bytes, is_failing, account, said, taken_at: None, unread: None }
    }

    /// Writes lines, behind those that are held.
    pub(super) fn take(&mut self, sink: Sink, lines: Vec<u8>, counts: &Counts) {
        // Lines that were on their way when the log began to be behind have taken room that is for those that are not.
        if !self.held.is_empty() && !self.account.room.may_hold() {
            self.account.room.give_back(lines.len());
            return counts.lose(&lines, &self.account);
        }
        self.held_bytes += lines.len();
        if self.held.is_empty() {
            self.held.push_back(lines);
            return self.write_held(sink, counts);
        }
        // A buffer is larger than the few lines that it may hold, and would stay so for as long as they are held.
        match self.held.back_mut().filter(|back| back.len() + lines.len() <= HELD_PIECE) {
            Some(back) => back.extend_from_slice(&lines),
            None => self.held.push_back(lines.into_boxed_slice().into_vec()),
        }
    }

    /// It holds what is still to be written.
    pub(super) fn is_behind(&self) -> bool {
        !self.held.is_empty() || self.tail.is_some()
    }

    pub(super) fn waits_for_reader(&self) -> bool {
        !self.held.is_empty() && self.output.may_stick()
    }

    /// It waits for a pipe or a daemon that takes what it can: [`PATIENCE`] has not gone by since it took something.
    pub(super) fn has_reader(&self, now: Instant) -> bool {
        self.waits_for_reader()
            && self.taken_at.is_some_and(|at| now.saturating_duration_since(at) < PATIENCE)
    }

    pub(super) fn waits_for_disk(&self) -> bool {
        let is_file = |output: &Output| !output.may_stick();
        !self.held.is_empty() && is_file(&self.output)
            || self.tail.as_ref().is_some_and(|tail| is_file(&tail.output))
    }

    /// How long it is left alone when it has not taken all.
    pub(super) fn pause(&self) -> Duration {
        if self.waits_for_reader() { PIPE_RETRY } else { RETRY }
    }

    pub(super) fn retry(&mut self, sink: Sink, counts: &Counts) {
        self.write_tail(sink, counts);
        self.write_held(sink, counts);
    }

    /// The old file stays open until it has taken the rest of its last line. One that waits for that already is given up.
    pub(super) fn keep_tail(&mut self, sink: Sink, old: Output, counts: &Counts) {
        self.lose_tail(sink, counts);
        let rest = self.take_rest_of_line();
        self.tail = Some(Tail { output: old, rest }).filter(|tail| !tail.rest.is_empty());
    }

    fn write_tail(&mut self, sink: Sink, counts: &Counts) {
        let Some(Tail { output, rest }) = &mut self.tail else { return };
        if output.is_removed() || output.take_torn() {
            return self.lose_tail(sink, counts);
        }
        let (written, result) = output.write(rest);
        rest.drain(..written);
        self.account.room.give_back(written);
        match result {
            Ok(()) => self.tail = None,
            // It is not tried again: room elsewhere does not help.
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => self.lose_tail(sink, counts),
            Err(_) => {}
        }
    }

    fn lose_tail(&mut self, sink: Sink, counts: &Counts) {
        let Some(Tail { output, rest }) = self.tail.take() else { return };
        self.account.room.give_back(rest.len());
        counts.lose(&rest, &self.account);
        self.said += 1;
        error::say_of_log(
            sink,
            format_args!(
                "the last line of the file that the log {} had before it was opened anew stays torn; 1 line was lost",
                output.target()
            ),
        );
    }

    fn write_held(&mut self, sink: Sink, counts: &Counts) {
        if self.output.take_torn() {
            self.drop_rest_of_line(counts);
        }
        let mut has_taken = false;
        while let Some(lines) = self.held.front_mut() {
            let (written, result) = self.output.write(lines);
            has_taken |= written > 0;
            lines.drain(..written);
            let is_done = lines.is_empty();
            self.held_bytes -= written;
            self.account.room.give_back(written);
            if is_done {
                self.held.pop_front();
            }
            if let Err(error) = result {
                return self.has_failed(sink, &error, has_taken);
            }
        }
        self.account.room.is_behind(false);
        self.taken_at = None;
        let was_failing = std::mem::take(&mut self.is_failing);
        let count = self.take_unsaid();
        let target = self.output.target();
        if was_failing {
            error::say_of_log(sink, format_args!("the log {target} can be written again; {}", lost(count)));
        } else if count > 0 {
            error::say_of_log(
                sink,
                format_args!("more was logged than the log {target} took; {}", lost(count)),
            );
        }
    }

    /// It takes no more at the moment.
    fn has_failed(&mut self, sink: Sink, error: &io::Error, has_taken: bool) {
        self.account.room.is_behind(true);
        let (now, unread) = (Instant::now(), self.output.unread());
        // Others may fill what a reader has emptied.
        let is_read = self.taken_at.is_none() || has_taken || unread != self.unread;
        self.unread = unread;
        if is_read {
            self.taken_at = Some(now);
        }
        // One that is read slowly, or is being connected, is nothing to tell of; nor is one that another process completes
        // a line of.
        let has_lost = self.account.lost.load(Relaxed) > self.said;
        let is_busy = error.kind() == io::ErrorKind::ResourceBusy || self.has_reader(now);
        let is_worth_telling = !is_busy || has_lost || self.held_bytes > MOST_OF_ONE / 8;
        if is_worth_telling && !std::mem::replace(&mut self.is_failing, true) {
            let target = self.output.target();
            error::say_of_log(
                sink,
                format_args!(
                    "the log {target} cannot be written ({error}); lines are held until it can, up to {} MiB, \
                     what comes on top is lost",
                    MOST_OF_ONE >> 20,
                ),
            );
        }
    }

    /// How many lines have been lost that nobody was told of, which who asks does.
    fn take_unsaid(&mut self) -> u64 {
        let lost = self.account.lost.load(Relaxed);
        lost - std::mem::replace(&mut self.said, lost)
    }

    fn drop_rest_of_line(&mut self, counts: &Counts) {
        let rest = self.take_rest_of_line();
        self.account.room.give_back(rest.len());
        counts.lose(&rest, &self.account);
    }

    /// Takes the rest of a line, with which what is held begins. Its room stays taken.
    fn take_rest_of_line(&mut self) -> Vec<u8> {
        let Some(lines) = self.held.front_mut() else { return Vec::new() };
        let end = lines.iter().position(|byte| *byte == b'\n').map_or(lines.len(), |at| at + 1);
        let rest: Vec<u8> = lines.drain(..end).collect();
        if lines.is_empty() {
            self.held.pop_front();
        }
        self.held_bytes -= rest.len();
        rest
    }

    /// Loses what is held. How many lines, with those that were lost before and not said.
    pub(super) fn give_up(&mut self, counts: &Counts) -> u64 {
        self.output.forget(); // the rest of a line goes with what is held
        self.held_bytes = 0;
        for lines in self.tail.take().map(|tail| tail.rest).into_iter().chain(self.held.drain(..)) {
            self.account.room.give_back(lines.len());
            counts.lose(&lines, &self.account);
        }
        self.account.room.is_behind(false);
        self.taken_at = None;
        self.take_unsaid()
    }
}

fn lost(count: u64) -> String {
    match count {
        1 => "1 line was lost".to_owned(),
        _ => format!("{count} lines were lost"),
    }
}
