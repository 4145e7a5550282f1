//! Records for the DNS-01 challenge by a dynamic update (RFC 2136), signed with a key that the name server knows
//! (TSIG with HMAC-SHA256, RFC 8945).
//!
//! What a server answers is read within bounds, and believed only when it is signed as well.

use super::manager::IssueError;
use hickory_proto::ProtoError;
use hickory_proto::op::{Message, MessageType, ResponseCode, update_message};
use hickory_proto::rr::rdata::TXT;
use hickory_proto::rr::rdata::tsig::{TsigAlgorithm, TsigError};
use hickory_proto::rr::{Name, RData, Record, RecordSet, TSigVerifier, TSigner};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PATIENCE: Duration = Duration::from_secs(30);
const TTL: u32 = 60;
/// Seconds that the clocks of both ends may differ.
const FUDGE: u16 = 300;
/// What a server answers at most.
const ANSWER_MAX: usize = 4096;

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
    ///
    /// # Errors
    /// The record lies outside of the zone, or the message cannot be made. The server cannot be reached in
    /// time, refuses, or gives no answer that is signed with the key.
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
        let encoded = self.encode(id, change, record, value, now.unsigned_abs());
        let (message, verifier) = encoded.map_err(|error| failed(error.to_string()))?;
        let exchange = tokio::time::timeout(PATIENCE, self.exchange(&message)).await;
        let answer = exchange.map_err(|_| failed("it does not answer".into()))?;
        let answer = answer.map_err(|error| failed(error.to_string()))?;
        self.check(&answer, id, verifier).map_err(failed)?;
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

    /// The message, and what verifies the answer to it.
    fn encode(
        &self,
        id: u16,
        change: Change,
        record: &str,
        value: &str,
        now: u64,
    ) -> Result<(Vec<u8>, TSigVerifier), ProtoError> {
        let (zone, name) = (name(&self.zone)?, name(record)?);
        if !zone.zone_of(&name) {
            return Err(format!("{name} lies outside of {zone}").into());
        }
        let text = RData::TXT(TXT::new(vec![value.to_owned()]));
        let records = RecordSet::from(Record::from_rdata(name, TTL, text));
        let mut message = match change {
            Change::Add => update_message::append(records, zone, false, false),
            Change::Remove => update_message::delete_by_rdata(records, zone, false),
        };
        message.metadata.id = id;
        let signer =
            TSigner::new(self.key.clone(), TsigAlgorithm::HmacSha256, self::name(&self.key_name)?, FUDGE);
        let signer = signer.map_err(|error| error.to_string())?;
        let verifier = message.finalize(&signer, now)?.ok_or("the message is not signed")?;
        Ok((message.to_vec()?, verifier))
    }

    /// Whether an answer says that it is done, and comes from who knows the key.
    fn check(&self, answer: &[u8], id: u16, mut verifier: TSigVerifier) -> Result<(), String> {
        let message = Message::from_vec(answer).map_err(|_| "its answer is malformed".to_owned())?;
        if message.metadata.id != id || message.metadata.message_type != MessageType::Response {
            return Err("its answer is to another question".into());
        }
        let refused = |code: ResponseCode| format!("it refuses ({})", format!("{code:?}").to_uppercase());
        let code = message.metadata.response_code;
        let Some(signature) = message.signature() else {
            return Err(match code {
                ResponseCode::NoError => "its answer is not signed".into(),
                code => refused(code),
            });
        };
        if let Some(error) = &signature.data.error {
            return Err(match error {
                TsigError::BadSig => "it does not take the signature (is the key right?)".into(),
                TsigError::BadKey => format!("it does not know the key {}", self.key_name),
                TsigError::BadTime => "its clock and ours differ too much".into(),
                error => format!("it does not take the signature ({error:?})"),
            });
        }
        verifier.verify(answer).map_err(|_| "the signature of its answer is wrong".to_owned())?;
        if code == ResponseCode::NoError { Ok(()) } else { Err(refused(code)) }
    }
}

