//! Records for the DNS-01 challenge by a dynamic update (RFC 2136), signed with a key that the name server knows
//! (TSIG with HMAC-SHA256, RFC 8945).
//!
//! The messages are few and fixed, so they are made here; what a server answers is read within bounds, and
//! believed only when it is signed as well.

use super::manager::IssueError;
use aws_lc_rs::hmac;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PATIENCE: Duration = Duration::from_secs(30);
const TTL: u32 = 60;
/// Seconds that the clocks of both ends may differ.
const FUDGE: u16 = 300;
const HEADER: usize = 12;
/// What a server answers at most.
const ANSWER_MAX: usize = 4096;

const SOA: u16 = 6;
const TXT: u16 = 16;
const TSIG: u16 = 250;
const IN: u16 = 1;
const NONE: u16 = 254;
const ANY: u16 = 255;
const UPDATE: u8 = 5;
const ALGORITHM: &str = "hmac-sha256.";
const MAC: usize = 32;

/// A zone that may be changed, and how.
#[derive(Clone, PartialEq, Eq)]
pub struct DnsUpdate {
    /// Its primary name server.
    pub server: SocketAddr,
    /// `example.com`
    pub zone: String,
    /// The name of the key.
    pub key_name: String,
    /// The key. Secret.
    pub key: Vec<u8>,
    /// How long a record needs until every server of the zone has it.
    pub settle: Duration,
}

impl std::fmt::Debug for DnsUpdate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DnsUpdate({} at {}, key {})", self.zone, self.server, self.key_name)
    }
}

/// What becomes of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It is added to those of its name.
    Add,
    /// It is taken away from them.
    Remove,
}

impl DnsUpdate {
    /// Whether a record belongs to the zone.
    pub fn covers(&self, record: &str) -> bool {
        let zone = self.zone.trim_end_matches('.');
        record == zone || record.strip_suffix(zone).is_some_and(|rest| rest.ends_with('.'))
    }

    /// Sets or removes a record, and waits until a set one is to be seen.
    pub async fn change(
        &self,
        change: Change,
        record: &str,
        value: &str,
        now: i64,
    ) -> Result<(), IssueError> {
        let failed =
            |why: String| IssueError::new(format!("the name server {} ({record}): {why}", self.server));
        if !self.covers(record) {
            return Err(failed(format!("the record lies outside of the zone {}", self.zone)));
        }
        let id = now as u16 ^ std::process::id() as u16;
        let (message, mac) = self.encode(id, change, record, value, now.unsigned_abs()).map_err(failed)?;
        let exchange = tokio::time::timeout(PATIENCE, self.exchange(&message)).await;
        let answer = exchange.map_err(|_| failed("it does not answer".into()))?;
        let answer = answer.map_err(|error| failed(error.to_string()))?;
        self.check(&answer, id, &mac).map_err(failed)?;
        if change == Change::Add {
            tokio::time::sleep(self.settle).await;
        }
        Ok(())
    }

