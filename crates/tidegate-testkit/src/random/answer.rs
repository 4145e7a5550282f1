//! What must come back for a request, whatever the protocol: the check that both kinds of clients share.

use super::content::{self, Check, Nonce};
use super::findings::Invariant;
use super::plan::{AnswerPlan, Framing};

/// What an answer is held to.
#[derive(Debug, Clone)]
pub(super) enum Expected {
    /// An application answers as planned.
    Application {
        plan: AnswerPlan,
        /// The protocol behind the server lets it see that an answer was cut, whatever the framing.
        shows_cuts: bool,
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
    /// The lines of `explain`.
    pub(super) because: String,
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
    status: Option<u16>,
    check: Option<(Check, Option<u64>)>,
    /// The beginning of content that is not compared.
    other: Vec<u8>,
    other_length: u64,
}

impl AnswerCheck {
    pub(super) fn new(expected: Expected, excuse: Excuse, is_slow: bool, is_head: bool) -> AnswerCheck {
        AnswerCheck {
            expected,
            excuse,
            is_slow,
            is_head,
            status: None,
            check: None,
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
        match &self.expected {
            Expected::Application { plan, .. } => match nonce {
                Some(nonce) if nonce == format!("{:x}", plan.nonce.0) && status == 200 => {
                    self.check = Some((Check::new(plan.nonce), Some(plan.length)));
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
                    for (name, value) in &served.fields {
                        let found = field(name);
                        if found.as_ref() != Some(value) {
                            let text = format!("{name}: {found:?}, not {value:?}: {}", served.because);
                            return Err((Invariant::Explain, text));
                        }
                    }
                    if let Body::File { nonce, length } = served.body {
                        self.check = Some((Check::new(nonce), Some(length)));
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
        match &mut self.check {
            Some((check, length)) => {
                check.take(bytes).map_err(|text| (Invariant::Answer, text))?;
                if let Some(length) = length
                    && check.offset > *length
                {
                    let offset = check.offset;
                    return Err((Invariant::Answer, format!("{offset} bytes of content that has {length}")));
                }
            }
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
        self.check.as_ref().map_or(self.other_length, |(check, _)| check.offset)
    }

    /// The answer is over.
    pub(super) fn end(&self, end: End<'_>) -> Result<(), Broken> {
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
                    Expected::Application { plan, shows_cuts } => {
                        plan.is_honest()
                            || plan.framing == Framing::Length
                            || (*shows_cuts && plan.framing == Framing::Chunked)
                    }
                    Expected::Served(_) => true,
                };
                match self.length() {
                    Some(length) if must_be_whole && length != received => Err((
                        Invariant::Answer,
                        format!("an answer {status} of {received} bytes as if it were complete, of {length}"),
                    )),
                    _ => Ok(()),
                }
            }
        }
    }

    /// Bytes that the whole content has, where that is known.
    fn length(&self) -> Option<u64> {
        if let Some((_, length)) = self.check {
            return length;
        }
        match &self.expected {
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
