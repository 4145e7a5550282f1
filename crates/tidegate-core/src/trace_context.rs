//! The trace that a request belongs to, across all who have to do with it: the fields `traceparent` and `tracestate`
//! (W3C Trace Context, Recommendation of 23 November 2021).
//!
//! `trace` begins a [`TraceContext`] where the site has `trace-context begin`; `modules/gateway` passes it to applications,
//! logs and reports tell its id. Nothing is believed but what a trusted proxy says.

use crate::trace::random;
use std::borrow::Cow;
use tidegate_config::settings::Sampling;
use tidegate_http::Fields;

/// The field that tells the trace and the span of who asks.
const TRACEPARENT: &str = "traceparent";
/// The field in which systems of tracing keep what is their own.
const TRACESTATE: &str = "tracestate";
/// Bytes of a `traceparent` of version 00: version, id of the trace, id of the span, flags.
const LENGTH: usize = 55;
/// Where the id of the span stands in it.
const SPAN: std::ops::Range<usize> = 36..52;
/// Bytes of a `tracestate` that go on; what is longer loses members at its end (section 3.3.1.5).
const STATE_MAX: usize = 512;
/// Members of a `tracestate`; one with more is none (section 3.3.1.1).
const MEMBERS_MAX: usize = 32;
/// Bytes of a member's key, and of its value.
const PART_MAX: usize = 256;
/// The bit of the flags that says that the trace is sampled.
const SAMPLED: u8 = 1;

/// Whether a field is one of the two.
pub fn is_field(name: &str) -> bool {
    [TRACEPARENT, TRACESTATE].iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// A request in its trace: this server has one span of its own in it, and one for each application that it asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    /// As the first application gets it: with the id of the span in which it is asked.
    traceparent: [u8; LENGTH],
    /// The id of the span of this server, sixteen digits.
    span_id: [u8; 16],
    /// The id of the span of who has asked, sixteen digits.
    parent: Option<[u8; 16]>,
    /// Empty where there is none.
    tracestate: Box<str>,
}

impl TraceContext {
    /// That which a trusted proxy tells of, with a span of this server; else a new one, of which a share is sampled. `None`
    /// where the system has no random numbers.
    pub(crate) fn begin(sampling: Sampling, is_trusted: bool, fields: &Fields<'_>) -> Option<TraceContext> {
        let told = is_trusted.then(|| fields.single(TRACEPARENT).and_then(Told::read)).flatten();
        let (span_id, of_try) = (new_span_id()?, new_span_id()?);
        match told {
            Some(told) => Some(TraceContext {
                traceparent: write(&told.trace_id, &of_try, told.is_sampled),
                span_id,
                parent: Some(told.parent),
                tracestate: read_state(fields.all(TRACESTATE)).unwrap_or_default(),
            }),
            None => {
                let id = random_but_zero::<16>()?;
                let trace_id = digits(id);
                Some(TraceContext {
                    traceparent: write(&trace_id, &of_try, sampling.takes(&id)),
                    span_id,
                    parent: None,
                    tracestate: Box::default(),
                })
            }
        }
    }

    /// As applications get it: what they do hangs below the span in which they are asked.
    pub fn traceparent(&self) -> &str {
        self.part(0..LENGTH)
    }

    /// The same with another span, of sixteen hexadecimal digits.
    fn traceparent_of(&self, span_id: &[u8; 16]) -> [u8; LENGTH] {
        let mut text = self.traceparent;
        text[SPAN].copy_from_slice(span_id);
        text
    }

    /// Writes the span of one try in place of that of an earlier one, wherever in `head` it is told.
    pub(crate) fn rename_span(&self, head: &mut [u8], earlier: &[[u8; 16]], span_id: &[u8; 16]) {
        for start in 0..head.len().saturating_sub(LENGTH - 1) {
            let Some(told) = head.get_mut(start..start + LENGTH) else { return };
            let is_ours = |known: &[u8; 16]| *told == self.traceparent_of(known);
            if told.starts_with(b"00-") && earlier.iter().any(is_ours) {
                told.copy_from_slice(&self.traceparent_of(span_id));
            }
        }
    }