    async fn exchange(&self, message: &[u8]) -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(self.server).await?;
        let length = u16::try_from(message.len()).map_err(std::io::Error::other)?;
        stream.write_all(&[&length.to_be_bytes()[..], message].concat()).await?;
        let length = usize::from(stream.read_u16().await?);
        if length > ANSWER_MAX {
            return Err(std::io::Error::other("its answer is too long"));
        }
        let mut answer = vec![0; length];
        stream.read_exact(&mut answer).await?;
        Ok(answer)
    }

    /// The message, and the code that signs it.
    fn encode(
        &self,
        id: u16,
        change: Change,
        record: &str,
        value: &str,
        now: u64,
    ) -> Result<(Vec<u8>, Vec<u8>), String> {
        let mut out = Vec::with_capacity(512);
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&[UPDATE << 3, 0]);
        // One zone, no prerequisite, one change, and no additional record yet.
        out.extend_from_slice(&[0, 1, 0, 0, 0, 1, 0, 0]);
        push_name(&mut out, &self.zone)?;
        push16(&mut out, &[SOA, IN]);
        push_name(&mut out, record)?;
        let (class, ttl) = match change {
            Change::Add => (IN, TTL),
            Change::Remove => (NONE, 0),
        };
        push16(&mut out, &[TXT, class]);
        out.extend_from_slice(&ttl.to_be_bytes());
        let length = u8::try_from(value.len()).map_err(|_| "the value is too long".to_owned())?;
        push16(&mut out, &[u16::from(length) + 1]);
        out.push(length);
        out.extend_from_slice(value.as_bytes());

        let mut signed = out.clone();
        self.push_variables(&mut signed, now, FUDGE, 0, &[])?;
        let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &self.key), &signed);
        let mac = mac.as_ref().to_vec();
        // Now there is one additional record.
        if let Some(count) = out.get_mut(HEADER - 1) {
            *count = 1;
        }
        push_name(&mut out, &self.key_name)?;
        push16(&mut out, &[TSIG, ANY]);
        out.extend_from_slice(&[0; 4]);
        let mut data = Vec::new();
        push_name(&mut data, ALGORITHM)?;
        push48(&mut data, now);
        push16(&mut data, &[FUDGE, MAC as u16]);
        data.extend_from_slice(&mac);
        push16(&mut data, &[id, 0, 0]);
        push16(&mut out, &[data.len() as u16]);
        out.extend_from_slice(&data);
        Ok((out, mac))
    }

    /// What is signed with a message (RFC 8945 section 4.3.3).
    fn push_variables(
        &self,
        out: &mut Vec<u8>,
        time: u64,
        fudge: u16,
        error: u16,
        other: &[u8],
    ) -> Result<(), String> {
        push_name(out, &self.key_name)?;
        push16(out, &[ANY]);
        out.extend_from_slice(&[0; 4]);
        push_name(out, ALGORITHM)?;
        push48(out, time);
        push16(out, &[fudge, error, other.len() as u16]);
        out.extend_from_slice(other);
        Ok(())
    }

    /// Whether an answer says that it is done, and comes from who knows the key.
    fn check(&self, answer: &[u8], id: u16, request_mac: &[u8]) -> Result<(), String> {
        let broken = || "its answer is malformed".to_owned();
        let header = answer.first_chunk::<HEADER>().ok_or_else(broken)?;
        if header[..2] != id.to_be_bytes() || header[2] & 0x80 == 0 {
            return Err("its answer is to another question".into());
        }
        let code = header[3] & 15;
        let counts = [4, 6, 8, 10].map(|at| usize::from(u16::from_be_bytes([header[at], header[at + 1]])));
        let mut at = HEADER;
        for _ in 0..counts[0] {
            at = skip_name(answer, at).ok_or_else(broken)? + 4;
        }
        let others = (counts[1] + counts[2] + counts[3]).checked_sub(1);
        for _ in 0..others.unwrap_or(0) {
            at = skip_name(answer, at).ok_or_else(broken)? + 8;
            at += 2 + usize::from(number16(answer, at).ok_or_else(broken)?);
        }
        if counts[3] == 0 {
            return Err(match code {
                0 => "its answer is not signed".into(),
                code => format!("it refuses ({})", code_name(code)),
            });
        }
        // The last one is the signature.
        let signature = at;
        let at = skip_name(answer, at).ok_or_else(broken)?;
        if number16(answer, at) != Some(TSIG) {
            return Err("its answer is not signed".into());
        }
        let at = skip_name(answer, at + 10).ok_or_else(broken)?;
        let time = answer.get(at..at + 6).ok_or_else(broken)?;
        let time = time.iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
        let fudge = number16(answer, at + 6).ok_or_else(broken)?;
        let size = usize::from(number16(answer, at + 8).ok_or_else(broken)?);
        let mac = answer.get(at + 10..at + 10 + size).ok_or_else(broken)?;
        let at = at + 10 + size;
        let error = number16(answer, at + 2).ok_or_else(broken)?;
        let length = usize::from(number16(answer, at + 4).ok_or_else(broken)?);
        let other = answer.get(at + 6..at + 6 + length).ok_or_else(broken)?;
        if error != 0 {
            return Err(match error {
                16 => "it does not take the signature (is the key right?)".into(),
                17 => format!("it does not know the key {}", self.key_name),
                18 => "its clock and ours differ too much".into(),
                error => format!("it does not take the signature (error {error})"),
            });
        }
        let mut signed = (request_mac.len() as u16).to_be_bytes().to_vec();
        signed.extend_from_slice(request_mac);
        let begin = signed.len();
        signed.extend_from_slice(answer.get(..signature).ok_or_else(broken)?);
        let count = (counts[3] as u16 - 1).to_be_bytes();
        signed.get_mut(begin + 10..begin + 12).ok_or_else(broken)?.copy_from_slice(&count);
        self.push_variables(&mut signed, time, fudge, error, other)?;
        hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, &self.key), &signed, mac)
            .map_err(|_| "the signature of its answer is wrong".to_owned())?;
        if code == 0 { Ok(()) } else { Err(format!("it refuses ({})", code_name(code))) }
    }
}

fn code_name(code: u8) -> String {
    match code {
        1 => "FORMERR",
        2 => "SERVFAIL",
        3 => "NXDOMAIN",
        4 => "NOTIMP",
        5 => "REFUSED",
        8 => "NXRRSET",
        9 => "NOTAUTH",
        10 => "NOTZONE",
        code => return format!("code {code}"),
    }
    .to_owned()
}

fn push16(out: &mut Vec<u8>, numbers: &[u16]) {
    numbers.iter().for_each(|number| out.extend_from_slice(&number.to_be_bytes()));
}

fn push48(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_be_bytes()[2..]);
}

