//! What is said of a change once every server process goes by it: `… has changed and is in use`.
//!
//! The master gives the processes what it has read and sends a [`ToServer::Mark`](crate::link::ToServer) behind it. Orders
//! are obeyed in the order in which they come, so who sends the mark back goes by all that came before it.

use super::Master;
use super::servers::News;
use std::collections::HashSet;
use tidegate_core::log;

/// Sentences that wait for server processes.
#[derive(Default)]
pub struct Announcements {
    last: u64,
    waiting: Vec<Announcement>,
}

struct Announcement {
    /// Of the mark.
    number: u64,
    /// Processes that have not sent it back.
    waits_for: HashSet<u64>,
    sentences: Vec<String>,
}

impl Announcements {
    /// Something has become of a server process.
    pub fn advance(&mut self, news: &News) {
        match *news {
            News::Marked(id, number) => {
                if let Some(waiting) = self.waiting.iter_mut().find(|waiting| waiting.number == number) {
                    waiting.waits_for.remove(&id);
                }
            }
            News::Ended(id) => self.waiting.iter_mut().for_each(|waiting| {
                waiting.waits_for.remove(&id);
            }),
            _ => return,
        }
        self.say().iter().for_each(log::info);
    }

    /// What all go by now.
    fn say(&mut self) -> Vec<String> {
        let done = self.waiting.extract_if(.., |waiting| waiting.waits_for.is_empty());
        done.flat_map(|announcement| announcement.sentences).collect()
    }
}

impl Master {
    /// Says this in the log once all server processes go by what they were given before.
    pub(super) fn announce(&mut self, sentences: Vec<String>) {
        if sentences.is_empty() {
            return;
        }
        self.announcements.last += 1;
        let number = self.announcements.last;
        let waits_for = self.servers.mark(number);
        self.announcements.waiting.push(Announcement { number, waits_for, sentences });
        self.announcements.say().iter().for_each(log::info);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_said_when_all_go_by_it() {
        let waiting = |number, ids: &[u64]| Announcement {
            number,
            waits_for: ids.iter().copied().collect(),
            sentences: vec![format!("{number}")],
        };
        let mut announcements =
            Announcements { last: 2, waiting: vec![waiting(1, &[7, 8]), waiting(2, &[7, 8])] };
        let mut hear = |news| {
            announcements.advance(&news);
            announcements.waiting.iter().map(|left| left.number).collect::<Vec<_>>()
        };
        assert_eq!(hear(News::Marked(7, 1)), [1, 2]);
        // One that was told later knows nothing of the mark before.
        assert_eq!(hear(News::Marked(9, 1)), [1, 2]);
        assert_eq!(hear(News::Marked(8, 2)), [1, 2]);
        assert_eq!(hear(News::Ended(7)), [1]);
        assert_eq!(hear(News::Marked(8, 1)), [0; 0]);
    }
}
