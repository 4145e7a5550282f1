//! Early data that is not taken (RFC 8446 section 4.2.10): its records are dropped, up to the advertised size, until
//! one comes that the handshake can read.
//!
//! Called by [`Session`](crate::Session) for a client that has announced early data, until it is known to be taken or
//! the handshake is complete. Rustls tries each record and lets those be that it cannot decrypt; but it leaves them in
//! the buffer, and counts them against the size again with every call. So here it gets one record at a time, once,
//! and what it has failed to decrypt is dropped at once. A record that could only be early data, being larger than
//! what is left of the size in rustls, is dropped unseen.

const HEADER: usize = 5;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;
/// What encryption adds: the type of the content and the tag.
const ADDED: usize = 17;
const TAG: usize = 16;
/// No early record that is dropped unseen is as small as what ends a handshake.
const FINISHED_MAX: usize = 512;

/// What is left to be skipped.
#[derive(Debug)]
pub struct EarlySkip {
    /// Of the client's content.
    content: usize,
    /// Of the ciphertext that rustls lets be.
    trials: usize,
    /// Rustls has taken something in: it is asked what follows from that before it gets another record.
    is_settling: bool,
    /// Bytes in front that rustls has seen and keeps: a first message over several records.
    kept: usize,
    fed: Fed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fed {
    Nothing,
    /// Bytes of a whole record, and whether it is one that may be early data.
    Record(usize, bool),
    Rest,
}

/// What to do with the bytes in front.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Give so many to rustls.
    Feed(usize),
    /// Drop so many.
    Drop(usize),
}

/// What becomes of the bytes that rustls was given, when it waits for more.
#[derive(Debug, PartialEq, Eq)]
pub enum Waited {
    /// So many are done with.
    Used(usize),
    /// They are kept until more has come.
    Kept,
    /// None of this is early data.
    Other,
}

impl EarlySkip {
    /// For `size` bytes of early data.
    pub fn new(size: u32) -> EarlySkip {
        let size = size as usize;
        EarlySkip { content: size, trials: size, is_settling: false, kept: 0, fed: Fed::Nothing }
    }

    /// What to do next with what has been received.
    pub fn next(&mut self, received: &[u8]) -> Next {
        self.fed = Fed::Nothing;
        if self.is_settling {
            return Next::Feed(0);
        }
        let front = received.get(self.kept..).unwrap_or_default();
        let whole = front.first_chunk::<HEADER>().map(|header| {
            let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
            (header[0] == APPLICATION_DATA, length)
        });
        let Some((is_data, length)) = whole.filter(|(_, length)| front.len() >= HEADER + length) else {
            self.fed = Fed::Rest;
            return Next::Feed(received.len());
        };
        let content = length.saturating_sub(ADDED);
        if is_data
            && self.kept == 0
            && length > FINISHED_MAX
            && length + FINISHED_MAX > self.trials
            && let Some(left) = self.content.checked_sub(content)
        {
            self.content = left;
            return Next::Drop(HEADER + length);
        }
        let length = self.kept + HEADER + length;
        self.fed = Fed::Record(length, is_data && self.kept == 0);
        Next::Feed(length)
    }

    /// Rustls wants no more before something else is done.
    pub fn went_on(&mut self, discarded: usize) {
        if discarded > 0 {
            (self.is_settling, self.kept) = (true, 0);
            self.charge(discarded);
        }
    }

    /// Rustls waits for more bytes, and has used `discarded` of those that it was given from the front of `received`.
    pub fn waits(&mut self, discarded: usize, received: &[u8]) -> Waited {
        let has_settled = std::mem::take(&mut self.is_settling);
        match self.fed {
            _ if discarded > 0 => {
                self.kept = 0;
                self.charge(discarded);
                Waited::Used(discarded)
            }
            Fed::Nothing if has_settled => Waited::Used(0),
            Fed::Nothing | Fed::Rest => Waited::Kept,
            // What could not be decrypted is wiped, and what could be ends in its type, which is not zero.
            Fed::Record(length, true) if is_wiped(received.get(HEADER..length).unwrap_or_default()) => {
                self.charge(length);
                Waited::Used(length)
            }
            Fed::Record(length, false) if received.first() == Some(&HANDSHAKE) => {
                self.kept = length;
                Waited::Used(0)
            }
            Fed::Record(..) => Waited::Other,
        }
    }

    fn charge(&mut self, discarded: usize) {
        if let Fed::Record(length, true) = self.fed
            && discarded == length
        {
            self.trials = self.trials.saturating_sub(length - HEADER);
            self.content = self.content.saturating_sub((length - HEADER).saturating_sub(ADDED));
        }
    }
}

fn is_wiped(payload: &[u8]) -> bool {
    let end = payload.len().saturating_sub(TAG);
    payload.get(..end).unwrap_or_default().iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![kind, 3, 3];
        bytes.extend((payload.len() as u16).to_be_bytes());
        bytes.extend_from_slice(payload);
        bytes
    }

    #[test]
    fn what_could_be_a_message_is_never_dropped() {
        // A part of a message that was decrypted stays where it is: rustls still needs it.
        let mut skip = EarlySkip::new(1 << 14);
        let mut part = vec![0; 40];
        part[23] = 22;
        let bytes = record(APPLICATION_DATA, &part);
        assert_eq!(skip.next(&bytes), Next::Feed(45));
        assert_eq!(skip.waits(0, &bytes), Waited::Other);
        // One that was not, is wiped.
        let bytes = record(APPLICATION_DATA, &[0; 40]);
        assert_eq!(skip.next(&bytes), Next::Feed(45));
        assert_eq!(skip.waits(0, &bytes), Waited::Used(45));
        assert_eq!((skip.trials, skip.content), ((1 << 14) - 40, (1 << 14) - 23));
    }

    #[test]
    fn no_more_than_the_size_is_dropped() {
        let mut skip = EarlySkip::new(1 << 14);
        let bytes = record(APPLICATION_DATA, &vec![1; (1 << 14) + ADDED]);
        assert_eq!(skip.next(&bytes), Next::Drop(bytes.len()));
        assert_eq!(skip.next(&bytes), Next::Feed(bytes.len())); // rustls has the last word
        assert_eq!(skip.waits(0, &bytes), Waited::Other);
    }

    #[test]
    fn a_first_message_may_be_spread_and_a_record_incomplete() {
        let mut skip = EarlySkip::new(100);
        let bytes = [record(HANDSHAKE, &[1; 10]), record(HANDSHAKE, &[2; 10])].concat();
        assert_eq!(skip.next(&bytes[..3]), Next::Feed(3));
        assert_eq!(skip.waits(0, &bytes[..3]), Waited::Kept);
        assert_eq!(skip.next(&bytes), Next::Feed(15));
        assert_eq!(skip.waits(0, &bytes), Waited::Used(0));
        assert_eq!(skip.next(&bytes[..20]), Next::Feed(20));
        assert_eq!(skip.waits(0, &bytes[..20]), Waited::Kept);
        assert_eq!(skip.next(&bytes), Next::Feed(30));
        skip.went_on(30);
        assert_eq!(skip.next(&bytes), Next::Feed(0)); // what follows from it first
        assert_eq!(skip.waits(0, &bytes), Waited::Used(0));
        assert_eq!(skip.next(&bytes), Next::Feed(15));
        assert_eq!(skip.next(&[]), Next::Feed(0));
    }
}
