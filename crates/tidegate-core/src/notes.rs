//! What is said of a request that is explained (see `explain`), and the reasons of refusals on a thread that explains.

use crate::response::Response;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// What has been said of a request, in order.
#[derive(Clone, Default)]
pub struct Notes(Rc<Inner>);

#[derive(Default)]
struct Inner {
    sentences: RefCell<Vec<String>>,
    /// Nobody reads what is said of each route.
    is_short: bool,
    asks_application: Cell<bool>,
    is_malformed: Cell<bool>,
    unanswered: Cell<Option<&'static str>>,
    /// The first gate that would have had to ask somebody, whom nobody asks here.
    undecided: RefCell<Option<String>>,
}

/// What is known of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// Its fields and its status.
    All,
    /// Its status; an application says the rest.
    Status,
    /// An application says all of it.
    Nothing,
}

thread_local! {
    /// Where the reasons of refusals go on a thread that explains.
    static LISTENING: RefCell<Option<Notes>> = const { RefCell::new(None) };
}

/// Takes the reason of a refusal, where somebody wants it explained.
pub(crate) fn takes_reason(reason: &dyn Fn() -> String) -> bool {
    LISTENING.with_borrow(|notes| notes.as_ref().map(|notes| notes.push(reason())).is_some())
}

/// A gate has to ask somebody: where that is explained, nobody is asked, and what follows holds only if it lets the request
/// in.
pub(crate) fn takes_undecided(gate: &dyn Fn() -> String) -> bool {
    let take = |notes: &Notes| {
        notes.0.undecided.borrow_mut().get_or_insert_with(gate);
    };
    LISTENING.with_borrow(|notes| notes.as_ref().map(take).is_some())
}

/// A request gets no answer, where that is explained.
pub(crate) fn takes_unanswered(why: &'static str) {
    LISTENING.with_borrow(|notes| notes.iter().for_each(|notes| notes.set_unanswered(why)));
}

/// Whether a gate has been passed by that way on this thread.
pub(crate) fn is_undecided() -> bool {
    LISTENING.with_borrow(|notes| notes.as_ref().is_some_and(|notes| notes.undecided().is_some()))
}

/// Whether somebody wants a request explained on this thread.
pub(crate) fn listens() -> bool {
    LISTENING.with_borrow(Option::is_some)
}

/// Reasons on this thread go there from now on.
pub(crate) fn listen(notes: &Notes) {
    LISTENING.set(Some(notes.clone()));
}

impl Notes {
    /// Without a sentence for each route that is passed by.
    pub fn short() -> Notes {
        Notes(Rc::new(Inner { is_short: true, ..Inner::default() }))
    }

    pub(crate) fn is_short(&self) -> bool {
        self.0.is_short
    }

    /// An application would have to be asked.
    pub(crate) fn asks_application(&self) {
        self.0.asks_application.set(true);
    }

    /// Whether no request may have the path.
    pub(crate) fn set_malformed(&self, is_malformed: bool) {
        self.0.is_malformed.set(is_malformed);
    }

    /// Why there is no answer at all.
    pub fn unanswered(&self) -> Option<&'static str> {
        self.0.unanswered.get()
    }

    /// The gate that nobody knows of whether it lets the request in: the answer is what there is if it does.
    pub fn undecided(&self) -> Option<String> {
        self.0.undecided.borrow().clone()
    }

    pub(crate) fn set_unanswered(&self, why: &'static str) {
        self.0.unanswered.set(Some(why));
    }

    /// Adds a sentence.
    pub fn push(&self, sentence: String) {
        self.0.sentences.borrow_mut().push(sentence);
    }

    /// The sentences so far.
    pub fn take(&self) -> Vec<String> {
        self.0.sentences.take()
    }

    /// Whether the request has a path that no request may have.
    pub fn is_malformed(&self) -> bool {
        self.0.is_malformed.get()
    }

    /// How much of a response is known where an application would have to be asked, and nobody has.
    pub fn known(&self, response: &Response) -> Known {
        match self.0.asks_application.get() && response.author.is_application() {
            // An error is never the rehearsed answer itself: its page is, and the status stays.
            true if response.status.is_error() => Known::Status,
            true => Known::Nothing,
            false => Known::All,
        }
    }
}