    /// What systems of tracing keep there; empty where there is nothing.
    pub fn tracestate(&self) -> &str {
        &self.tracestate
    }

    /// Both as fields, without one that is empty.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, &[u8])> {
        let state = (TRACESTATE, self.tracestate().as_bytes());
        [(TRACEPARENT, &self.traceparent[..]), state].into_iter().filter(|(_, value)| !value.is_empty())
    }

    /// The same for who is asked about the request, and not with it: below the span of this server itself.
    pub fn own_fields(&self) -> impl Iterator<Item = (&'static str, Cow<'_, [u8]>)> {
        let traceparent = Cow::Owned(self.traceparent_of(&self.span_id).to_vec());
        let state = (TRACESTATE, Cow::Borrowed(self.tracestate().as_bytes()));
        [(TRACEPARENT, traceparent), state].into_iter().filter(|(_, value)| !value.is_empty())
    }

    /// The id of the trace, 32 hexadecimal digits.
    pub fn trace_id(&self) -> &str {
        self.part(3..35)
    }

    /// The id of the span of this server, sixteen hexadecimal digits.
    pub fn span_id(&self) -> &str {
        std::str::from_utf8(&self.span_id).unwrap_or_default()
    }

    /// The id of the span in which the first application is asked, sixteen hexadecimal digits.
    pub(crate) fn first_try(&self) -> [u8; 16] {
        let mut id = [0; 16];
        id.copy_from_slice(&self.traceparent[SPAN]);
        id
    }

    /// The id of the span of who has asked; empty where the trace begins here.
    pub fn parent_id(&self) -> &str {
        self.parent.as_ref().and_then(|parent| std::str::from_utf8(parent).ok()).unwrap_or_default()
    }

    /// Whether its spans are to be told of.
    pub fn is_sampled(&self) -> bool {
        self.traceparent.ends_with(b"1")
    }

    fn part(&self, range: std::ops::Range<usize>) -> &str {
        self.traceparent.get(range).and_then(|part| std::str::from_utf8(part).ok()).unwrap_or_default()
    }
}

/// What a `traceparent` says, as digits.
struct Told {
    trace_id: [u8; 32],
    parent: [u8; 16],
    is_sampled: bool,
}

impl Told {
    /// Reads section 3.2. Of a version that is not known, what version 00 has of it.
    fn read(value: &[u8]) -> Option<Told> {
        let (known, rest) = value.split_at_checked(LENGTH)?;
        let version = known.get(..2)?;
        let is_hex = |part: &[u8]| part.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let is_longer = !rest.is_empty();
        if !is_hex(version)
            || version == b"ff"
            || is_longer && (version == b"00" || !rest.starts_with(b"-"))
            || [2, 35, 52].iter().any(|at| known.get(*at) != Some(&b'-'))
        {
            return None;
        }
        let trace_id: [u8; 32] = known.get(3..35)?.try_into().ok()?;
        let parent: [u8; 16] = known.get(36..52)?.try_into().ok()?;
        let flags = known.get(53..)?;
        let is_nothing = |id: &[u8]| id.iter().all(|digit| *digit == b'0');
        let is_fit = is_hex(&trace_id) && is_hex(&parent) && is_hex(flags);
        if !is_fit || is_nothing(&trace_id) || is_nothing(&parent) {
            return None;
        }
        let low = flags.last().and_then(|digit| char::from(*digit).to_digit(16))?;
        Some(Told { trace_id, parent, is_sampled: low & u32::from(SAMPLED) != 0 })
    }
}

/// Reads a `tracestate` that may come in several fields (section 3.3). `None` where it is none: it is not passed on then.
fn read_state<'v>(values: impl Iterator<Item = &'v [u8]>) -> Option<Box<str>> {
    let mut state = String::new();
    let mut keys: [&[u8]; MEMBERS_MAX] = [&[]; MEMBERS_MAX];
    let (mut members, mut has_room) = (0, true);
    for member in values.flat_map(|value| value.split(|byte| *byte == b',')) {
        let member = member.trim_ascii();
        if member.is_empty() {
            continue;
        }
        let (key, value) = member.split_at_checked(member.iter().position(|byte| *byte == b'=')?)?;
        if !is_key(key) || !is_value(value.get(1..)?) || keys.contains(&key) {
            return None;
        }
        *keys.get_mut(members)? = key;
        members += 1;
        let text = std::str::from_utf8(member).ok()?;
        has_room &= state.len() + 1 + text.len() <= STATE_MAX + usize::from(state.is_empty());
        if has_room {
            if !state.is_empty() {
                state.push(',');
            }
            state.push_str(text);
        }
    }
    Some(state.into_boxed_str())
}

