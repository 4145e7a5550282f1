//! What must come back for a request, whatever the protocol: the check that both kinds of clients share.

use super::content::{self, Nonce};
use super::findings::Invariant;
use super::follow::Follow;
use super::plan::{AnswerPlan, Framing};
use super::session::Request;
use super::variant::Piece;

/// What an answer is held to.
#[derive(Debug, Clone)]
pub(super) enum Expected {
    /// An application answers as planned.
    Application {
        plan: AnswerPlan,
        /// The protocol behind the server lets it see that an answer was cut, whatever the framing.
        shows_cuts: bool,
        /// It has a place for fields behind the content.
        has_trailers: bool,
    },
    /// The server answers by itself, as `explain` says.
    Served(Served),
}

/// What the server answers by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Served {
    pub(super) status: u16,
    /// Fields that it has, others beside them.
    pub(super) fields: Vec<(String, String)>,
    pub(super) body: Body,
    /// The pieces of the body that are asked for.
    pub(super) pieces: Vec<Piece>,
    /// It may be 429 instead.
    pub(super) limit: Limited,
    /// The lines of `explain`.
    pub(super) because: String,
}

/// Whether a request may be too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limited {
    No,
    /// By a limit of the settings, which is held to its numbers.
    By(RequestLimit),
    /// Passwords are guessed here.
    Guessing,
}

/// A limit of requests, as the settings say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RequestLimit {
    /// Index of the site.
    pub(super) site: usize,
    pub(super) per_second: u64,
    pub(super) burst: u64,
}

/// The content of an answer of the server's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    File {
        nonce: Nonce,
        length: u64,
    },
    Text {
        length: u64,
    },
    /// A page that the server has made.
    Any,
}

/// A promise that was broken, and how.
pub(super) type Broken = (Invariant, String);

/// How an answer has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End<'a> {
    /// As the protocol has it.
    Complete,
    /// Before its end, or before it has begun.
    Cut(&'a str),
}

/// What allows an answer to be less than complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Excuse {
    None,
    /// The server is short of something by its settings: it may refuse and cut.
    Scarcity,
    /// The client has not behaved.
    Client,
}

/// Follows one answer.
#[derive(Debug)]
pub(super) struct AnswerCheck {
    expected: Expected,
    excuse: Excuse,
    is_slow: bool,
    is_head: bool,
    takes_gzip: bool,
    takes_trailers: bool,
    has_trailer: bool,
    status: Option<u16>,
    content: Option<Follow>,
    /// The beginning of content that is not compared.
    other: Vec<u8>,
    other_length: u64,
}

impl AnswerCheck {
    pub(super) fn new(request: &Request, excuse: Excuse, is_slow: bool) -> AnswerCheck {
        let says = |name: &str| request.fields.iter().any(|(of, _)| of.eq_ignore_ascii_case(name));
        AnswerCheck {
            expected: request.expected.clone(),
            excuse,
            is_slow,
            is_head: request.method == "HEAD",
            takes_gzip: says("accept-encoding"),
            takes_trailers: says("te"),
            has_trailer: false,
            status: None,
            content: None,
            other: Vec::new(),
            other_length: 0,
        }
    }

    /// Nothing but an answer in full is right.
    fn is_strict(&self) -> bool {
        let is_honest = match &self.expected {
            Expected::Application { plan, .. } => plan.is_honest(),
            Expected::Served(_) => true,
        };
        is_honest && self.excuse == Excuse::None
    }

