//! Statistics of sites and routes: one line of counters and up to six histograms for each, in each worker.
//!
//! [`SeriesDirectory`] is one for each process: it gives every site and route of the settings a dense [`SeriesId`], which
//! stays the same over reloads as long as site and route have the same names. Names come from settings alone: nothing that
//! a client sends makes a series. [`SeriesTable`] is a part of what a worker writes: a line of 64 bytes for each id, made
//! when settings are loaded, and histograms from a bounded store. [`SeriesFigures`] are plain values with their names, as
//! they are added up, sent to the master and reported.
//!
//! What is counted is counted once: with the end of a request, as `conn/send.rs` `tally` does it. A request of which no
//! site is known counts for [`SeriesId::NONE`].

mod answer;
mod conventions;
mod directory;
mod exemplars;
mod figures;
mod prometheus;
mod table;

pub use answer::{AnswerKey, RequestKind};
pub use conventions::{REQUEST_DURATION, STATUS_CODE};
pub use directory::{SeriesDirectory, SeriesName, SeriesNames, SiteIds};
pub use exemplars::{Exemplar, SampledRequest};
pub use figures::{RouteFigures, SeriesFigures, SiteFigures, Times};
pub use prometheus::write_buckets;
pub use table::{Answered, Phase, SeriesTable};

/// What stands in the place of a site where a request belongs to none: it could not be read, or nobody answers for its
/// host.
pub const NO_SITE: &str = "_none";
/// What stands in the place of names that the settings no longer have, or of what a report has no room for.
pub const OTHER: &str = "_other";

/// The bit of numbers of which nothing is counted: far beyond the lines of a worker.
const UNCOUNTED: u32 = 1 << 23;

/// A site or a route, by a number that is dense within a process. Three bytes, so that it fits between what else is
/// remembered of a request; there are sixteen million, of which a worker has lines for the first million.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SeriesId([u8; 3]);

impl SeriesId {
    /// Of requests that belong to no site.
    pub const NONE: SeriesId = SeriesId([0; 3]);

    /// Of a number. What is too large is nobody's.
    pub(crate) fn of(number: u32) -> SeriesId {
        let [a, b, c, rest] = number.to_le_bytes();
        if rest == 0 { SeriesId([a, b, c]) } else { SeriesId::NONE }
    }

    /// The same site or route, of which nothing is counted: a number of its own for which no worker has a line.
    pub fn uncounted(self) -> SeriesId {
        SeriesId::of(self.number() | UNCOUNTED)
    }

    /// The one that it would be counted under.
    pub fn counted(self) -> SeriesId {
        SeriesId::of(self.number() & !UNCOUNTED)
    }

    /// As a number.
    #[inline]
    pub fn number(self) -> u32 {
        let SeriesId([a, b, c]) = self;
        u32::from_le_bytes([a, b, c, 0])
    }
}

impl Default for SeriesId {
    fn default() -> SeriesId {
        SeriesId::NONE
    }
}