fn is_key(key: &[u8]) -> bool {
    let is_fit = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-*/@".contains(byte);
    let starts = key.first().is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    starts && key.len() <= PART_MAX && key.iter().all(is_fit)
}

fn is_value(value: &[u8]) -> bool {
    let is_fit = |byte: &u8| matches!(byte, b' '..=b'~') && *byte != b'=';
    (1..=PART_MAX).contains(&value.len()) && value.iter().all(is_fit)
}

fn write(trace_id: &[u8; 32], span_id: &[u8; 16], is_sampled: bool) -> [u8; LENGTH] {
    let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
    text[3..35].copy_from_slice(trace_id);
    text[36..52].copy_from_slice(span_id);
    text[54] += u8::from(is_sampled);
    text
}

/// As hexadecimal digits.
pub(crate) fn digits<const BYTES: usize, const DIGITS: usize>(bytes: [u8; BYTES]) -> [u8; DIGITS] {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut text = [0; DIGITS];
    for (pair, byte) in text.chunks_exact_mut(2).zip(bytes) {
        pair.copy_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
    }
    text
}

/// The id of a span: sixteen hexadecimal digits. `None` where the system has no random numbers.
pub(crate) fn new_span_id() -> Option<[u8; 16]> {
    random_but_zero::<8>().map(digits)
}