    /// The final head has come.
    pub(super) fn head(&mut self, status: u16, fields: &[(String, String)]) -> Result<(), Broken> {
        self.status = Some(status);
        let field = |name: &str| {
            fields
                .iter()
                .find(|(of, _)| of.eq_ignore_ascii_case(name))
                .map(|(_, value)| value.trim().to_owned())
        };
        let nonce = field("x-nonce");
        if field("content-encoding").is_some() && !self.takes_gzip {
            return Err((Invariant::Answer, format!("a coding that nobody asked for: {fields:?}")));
        }
        if field("x-end").is_some() {
            return Err((Invariant::Answer, format!("a trailer in the head: {fields:?}")));
        }
        let follow = |of, pieces: &[Piece]| {
            Follow::new(of, status, fields, pieces).map_err(|text| (Invariant::Answer, text))
        };
        match &self.expected {
            Expected::Application { plan, .. } => match nonce {
                Some(nonce) if nonce == format!("{:x}", plan.nonce.0) && status == 200 => {
                    self.content = Some(follow((plan.nonce, plan.length), &[])?);
                }
                Some(nonce) => {
                    return Err((
                        Invariant::Answer,
                        format!("the answer {status} to {:x} has the nonce {nonce}", plan.nonce.0),
                    ));
                }
                None if self.is_strict() => {
                    return Err((
                        Invariant::Service,
                        format!("{status} for an honest request to an honest application: {fields:?}"),
                    ));
                }
                None if status < 400 => {
                    return Err((
                        Invariant::Answer,
                        format!("{status} without a nonce for {:x}: {fields:?}", plan.nonce.0),
                    ));
                }
                None => {}
            },
            Expected::Served(served) => {
                if let Some(nonce) = nonce {
                    return Err((
                        Invariant::Answer,
                        format!("an answer of an application, {nonce}, for what {}", served.because),
                    ));
                }
                if status == served.status {
                    // An encoder needs memory: without it the same comes as it is.
                    let is_plain = self.excuse == Excuse::Scarcity && field("content-encoding").is_none();
                    let is_of_coding = |name: &str| ["ETag", "Content-Encoding"].contains(&name);
                    let was_coded = served.fields.iter().any(|(name, _)| name == "Content-Encoding");
                    for (name, value) in &served.fields {
                        let found = field(name);
                        if name == "ETag" && found.as_deref().is_some_and(|tag| is_of_same_file(tag, value)) {
                            continue;
                        }
                        if is_plain && was_coded && is_of_coding(name) {
                            continue;
                        }
                        if found.as_ref() != Some(value) {
                            let text = format!("{name}: {found:?}, not {value:?}: {}", served.because);
                            return Err((Invariant::Explain, text));
                        }
                    }
                    if let Body::File { nonce, length } = served.body
                        && ![304, 412, 416].contains(&status)
                    {
                        self.content = Some(follow((nonce, length), &served.pieces)?);
                    }
                } else if status == 429 && served.limit != Limited::No {
                    if field("retry-after").is_none() {
                        return Err((Invariant::Answer, format!("429 without Retry-After: {fields:?}")));
                    }
                } else if !(self.excuse == Excuse::Scarcity && [429, 503].contains(&status)) {
                    return Err((
                        Invariant::Explain,
                        format!("{status}, not {}: {}", served.status, served.because),
                    ));
                }
            }
        }
        Ok(())
    }

    /// Content has come.
    pub(super) fn data(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        match &mut self.content {
            Some(content) => content.take(bytes).map_err(|text| (Invariant::Answer, text))?,
            None => {
                self.other_length += bytes.len() as u64;
                self.other
                    .extend_from_slice(&bytes[..bytes.len().min(16_384 - self.other.len().min(16_384))]);
            }
        }
        Ok(())
    }

    /// Bytes of content so far.
    pub(super) fn received(&self) -> u64 {
        self.content.as_ref().map_or(self.other_length, Follow::received)
    }

    /// Fields have come behind the content.
    pub(super) fn trailers(&mut self, fields: &[(String, String)]) -> Result<(), Broken> {
        let Some((name, value)) = fields.first() else { return Ok(()) };
        let is_right = match &self.expected {
            Expected::Application { plan, .. } => {
                plan.has_trailer
                    && self.takes_trailers
                    && fields.len() == 1
                    && name.eq_ignore_ascii_case("x-end")
                    && value.trim() == format!("{:x}", plan.nonce.0)
            }
            Expected::Served(_) => false,
        };
        self.has_trailer = true;
        if is_right {
            Ok(())
        } else {
            Err((Invariant::Answer, format!("fields behind the content: {fields:?}")))
        }
    }