fn push_name(out: &mut Vec<u8>, name: &str) -> Result<(), String> {
    let name = name.trim_end_matches('.');
    if name.len() > 253 {
        return Err(format!("{name} is longer than a name may be"));
    }
    for label in name.split('.') {
        match u8::try_from(label.len()) {
            Ok(length @ 1..=63) => {
                out.push(length);
                out.extend_from_slice(label.to_ascii_lowercase().as_bytes());
            }
            _ => return Err(format!("{name} is no name")),
        }
    }
    out.push(0);
    Ok(())
}

/// Behind a name, which may be compressed.
fn skip_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1),
            length @ 1..=63 => at += 1 + usize::from(length),
            192.. => return message.get(at + 1).map(|_| at + 2),
            _ => return None,
        }
    }
}

fn number16(message: &[u8], at: usize) -> Option<u16> {
    let bytes = message.get(at..at.checked_add(2)?)?;
    bytes.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn update() -> DnsUpdate {
        DnsUpdate {
            server: ([127, 0, 0, 1], 53).into(),
            zone: "example.com".into(),
            key_name: "acme".into(),
            key: b"0123456789abcdef0123456789abcdef".to_vec(),
            settle: Duration::ZERO,
        }
    }

    /// The answer of a server that knows the key.
    fn answer(update: &DnsUpdate, id: u16, code: u8, request_mac: &[u8]) -> Vec<u8> {
        let mut out = id.to_be_bytes().to_vec();
        out.extend([0x80 | UPDATE << 3, code, 0, 1, 0, 0, 0, 0, 0, 0]);
        push_name(&mut out, &update.zone).unwrap();
        push16(&mut out, &[SOA, IN]);
        let mut signed = [&(request_mac.len() as u16).to_be_bytes()[..], request_mac, &out].concat();
        update.push_variables(&mut signed, 1000, FUDGE, 0, &[]).unwrap();
        let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &update.key), &signed);
        out[11] = 1;
        push_name(&mut out, &update.key_name).unwrap();
        push16(&mut out, &[TSIG, ANY, 0, 0]);
        let mut data = Vec::new();
        push_name(&mut data, ALGORITHM).unwrap();
        push48(&mut data, 1000);
        push16(&mut data, &[FUDGE, 32]);
        data.extend(mac.as_ref());
        push16(&mut data, &[id, 0, 0]);
        push16(&mut out, &[data.len() as u16]);
        out.extend(data);
        out
    }

    #[test]
    fn a_message_says_what_is_to_change() {
        let (message, mac) =
            update().encode(7, Change::Add, "_acme-challenge.example.com", "value", 1000).unwrap();
        assert_eq!(message[..12], [0, 7, 0x28, 0, 0, 1, 0, 0, 0, 1, 0, 1]);
        assert_eq!(&message[12..25], b"\x07example\x03com\0");
        assert!(message.windows(6).any(|window| window == b"\x05value"));
        assert_eq!(mac.len(), MAC);
        let (other, _) =
            update().encode(7, Change::Remove, "_acme-challenge.example.com", "value", 1000).unwrap();
        assert_ne!(message, other);
        assert!(update().encode(7, Change::Add, "a..b", "v", 0).is_err());
    }

    #[test]
    fn only_a_signed_answer_counts() {
        let update = update();
        let mac = [9; 32];
        assert_eq!(update.check(&answer(&update, 7, 0, &mac), 7, &mac), Ok(()));
        assert_eq!(update.check(&answer(&update, 7, 5, &mac), 7, &mac), Err("it refuses (REFUSED)".into()));
        assert!(update.check(&answer(&update, 7, 0, &mac), 8, &mac).is_err());
        assert!(update.check(&answer(&update, 7, 0, &[1; 32]), 7, &mac).is_err());
        let stranger = DnsUpdate { key: vec![1; 32], ..update.clone() };
        assert!(update.check(&answer(&stranger, 7, 0, &mac), 7, &mac).is_err());
        let unsigned = [0, 7, 0xa8, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(update.check(&unsigned, 7, &mac), Err("its answer is not signed".into()));
        let whole = answer(&update, 7, 0, &mac);
        for cut in 0..whole.len() {
            assert!(update.check(&whole[..cut], 7, &mac).is_err());
        }
    }

    #[test]
    fn records_of_other_zones_are_not_touched() {
        for (record, expected) in [
            ("_acme-challenge.example.com", true),
            ("_acme-challenge.www.example.com", true),
            ("example.com", true),
            ("_acme-challenge.notexample.com", false),
            ("example.org", false),
        ] {
            assert_eq!(update().covers(record), expected, "{record}");
        }
    }

    proptest! {
        #[test]
        fn any_answer_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = update().check(&bytes, 7, &[0; 32]);
            let _ = update().check(&[&[0, 7, 0x80, 0], &bytes[..]].concat(), 7, &[0; 32]);
        }
    }
}