/// An id: all zeros is none (sections 3.2.2.3 and 3.2.2.4).
fn random_but_zero<const BYTES: usize>() -> Option<[u8; BYTES]> {
    let mut id = random::<BYTES>()?;
    if id == [0; BYTES] {
        id.fill(1);
    }
    Some(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_http::Field;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    fn begin(is_trusted: bool, sent: &[(&'static str, &str)]) -> TraceContext {
        let fields: Vec<_> =
            sent.iter().map(|(name, value)| Field { name, value: value.as_bytes() }).collect();
        TraceContext::begin(Sampling::of_millionths(0), is_trusted, &Fields::new(&fields)).unwrap()
    }

    #[test]
    fn which_traces_are_continued() {
        let good = format!("00-{TRACE}-{SPAN}-01");
        for (value, is_continued, is_sampled) in [
            (good.clone(), true, true),
            (format!("00-{TRACE}-{SPAN}-00"), true, false),
            (format!("00-{TRACE}-{SPAN}-fe"), true, false),
            (format!("00-{TRACE}-{SPAN}-03"), true, true),
            (format!("01-{TRACE}-{SPAN}-01"), true, true),
            (format!("cc-{TRACE}-{SPAN}-01-what-comes-later"), true, true),
            (format!("cc-{TRACE}-{SPAN}-01.what"), false, false),
            (format!("00-{TRACE}-{SPAN}-01-"), false, false),
            (format!("ff-{TRACE}-{SPAN}-01"), false, false),
            (format!("0-{TRACE}-{SPAN}-01"), false, false),
            (format!("00-{}-{SPAN}-01", TRACE.to_uppercase()), false, false),
            (format!("00-{TRACE}-{}-01", SPAN.to_uppercase()), false, false),
            (format!("00-{TRACE}-{SPAN}-0A"), false, false),
            (format!("00-{}-{SPAN}-01", "0".repeat(32)), false, false),
            (format!("00-{TRACE}-{}-01", "0".repeat(16)), false, false),
            (format!("00_{TRACE}-{SPAN}-01"), false, false),
            (format!("00-{TRACE}-{SPAN}"), false, false),
            (format!("00-{TRACE}-{SPAN}-1"), false, false),
            (format!("00-{}é-{SPAN}-01", &TRACE[2..]), false, false),
            (String::new(), false, false),
        ] {
            let context = begin(true, &[("Traceparent", &value)]);
            assert_eq!(context.trace_id() == TRACE, is_continued, "{value}");
            assert_eq!(context.parent_id(), if is_continued { SPAN } else { "" }, "{value}");
            assert_eq!(context.is_sampled(), is_sampled, "{value}");
            assert_ne!(context.span_id(), SPAN, "{value}");
            assert_ne!(context.span_id().as_bytes(), context.first_try(), "{value}");
            let again = Told::read(context.traceparent().as_bytes()).unwrap();
            assert_eq!(again.trace_id, context.trace_id().as_bytes(), "{value}");
        }
        assert_ne!(begin(false, &[("traceparent", &good)]).trace_id(), TRACE, "anybody's word");
        let twice = begin(true, &[("traceparent", &good), ("traceparent", &good)]);
        assert_ne!(twice.trace_id(), TRACE, "which of the two is meant nobody knows");
    }

    #[test]
    fn what_is_passed_on_of_a_state() {
        let parent = format!("00-{TRACE}-{SPAN}-01");
        let many = |count: usize| (0..count).map(|at| format!("a{at}=1")).collect::<Vec<_>>().join(",");
        let long = format!("a={},b={},c=1", "x".repeat(250), "y".repeat(250));
        let longer = format!("a={},b={},c={},d=1", "x".repeat(250), "y".repeat(250), "z".repeat(20));
        for (sent, kept) in [
            (&["rojo=00f067aa0ba902b7, congo=t61rcWkgMzE"][..], "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"),
            (&["a=1", "b=2,"], "a=1,b=2"),
            (&["t@v=1,a_-*/=x y"], "t@v=1,a_-*/=x y"),
            (&["a=1,a=2"], ""),
            (&["a=1,=2"], ""),
            (&["a=1,b"], ""),
            (&["a=1,b="], ""),
            (&["a=1,b=c=d"], ""),
            (&["A=1"], ""),
            (&["a=\u{7f}"], ""),
            (&[&many(32)], &many(32)),
            (&[&many(33)], ""),
            (&[&long], &long),
            (&[&longer], &longer[..505]),
            (&[&format!("a={}", "x".repeat(257))], ""),
            (&[], ""),
        ] {
            let mut fields = vec![("traceparent", parent.as_str())];
            fields.extend(sent.iter().map(|value| ("tracestate", *value)));
            assert_eq!(begin(true, &fields).tracestate(), kept, "{sent:?}");
        }
        assert_eq!(begin(true, &[("tracestate", "a=1")]).tracestate(), "", "a state of no trace");
    }

    #[test]
    fn a_later_try_is_told_by_its_own_span() {
        let context = begin(false, &[]);
        let [second, third] = [*b"2222222222222222", *b"3333333333333333"];
        let of_another = format!("00-{TRACE}-{SPAN}-00");
        let line = |traceparent: &[u8]| [b"a: 00-0\r\nb: ", traceparent, b"\r\n\r\n00-"].concat();
        let mut head = line(context.traceparent().as_bytes());
        context.rename_span(&mut head, &[context.first_try()], &second);
        assert_eq!(head, line(&context.traceparent_of(&second)));
        context.rename_span(&mut head, &[context.first_try(), second], &third);
        assert_eq!(head, line(&context.traceparent_of(&third)));
        for mut other in [line(of_another.as_bytes()), b"00-".to_vec(), Vec::new()] {
            let before = other.clone();
            context.rename_span(&mut other, &[context.first_try()], &second);
            assert_eq!(other, before);
        }
    }

    #[test]
    fn traces_and_spans_have_ids_of_their_own() {
        let contexts: Vec<_> = (0..1000).map(|_| begin(false, &[])).collect();
        let distinct = |part: fn(&TraceContext) -> &str| {
            contexts.iter().map(part).collect::<std::collections::HashSet<_>>().len()
        };
        assert_eq!((distinct(TraceContext::trace_id), distinct(TraceContext::span_id)), (1000, 1000));
        let all = TraceContext::begin(Sampling::of_millionths(1_000_000), false, &Fields::default()).unwrap();
        assert!(all.is_sampled() && !contexts[0].is_sampled());
    }
}