    /// The answer is over.
    pub(super) fn end(&mut self, end: End<'_>) -> Result<(), Broken> {
        let Some(status) = self.status else {
            return match end {
                End::Cut(how) if self.is_strict() => {
                    Err((self.invariant_of_a_cut(), format!("{how} before an answer to an honest request")))
                }
                _ => Ok(()),
            };
        };
        if let Some(nonce) = content::find(&self.other)
            && !(matches!(self.expected, Expected::Served(_)) && nonce.is_of_file())
        {
            // An error page of a site may be a file.
            let text = format!("content of {:016x} in an answer {status} that has none", nonce.0);
            return Err((Invariant::Answer, text));
        }
        let received = self.received();
        match end {
            End::Cut(how) if self.is_strict() => Err((
                self.invariant_of_a_cut(),
                format!("{how} within an answer {status}, behind {received} bytes of {:?}", self.length()),
            )),
            End::Cut(_) => Ok(()),
            End::Complete if self.is_head => {
                if received > 0 {
                    Err((Invariant::Answer, format!("{received} bytes of content for HEAD")))
                } else {
                    Ok(())
                }
            }
            End::Complete => {
                let must_be_whole = match &self.expected {
                    Expected::Application { plan, shows_cuts, .. } => {
                        plan.is_honest()
                            || plan.framing == Framing::Length
                            || (*shows_cuts && plan.framing == Framing::Chunked)
                    }
                    Expected::Served(_) => true,
                };
                let is_whole = match &mut self.content {
                    Some(content) => content.is_whole(),
                    None => Ok(self.length().is_none_or(|length| length == received)),
                };
                if must_be_whole && is_whole != Ok(true) {
                    let text = format!(
                        "an answer {status} of {received} bytes as if it were complete, of {:?}: {is_whole:?}",
                        self.length()
                    );
                    return Err((Invariant::Answer, text));
                }
                self.end_of_trailers()
            }
        }
    }

    /// What an application has sent behind its content has come, where the client takes it.
    fn end_of_trailers(&self) -> Result<(), Broken> {
        match &self.expected {
            Expected::Application { plan, has_trailers: true, .. }
                if self.content.is_some()
                    && plan.has_trailer
                    && plan.is_honest()
                    && plan.framing == Framing::Chunked
                    && self.takes_trailers
                    && !self.has_trailer =>
            {
                Err((Invariant::Answer, format!("no trailer behind the answer to {plan:?}")))
            }
            _ => Ok(()),
        }
    }

    /// Bytes that the whole content has, where that is known.
    fn length(&self) -> Option<u64> {
        match &self.expected {
            Expected::Application { plan, .. } if self.content.is_some() => Some(plan.length),
            Expected::Served(Served { body: Body::File { length, .. }, .. }) if self.content.is_some() => {
                Some(*length)
            }
            Expected::Served(Served { status, body: Body::Text { length }, .. })
                if self.status == Some(*status) =>
            {
                Some(*length)
            }
            _ => None,
        }
    }

    fn invariant_of_a_cut(&self) -> Invariant {
        if self.is_slow { Invariant::SlowReader } else { Invariant::Service }
    }
}

/// Whether a tag is that of a file which was encoded while it was sent, as it is while somebody else has the encoded file made
/// that is kept: weak, and without the coding.
fn is_of_same_file(found: &str, kept: &str) -> bool {
    let plain = found.strip_prefix("W/\"").and_then(|tag| tag.strip_suffix('"'));
    let kept = kept.strip_prefix('"').and_then(|tag| tag.strip_suffix('"'));
    plain
        .zip(kept)
        .is_some_and(|(plain, kept)| kept.strip_prefix(plain).is_some_and(|coding| coding.starts_with('-')))
}
