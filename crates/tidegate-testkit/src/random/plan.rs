//! What an application is to do with a request, as its client has written it into the query: the application needs
//! no memory, and the client knows what must come back.

use std::time::Duration;

use super::content::Nonce;
use super::generator::Generator;

/// How the end of an answer is known, where the protocol leaves a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// Its length is said.
    Length,
    /// In chunks, or as the protocol has it where there are none.
    Chunked,
    /// By the end of the connection.
    Close,
}

/// How an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// As it should.
    Complete,
    /// The connection is closed after so many bytes of the content.
    Cut(u64),
    /// The connection or stream is reset there.
    Reset(u64),
    /// Nothing more comes, and nothing is closed.
    Stall(u64),
    /// The connection is closed before the head.
    Silent,
    /// What comes is no answer.
    Garbage,
}

/// What an application does for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AnswerPlan {
    pub(super) nonce: Nonce,
    /// Bytes of the answer.
    pub(super) length: u64,
    /// Bytes that come with the request.
    pub(super) upload: u64,
    pub(super) framing: Framing,
    pub(super) ending: Ending,
    /// Before the head.
    pub(super) delay: Duration,
    /// So many bytes at once, and so long between them.
    pub(super) pace: Option<(u64, Duration)>,
    /// A field `X-End` with the nonce comes behind the content, where the protocol has a place for it.
    pub(super) has_trailer: bool,
    /// One came with the request.
    pub(super) sends_trailer: bool,
    /// The content has a type that is worth compressing.
    pub(super) is_text: bool,
}

impl AnswerPlan {
    /// What is answered at once and in order.
    pub(super) fn plain(nonce: Nonce, length: u64) -> AnswerPlan {
        AnswerPlan {
            nonce,
            length,
            upload: 0,
            framing: Framing::Length,
            ending: Ending::Complete,
            delay: Duration::ZERO,
            pace: None,
            has_trailer: false,
            sends_trailer: false,
            is_text: false,
        }
    }

    /// A random one that ends as it should.
    pub(super) fn honest(random: &mut Generator, nonce: Nonce, most: u64) -> AnswerPlan {
        let length = random.size(most);
        let pace = random.chance(10).then(|| {
            // Twenty pieces at most, so that it is over in less than a second.
            ((length / random.between(1, 20)).max(1), random.millis(1, 40))
        });
        AnswerPlan {
            length,
            framing: random.pick(&[Framing::Length, Framing::Length, Framing::Chunked, Framing::Close]),
            delay: if random.chance(20) { random.millis(1, 300) } else { Duration::ZERO },
            pace,
            has_trailer: random.chance(25),
            is_text: random.chance(40),
            ..AnswerPlan::plain(nonce, 0)
        }
    }

    /// One that does not.
    pub(super) fn faulty(random: &mut Generator, nonce: Nonce, most: u64) -> AnswerPlan {
        let mut plan = AnswerPlan::honest(random, nonce, most);
        let at = random.below(plan.length + 1);
        plan.ending = random.weighted(&[
            (4, Ending::Cut(at)),
            (4, Ending::Reset(at)),
            (1, Ending::Stall(at)),
            (2, Ending::Silent),
            (2, Ending::Garbage),
        ]);
        plan
    }

    pub(super) fn is_honest(&self) -> bool {
        self.ending == Ending::Complete
    }

    /// As the query of a request target.
    pub(super) fn query(&self) -> String {
        let framing = match self.framing {
            Framing::Length => "length",
            Framing::Chunked => "chunked",
            Framing::Close => "close",
        };
        let mut query = format!("n={:x}&l={}&u={}&f={framing}", self.nonce.0, self.length, self.upload);
        match self.ending {
            Ending::Complete => {}
            Ending::Cut(at) => query.push_str(&format!("&e=cut&a={at}")),
            Ending::Reset(at) => query.push_str(&format!("&e=reset&a={at}")),
            Ending::Stall(at) => query.push_str(&format!("&e=stall&a={at}")),
            Ending::Silent => query.push_str("&e=silent"),
            Ending::Garbage => query.push_str("&e=garbage"),
        }
        if !self.delay.is_zero() {
            query.push_str(&format!("&d={}", self.delay.as_millis()));
        }
        if let Some((bytes, pause)) = self.pace {
            query.push_str(&format!("&pb={bytes}&pt={}", pause.as_millis()));
        }
        for (name, is_so) in [("t", self.has_trailer), ("s", self.sends_trailer), ("c", self.is_text)] {
            if is_so {
                query.push_str(&format!("&{name}=1"));
            }
        }
        query
    }

    /// From a request target or a query.
    pub(super) fn parse(target: &str) -> Result<AnswerPlan, String> {
        let query = target.split_once('?').map_or(target, |(_, query)| query);
        let value = |name: &str| {
            query.split('&').filter_map(|pair| pair.split_once('=')).find(|(n, _)| *n == name).map(|(_, v)| v)
        };
        let number = |name: &str| -> Result<u64, String> {
            let Some(value) = value(name) else { return Ok(0) };
            value.parse().map_err(|_| format!("`{name}={value}` in {target:?} is no number"))
        };
        let nonce = value("n").ok_or_else(|| format!("no nonce in {target:?}"))?;
        let nonce = u64::from_str_radix(nonce, 16).map_err(|_| format!("`{nonce}` is no nonce"))?;
        let at = number("a")?;
        let pieces = number("pb")?;
        Ok(AnswerPlan {
            nonce: Nonce(nonce),
            length: number("l")?,
            upload: number("u")?,
            framing: match value("f") {
                Some("chunked") => Framing::Chunked,
                Some("close") => Framing::Close,
                _ => Framing::Length,
            },
            ending: match value("e") {
                None => Ending::Complete,
                Some("cut") => Ending::Cut(at),
                Some("reset") => Ending::Reset(at),
                Some("stall") => Ending::Stall(at),
                Some("silent") => Ending::Silent,
                Some("garbage") => Ending::Garbage,
                Some(other) => return Err(format!("`{other}` is no ending")),
            },
            delay: Duration::from_millis(number("d")?),
            pace: (pieces > 0).then_some((pieces, Duration::from_millis(number("pt")?))),
            has_trailer: value("t").is_some(),
            sends_trailer: value("s").is_some(),
            is_text: value("c").is_some(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_the_same_again() {
        let mut random = Generator::new(5);
        for number in 0..500 {
            let nonce = Nonce::of_request(9, number);
            for plan in [
                AnswerPlan::honest(&mut random, nonce, 1 << 20),
                AnswerPlan::faulty(&mut random, nonce, 1 << 20),
            ] {
                let mut read = AnswerPlan::parse(&format!("/x?{}", plan.query())).unwrap();
                assert_eq!(read.is_honest(), plan.is_honest());
                read.framing = plan.framing;
                assert_eq!(read, plan);
            }
        }
    }
}
