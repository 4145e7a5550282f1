//! Counts by kind (which timeout, which parse error) and by status code.
//!
//! A kind is a small enum with fixed slots, so that counting is an indexed addition and a report can name
//! every slot, the empty ones included. Used by the table in `worker.rs`; the engine maps its own errors to
//! these kinds, this crate knows none of them.

use serde::{Deserialize, Serialize};
use std::marker::PhantomData;

use crate::cell::Counter;
use crate::table::{Metric, Reading, View};

/// A closed set of kinds.
pub trait Kind: Copy + Eq + 'static {
    /// What the kinds tell apart: the label in a Prometheus report.
    const LABEL: &'static str;
    /// The name of each kind, by its index.
    const NAMES: &'static [&'static str];
    /// The slot, below `NAMES.len()`.
    fn index(self) -> usize;
}

macro_rules! kinds {
    ($(#[$doc:meta])* $name:ident, $label:literal { $($(#[$kind_doc:meta])* $kind:ident $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$kind_doc])* $kind,)* }

        impl $name {
            /// How many kinds there are.
            pub const COUNT: usize = [$($text),*].len();
            /// All of them, in the order of the reports.
            pub const ALL: [$name; Self::COUNT] = [$($name::$kind),*];
        }

        impl Kind for $name {
            const LABEL: &'static str = $label;
            const NAMES: &'static [&'static str] = &[$($text),*];

            #[inline]
            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

kinds! {
    /// Which wait ran out.
    Timeout, "wait" {
        /// The request head took too long.
        Head "head",
        /// The request body came too slowly.
        Body "body",
        /// The response was read too slowly.
        Write "write",
        /// A closing connection whose client did not finish sending.
        Linger "linger",
        /// The TLS handshake, or the header of the PROXY protocol, took too long.
        Handshake "handshake",
    }
}

kinds! {
    /// Why a request could not be read. The engine maps the errors of the codec to these slots.
    ParseError, "reason" {
        /// No request line, or a malformed one.
        RequestLine "request_line",
        /// A request target that is not valid.
        Target "target",
        /// An HTTP version that is not spoken here.
        Version "version",
        /// A malformed field line: no colon, no name, white space before the colon.
        Field "field",
        /// A field line folded over several lines.
        FoldedField "folded_field",
        /// NUL, a control character or a bare CR where none may be.
        ControlCharacter "control_character",
        /// A line that ends with LF alone.
        BareLineFeed "bare_line_feed",
        /// `Host` missing, repeated, invalid or contradicting the target.
        Host "host",
        /// An invalid or repeated `Content-Length`.
        ContentLength "content_length",
        /// A `Transfer-Encoding` that is unknown, doubled or not allowed here.
        TransferEncoding "transfer_encoding",
        /// `Content-Length` together with `Transfer-Encoding`.
        AmbiguousLength "ambiguous_length",
        /// A malformed chunk, chunk extension or trailer section.
        Chunk "chunk",
        /// A request target over the limit.
        TargetTooLong "target_too_long",
        /// A head over the limit of bytes or fields.
        HeadTooLarge "head_too_large",
        /// A body over the limit.
        BodyTooLarge "body_too_large",
        /// Whatever has no slot of its own.
        Other "other",
    }
}

kinds! {
    /// Why a connection could not be accepted.
    AcceptError, "reason" {
        /// This process may hold no further descriptor (`EMFILE`).
        ProcessDescriptors "process_descriptors",
        /// The system may hold no further descriptor (`ENFILE`).
        SystemDescriptors "system_descriptors",
        /// The kernel has no memory for it (`ENOBUFS`, `ENOMEM`).
        Memory "memory",
        /// The client had gone already (`ECONNABORTED`).
        Aborted "aborted",
        /// Any other error.
        Other "other",
    }
}

kinds! {
    /// How a TLS handshake came about.
    Handshake, "kind" {
        /// In full: the client did not come back.
        Full "full",
        /// Resumed: the client showed a ticket and was spared the certificate.
        Resumed "resumed",
        /// In full although the client showed a ticket: too old, of another site, or not ours.
        Refused "refused",
    }
}

kinds! {
    /// Why a connection was answered and closed right after accepting it.
    ConnectionRefusal, "reason" {
        /// As many are open as `limits connections` allows.
        Connections "connections",
        /// Its address has as many open as `limits connections-per-address` allows.
        Address "address",
        /// The worker is overloaded.
        Overload "overload",
        /// Stuck connections own as much as `limits memory` allows.
        Memory "memory",
        /// This process can hold no further descriptor.
        Descriptors "descriptors",
    }
}

kinds! {
    /// Why a request got no place among those in flight.
    QueueRefusal, "reason" {
        /// The queue was full.
        Full "full",
        /// It waited longer than the queue allows.
        Age "age",
        /// Its client went away.
        Client "client",
    }
}

kinds! {
    /// Why an application has not answered a request, or not to the end.
    GatewayFailure, "reason" {
        /// No connection.
        Unreachable "unreachable",
        /// It has closed the connection before its answer was complete.
        Closed "closed",
        /// No answer in time, or nothing more of it.
        Silent "silent",
        /// What it has answered is no answer.
        Malformed "malformed",
        /// It says that it has no room.
        Overloaded "overloaded",
        /// The queue before it was full.
        QueueFull "queue_full",
        /// The request waited longer than the queue allows.
        QueueAge "queue_age",
        /// Nothing of it is alive.
        Down "down",
    }
}

kinds! {
    /// Why a TLS connection has failed. The engine maps the errors of its sessions to these slots.
    TlsError, "reason" {
        /// The client does not speak TLS.
        NotTls "not_tls",
        /// There is no certificate for the name asked for.
        NoCertificate "no_certificate",
        /// No version, cipher suite, key exchange or protocol in common.
        NothingInCommon "nothing_in_common",
        /// The client's certificate is missing, or nobody known vouches for it.
        ClientCertificate "client_certificate",
        /// The client has refused us.
        Refused "refused",
        /// The client broke the protocol.
        Misbehaved "misbehaved",
        /// The client left during the handshake.
        Left "left",
        /// The header of the PROXY protocol is missing or malformed.
        Proxy "proxy_header",
    }
}

kinds! {
    /// Why an idle connection was closed before its time.
    Flush, "reason" {
        /// There were more than `limits keep-alive-connections`.
        Maximum "maximum",
        /// The worker is overloaded.
        Overload "overload",
        /// Memory is short.
        Memory "memory",
        /// The server ends.
        Drain "drain",
        /// What is open lacked a descriptor.
        Descriptors "descriptors",
    }
}

kinds! {
    /// Why an entry of the file cache was dropped for another: the bound that was reached.
    Eviction, "bound" {
        /// There were as many as may be.
        Entries "entries",
        /// Their contents took all the memory.
        Memory "memory",
        /// They held all the descriptors that are for files.
        Descriptors "descriptors",
        /// The process has few descriptors left, and connections need them more.
        Process "process_descriptors",
    }
}

kinds! {
    /// Why a stream of HTTP/2 was reset.
    StreamReset, "cause" {
        /// The client wanted it no more.
        Client "client",
        /// The client broke a rule, or sent a malformed request.
        Fault "fault",
        /// More at once than allowed; the client may try again.
        Refused "refused",
        /// The client took or sent too little for too long.
        Slow "slow",
        /// The answer could not be finished.
        Unfinished "unfinished",
        /// Answered before its content was read to the end.
        Unread "unread",
    }
}

kinds! {
    /// Why a connection of HTTP/2 was ended by an error.
    ConnectionFault, "reason" {
        /// Streams opened and reset at once.
        Reset "reset_flood",
        /// Streams that were opened to make us reset them.
        ProvokedReset "provoked_reset_flood",
        /// Field blocks of too many frames, or too long.
        Continuation "continuation_flood",
        /// Field sections that are small only while compressed.
        FieldSection "field_section_flood",
        /// Too many PING.
        Ping "ping_flood",
        /// Too many SETTINGS.
        Settings "settings_flood",
        /// Too much DATA without data.
        EmptyData "empty_data_flood",
        /// Too many PRIORITY and PRIORITY_UPDATE.
        Priority "priority_flood",
        /// Too many WINDOW_UPDATE.
        WindowUpdate "window_update_flood",
        /// Too many frames that mean nothing.
        Ignored "ignored_flood",
        /// A field block that could not be read.
        Compression "compression",
        /// A window that was not kept, or is none.
        FlowControl "flow_control",
        /// Any other rule.
        Protocol "protocol",
    }
}

/// Counts by kind; `N` is `K::COUNT`. One writer.
#[derive(Debug)]
pub struct Kinds<K, const N: usize> {
    counts: [Counter; N],
    kind: PhantomData<K>,
}

impl<K, const N: usize> Default for Kinds<K, N> {
    fn default() -> Self {
        Kinds { counts: [const { Counter::new() }; N], kind: PhantomData }
    }
}

impl<K: Kind, const N: usize> Kinds<K, N> {
    /// Counts `amount` more of this kind.
    #[inline]
    pub fn add(&self, kind: K, amount: u64) {
        if let Some(count) = self.counts.get(kind.index()) {
            count.add(amount);
        }
    }
}

impl<K: Kind, const N: usize> Metric for Kinds<K, N> {
    type Reading = KindCounts<K>;

    fn read(&self) -> KindCounts<K> {
        KindCounts { counts: self.counts.iter().map(Counter::value).collect(), kind: PhantomData }
    }
}

/// Counts by kind as they were read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<u64>", into = "Vec<u64>", bound = "K: Kind")]
pub struct KindCounts<K> {
    counts: Box<[u64]>,
    kind: PhantomData<K>,
}

impl<K> From<KindCounts<K>> for Vec<u64> {
    fn from(from: KindCounts<K>) -> Vec<u64> {
        from.counts.into_vec()
    }
}

impl<K: Kind> From<Vec<u64>> for KindCounts<K> {
    fn from(mut counts: Vec<u64>) -> KindCounts<K> {
        // Another version of the program may know fewer kinds, or more.
        counts.resize(K::NAMES.len(), 0);
        KindCounts { counts: counts.into(), kind: PhantomData }
    }
}

impl<K: Kind> Default for KindCounts<K> {
    fn default() -> Self {
        KindCounts { counts: vec![0; K::NAMES.len()].into_boxed_slice(), kind: PhantomData }
    }
}

impl<K: Kind> KindCounts<K> {
    /// How often this kind was counted.
    pub fn count(&self, kind: K) -> u64 {
        self.counts.get(kind.index()).copied().unwrap_or(0)
    }

    /// All kinds together.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}

impl<K: Kind> Reading for KindCounts<K> {
    fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine = mine.wrapping_add(*theirs);
        }
    }

    fn view(&self) -> View<'_> {
        View::Kinds { label: K::LABEL, names: K::NAMES, counts: &self.counts }
    }
}

/// The status codes that have a slot: 100 to 599.
const STATUSES: usize = 500;

/// Responses by status code. One writer.
#[derive(Debug)]
pub struct Statuses([Counter; STATUSES]);

impl Default for Statuses {
    fn default() -> Self {
        Statuses([const { Counter::new() }; STATUSES])
    }
}

impl Statuses {
    /// Counts one response. A code outside 100 to 599 is not counted: none is ever sent.
    #[inline]
    pub fn add(&self, status: u16) {
        if let Some(count) = self.0.get(usize::from(status).wrapping_sub(100)) {
            count.add(1);
        }
    }
}

impl Metric for Statuses {
    type Reading = StatusCounts;

    fn read(&self) -> StatusCounts {
        StatusCounts(self.0.iter().map(Counter::value).collect())
    }
}

/// Responses by status code as they were read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(u16, u64)>", into = "Vec<(u16, u64)>")]
pub struct StatusCounts(Box<[u64]>);

impl From<StatusCounts> for Vec<(u16, u64)> {
    fn from(from: StatusCounts) -> Vec<(u16, u64)> {
        from.codes().collect()
    }
}

impl From<Vec<(u16, u64)>> for StatusCounts {
    fn from(codes: Vec<(u16, u64)>) -> StatusCounts {
        let mut counts = StatusCounts::default();
        for (status, count) in codes {
            if let Some(slot) = counts.0.get_mut(usize::from(status).wrapping_sub(100)) {
                *slot = count;
            }
        }
        counts
    }
}

impl Default for StatusCounts {
    fn default() -> Self {
        StatusCounts(vec![0; STATUSES].into_boxed_slice())
    }
}

impl StatusCounts {
    /// How many responses had this status code.
    pub fn count(&self, status: u16) -> u64 {
        self.0.get(usize::from(status).wrapping_sub(100)).copied().unwrap_or(0)
    }

    /// How many responses were of a class: 1 for 1xx, to 5 for 5xx.
    pub fn class(&self, class: u16) -> u64 {
        let codes = self.0.iter().zip(100u16..);
        codes.filter(|(_, status)| status / 100 == class).map(|(count, _)| count).sum()
    }

    /// All responses.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The codes that were sent at least once, in order, with their counts.
    pub fn codes(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        (100u16..).zip(self.0.iter().copied()).filter(|(_, count)| *count != 0)
    }
}

impl Reading for StatusCounts {
    fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = mine.wrapping_add(*theirs);
        }
    }

    fn view(&self) -> View<'_> {
        View::Statuses(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_add_up_to_classes() {
        let statuses = Statuses::default();
        for status in [100, 200, 200, 206, 304, 404, 599, 99, 600, 0, u16::MAX] {
            statuses.add(status);
        }
        let read = statuses.read();
        assert_eq!([1, 2, 3, 4, 5].map(|class| read.class(class)), [1, 3, 1, 1, 1]);
        assert_eq!(
            read.codes().collect::<Vec<_>>(),
            [(100, 1), (200, 2), (206, 1), (304, 1), (404, 1), (599, 1)]
        );
        assert_eq!(read.total(), 7);
    }

    #[test]
    fn kinds_have_their_own_slots() {
        let kinds = Kinds::<ParseError, { ParseError::COUNT }>::default();
        for (amount, kind) in (1..).zip(ParseError::ALL) {
            kinds.add(kind, amount);
        }
        let read = kinds.read();
        for (amount, kind) in (1..).zip(ParseError::ALL) {
            assert_eq!(read.count(kind), amount);
        }
        assert_eq!(ParseError::NAMES.len(), ParseError::COUNT);
    }
}
