//! Questions that other threads look into: each once, however many ask it, and those of one client in turn, so that it leaves
//! room for others.

use super::cache::Key;
use super::directory::Away;
use super::guesses::{Guesser, Guesses, TooOften};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidegate_core::user::User;
use tidegate_io::blocking::Overloaded;
use tidegate_io::locking::lock;
use tidegate_io::oneshot::{Promise, Promised, promise};

/// Pairs of one client that are looked into at once: others come in between.
const OF_A_CLIENT: usize = 8;
/// Pairs of one client that wait for those, and of all clients together.
const IN_LINE: usize = 128;
const IN_ALL_LINES: usize = 4096;

/// What has been found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A pair is this user's.
    Known(Arc<User>),
    /// A pair is nobody's.
    Nobody,
    /// Whether somebody belongs to one of some groups.
    Member(bool),
    /// This client has guessed too often.
    Later(Duration),
    /// The directory cannot say.
    Away(Duration),
}

impl From<Away> for Outcome {
    fn from(away: Away) -> Outcome {
        Outcome::Away(away.retry_after)
    }
}

impl From<TooOften> for Outcome {
    fn from(TooOften(retry_after): TooOften) -> Outcome {
        Outcome::Later(retry_after)
    }
}

/// What has become of a question.
pub enum Answer {
    /// This is known at once. Whether it was remembered, or could be said without that.
    Known(Outcome),
    /// It is being looked into. `None` in the end: nobody has, since too much was to do.
    Asked(Promised<Outcome>),
    /// Too much is to do.
    Overloaded,
}

/// What nobody has asked yet.
pub struct Question {
    /// What it is: who asks the same waits for the same answer.
    pub key: Key,
    /// Who asks.
    pub client: Vec<u8>,
    /// Whom it is counted for if it is a guess.
    pub guesser: Option<Guesser>,
    /// Monotonic nanoseconds.
    pub asked: u64,
}

/// What is looked into, and what waits for its turn.
pub struct Questions {
    asked: Mutex<Asked>,
    guesses: Guesses,
}

#[derive(Default)]
struct Asked {
    /// Those who wait for the answer to a question.
    waiting: HashMap<Key, Vec<Promise<Outcome>>>,
    clients: HashMap<Vec<u8>, Line>,
    /// How many questions stand in lines.
    in_line: usize,
}

/// The questions of one client.
#[derive(Default)]
struct Line {
    /// How many are looked into.
    under_way: usize,
    turns: VecDeque<Turn>,
}

/// Has a question looked into by another thread.
type Turn = Box<dyn FnOnce() -> Result<(), Overloaded> + Send>;

impl Questions {
    /// None yet; guesses among them are counted here.
    pub fn new(guesses: Guesses) -> Questions {
        Questions { asked: Mutex::default(), guesses }
    }

    /// Where guesses are counted.
    pub fn guesses(&self) -> &Guesses {
        &self.guesses
    }

    /// Has something looked into, unless it is already. A guess is counted before it is made, and taken back when it was none.
    pub fn ask(
        self: &Arc<Self>,
        question: Question,
        run: impl FnOnce(UnderWay) -> Result<(), Overloaded> + Send + 'static,
    ) -> Answer {
        let (promise, promised) = promise();
        let (key, client) = (question.key, question.client.clone());
        let turn = {
            let mut asked = lock(&self.asked);
            let asked = &mut *asked;
            if let Some(waiting) = asked.waiting.get_mut(&key) {
                waiting.push(promise);
                return Answer::Asked(promised);
            }
            if let Some(guesser) = &question.guesser
                && let Err(too_often) = self.guesses.charge(guesser, question.asked)
            {
                return Answer::Known(too_often.into());
            }
            let line = asked.clients.entry(client).or_default();
            let has_to_wait = line.under_way >= OF_A_CLIENT;
            if has_to_wait && (line.turns.len() >= IN_LINE || asked.in_line >= IN_ALL_LINES) {
                self.not_guessed(&question);
                return Answer::Overloaded;
            }
            asked.waiting.insert(key, vec![promise]);
            let of = self.clone();
            let turn: Turn = Box::new(move || run(UnderWay { of, question, is_over: false }));
            if has_to_wait {
                line.turns.push_back(turn);
                asked.in_line += 1;
                return Answer::Asked(promised);
            }
            line.under_way += 1;
            turn
        };
        // One that is not taken is dropped, which ends it.
        match turn() {
            Ok(()) => Answer::Asked(promised),
            Err(Overloaded) => Answer::Overloaded,
        }
    }

    /// Lets the client's next question have the turn of one that has ended.
    fn give_turn(&self, client: &[u8]) {
        let turn = {
            let mut asked = lock(&self.asked);
            let asked = &mut *asked;
            let Some(line) = asked.clients.get_mut(client) else { return };
            let turn = line.turns.pop_front();
            match turn.is_some() {
                true => asked.in_line -= 1,
                false => line.under_way -= 1,
            }
            if line.under_way == 0 {
                asked.clients.remove(client);
            }
            turn
        };
        if let Some(turn) = turn {
            // One that is not taken is dropped, and ends like this one.
            let _ = turn();
        }
    }

    /// Whether nothing is under way, for tests.
    #[cfg(test)]
    pub fn are_none(&self) -> bool {
        let asked = lock(&self.asked);
        asked.waiting.is_empty() && asked.clients.is_empty() && asked.in_line == 0
    }

    /// What was counted as a guess was none.
    fn not_guessed(&self, question: &Question) {
        if let Some(guesser) = &question.guesser {
            self.guesses.give_back(guesser, question.asked);
        }
    }
}

/// A question under way: what it has taken is given back in the end, whatever comes of it.
pub struct UnderWay {
    of: Arc<Questions>,
    question: Question,
    /// Nobody waits for it any more.
    is_over: bool,
}

impl UnderWay {
    /// Looks into it, and tells everybody who waits for it.
    pub fn find_out(mut self, look: impl FnOnce(&Question) -> Outcome) {
        {
            let mut asked = lock(&self.of.asked);
            let is_wanted = |promises: &Vec<Promise<Outcome>>| promises.iter().any(Promise::is_wanted);
            self.is_over = !asked.waiting.get(&self.question.key).is_some_and(is_wanted);
            if self.is_over {
                // In the same moment: who comes after this begins anew.
                asked.waiting.remove(&self.question.key);
            }
        }
        if self.is_over {
            self.of.not_guessed(&self.question);
            return; // all have gone
        }
        let outcome = look(&self.question);
        if !matches!(outcome, Outcome::Nobody | Outcome::Later(_)) {
            self.of.not_guessed(&self.question);
        }
        let promises = lock(&self.of.asked).waiting.remove(&self.question.key);
        self.is_over = true;
        promises.into_iter().flatten().for_each(|promise| promise.fulfil(outcome.clone()));
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if !self.is_over {
            lock(&self.of.asked).waiting.remove(&self.question.key);
            self.of.not_guessed(&self.question);
        }
        self.of.give_turn(&self.question.client);
    }
}

/// What an answer comes to, for tests.
#[cfg(test)]
pub(super) fn outcome(answer: Answer) -> Outcome {
    match answer {
        Answer::Known(outcome) => outcome,
        Answer::Overloaded => panic!("it is looked into"),
        Answer::Asked(promised) => tidegate_testkit::block_on(promised).expect("it is answered"),
    }
}
