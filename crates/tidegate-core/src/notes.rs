//! What is said of a request that is explained (see `explain`), and the reasons of refusals on a thread that explains.

use crate::response::{Author, Response};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// What has been said of a request, in order.
#[derive(Clone, Default)]
pub struct Notes(Rc<Inner>);

#[derive(Default)]
struct Inner {
    sentences: RefCell<Vec<String>>,
    asks_application: Cell<bool>,
    is_malformed: Cell<bool>,
}

thread_local! {
    /// Where the reasons of refusals go on a thread that explains.
    static LISTENING: RefCell<Option<Notes>> = const { RefCell::new(None) };
}

/// Takes the reason of a refusal, where somebody wants it explained.
pub(crate) fn takes_reason(reason: &dyn Fn() -> String) -> bool {
    LISTENING.with_borrow(|notes| notes.as_ref().map(|notes| notes.push(reason())).is_some())
}

/// Reasons on this thread go there from now on.
pub(crate) fn listen(notes: &Notes) {
    LISTENING.set(Some(notes.clone()));
}

impl Notes {
    /// An application would have to be asked.
    pub(crate) fn asks_application(&self) {
        self.0.asks_application.set(true);
    }

    /// Whether no request may have the path.
    pub(crate) fn set_malformed(&self, is_malformed: bool) {
        self.0.is_malformed.set(is_malformed);
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

    /// Whether a response is what an application would have said, and nobody has asked it.
    pub fn is_unknown(&self, response: &Response) -> bool {
        self.0.asks_application.get() && response.author == Author::Application
    }
}