/// A whole name, in lower case: names are signed so.
fn name(text: &str) -> Result<Name, ProtoError> {
    let mut name = Name::from_ascii(text)?.to_lowercase();
    name.set_fqdn(true);
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::hmac;
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

    const HEADER: usize = 12;

    /// Octet by octet as RFC 1035 has it, beside the crate.
    fn push_name(out: &mut Vec<u8>, name: &str) {
        for label in name.split('.') {
            out.push(label.len() as u8);
            out.extend_from_slice(label.as_bytes());
        }
        out.push(0);
    }

    fn push16(out: &mut Vec<u8>, numbers: &[u16]) {
        numbers.iter().for_each(|number| out.extend_from_slice(&number.to_be_bytes()));
    }

    /// The code that signs a message of that time (RFC 8945 section 4.3.3).
    fn sign(update: &DnsUpdate, time: u64, before: &[u8], message: &[u8]) -> Vec<u8> {
        let mut signed = [before, message].concat();
        push_name(&mut signed, &update.key_name);
        push16(&mut signed, &[255, 0, 0]);
        push_name(&mut signed, "hmac-sha256");
        signed.extend(&time.to_be_bytes()[2..]);
        push16(&mut signed, &[FUDGE, 0, 0]);
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &update.key), &signed).as_ref().to_vec()
    }

    /// A signed message: the additional record that carries the signature comes last.
    fn with_signature(
        update: &DnsUpdate,
        mut message: Vec<u8>,
        id: u16,
        time: u64,
        mac: &[u8],
        error: u16,
    ) -> Vec<u8> {
        message[HEADER - 1] = 1;
        push_name(&mut message, &update.key_name);
        push16(&mut message, &[250, 255, 0, 0]);
        let mut data = Vec::new();
        push_name(&mut data, "hmac-sha256");
        data.extend(&time.to_be_bytes()[2..]);
        push16(&mut data, &[FUDGE, mac.len() as u16]);
        data.extend(mac);
        push16(&mut data, &[id, error, 0]);
        push16(&mut message, &[data.len() as u16]);
        [message, data].concat()
    }

    fn plain_answer(update: &DnsUpdate, id: u16, code: u8) -> Vec<u8> {
        let mut out = id.to_be_bytes().to_vec();
        out.extend([0xa8, code, 0, 1, 0, 0, 0, 0, 0, 0]);
        push_name(&mut out, &update.zone);
        push16(&mut out, &[6, 1]);
        out
    }

    /// The answer of a server that knows the key.
    fn answer(update: &DnsUpdate, id: u16, code: u8, time: u64, request: &[u8]) -> Vec<u8> {
        let out = plain_answer(update, id, code);
        let request_mac = &request[request.len() - 38..request.len() - 6];
        let mac = sign(update, time, &[&[0, 32], request_mac].concat(), &out);
        with_signature(update, out, id, time, &mac, 0)
    }

    const RECORD: &str = "_acme-challenge.Example.com";

    #[test]
    fn a_message_says_what_is_to_change() {
        for (change, class_and_ttl) in
            [(Change::Add, [0, 1, 0, 0, 0, 60]), (Change::Remove, [0, 254, 0, 0, 0, 0])]
        {
            let (message, _) = update().encode(7, change, RECORD, "value", 1000).unwrap();
            assert_eq!(message[..HEADER], [0, 7, 0x28, 0, 0, 1, 0, 0, 0, 1, 0, 1]);
            // The zone; then the record below it, compressed or not: its type, class, time to live and text.
            assert!(message[HEADER..].starts_with(b"\x07example\x03com\0\0\x06\0\x01"));
            let data = [&[0, 16][..], &class_and_ttl, b"\0\x06\x05value"].concat();
            let at = message.windows(data.len()).position(|window| window == data).unwrap();
            // What is behind it is the signature, over all that is before.
            let mut unsigned = message[..at + data.len()].to_vec();
            unsigned[HEADER - 1] = 0;
            let mac = sign(&update(), 1000, &[], &unsigned);
            assert_eq!(message, with_signature(&update(), unsigned, 7, 1000, &mac, 0));
        }
        for (record, value) in [("a..example.com", "v"), ("example.org", "v"), (RECORD, &*"v".repeat(256))] {
            assert!(update().encode(7, Change::Add, record, value, 0).is_err(), "{record}");
        }
    }

    #[test]
    fn only_a_signed_answer_counts() {
        let update = update();
        let stranger = DnsUpdate { key: vec![1; 32], ..update.clone() };
        let (request, _) = update.encode(7, Change::Add, RECORD, "value", 1000).unwrap();
        let (other, _) = update.encode(7, Change::Add, RECORD, "other", 1000).unwrap();
        // Each is checked as the answer to a request of its own.
        let check = |answer: &[u8]| {
            let (_, verifier) = update.encode(7, Change::Add, RECORD, "value", 1000).unwrap();
            update.check(answer, 7, verifier)
        };
        assert_eq!(check(&answer(&update, 7, 0, 1000, &request)), Ok(()));
        assert_eq!(check(&answer(&update, 7, 0, 1200, &request)), Ok(()));
        assert_eq!(check(&answer(&update, 7, 5, 1000, &request)), Err("it refuses (REFUSED)".into()));
        let unsigned = |code| plain_answer(&update, 7, code);
        let refused = |error| with_signature(&update, unsigned(9), 7, 1000, &[], error);
        for (answer, why) in [
            (answer(&update, 8, 0, 1000, &request), "its answer is to another question"),
            (answer(&update, 7, 0, 1000, &other), "the signature of its answer is wrong"),
            (answer(&stranger, 7, 0, 1000, &request), "the signature of its answer is wrong"),
            (answer(&update, 7, 0, 2000, &request), "the signature of its answer is wrong"), // an old one
            (unsigned(0), "its answer is not signed"),
            (unsigned(9), "it refuses (NOTAUTH)"),
            (refused(16), "it does not take the signature (is the key right?)"),
            (refused(17), "it does not know the key acme"),
            (refused(18), "its clock and ours differ too much"),
        ] {
            assert_eq!(check(&answer), Err(why.to_owned()));
        }
        let whole = answer(&update, 7, 0, 1000, &request);
        for cut in 0..whole.len() {
            assert!(check(&whole[..cut]).is_err());
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
            for answer in [bytes.clone(), [&[0, 7, 0x80, 0], &bytes[..]].concat()] {
                let (_, verifier) = update().encode(7, Change::Add, RECORD, "value", 1000).unwrap();
                prop_assert!(update().check(&answer, 7, verifier).is_err());
            }
        }
    }
}
