//! Messages of LDAP (RFC 4511): what is asked as bytes, and bytes as what is answered.
//!
//! The types and their coding are those of `rasn-ldap`. Before a message is decoded its shape is looked at: lengths are
//! definite and fit, and nothing lies deeper than any answer does (RFC 4511 section 5.1), so that no directory can make
//! decoding recurse or grow.

use rasn_ldap::{AttributeValueAssertion, MatchingRuleAssertion, SubstringChoice, SubstringFilter};
use rasn_ldap::{
    AuthenticationChoice, BindRequest, ExtendedRequest, LdapMessage, ProtocolOp, ResultCode, SearchRequest,
    SearchRequestDerefAliases, SearchRequestScope, UnbindRequest,
};
use thiserror::Error;
use tidegate_config::settings::{Comparison, Filter};

/// The longest message of a directory.
pub const LONGEST: usize = 1 << 20;
/// The deepest that anything in an answer lies: the values in an attribute in an entry, and controls.
const DEPTH: usize = 8;
/// The name of the operation that begins TLS (RFC 4511 section 4.14).
const START_TLS: &str = "1.3.6.1.4.1.1466.20037";

/// Why bytes are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Malformed {
    /// They do not begin as one does.
    #[error("what it sends is no LDAP")]
    NotLdap,
    /// It would be longer than [`LONGEST`].
    #[error("it has sent a message of more than a megabyte")]
    TooLong,
    /// It breaks the coding, or is none that is known.
    #[error("it has sent a message that cannot be read")]
    Unreadable,
}

/// What a directory says.
#[derive(Debug)]
pub struct Answer {
    /// Which request it is about; 0: none.
    pub id: u32,
    /// What it is.
    pub kind: Kind,
}

/// The kinds of answers that are known here.
#[derive(Debug)]
pub enum Kind {
    /// What has come of a bind.
    Bound(ResultCode, String),
    /// Something that was found.
    Entry(Entry),
    /// It may be found elsewhere. Nobody goes there.
    Elsewhere,
    /// The end of a search.
    Searched(ResultCode, String),
    /// What has come of beginning TLS; with the id 0, the directory takes its leave.
    Extended(ResultCode, String),
}

/// Something that a search has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub dn: String,
    attributes: Vec<(String, Vec<Vec<u8>>)>,
}

impl Entry {
    /// The values of an attribute that are text.
    pub fn texts<'e>(&'e self, attribute: &'e str) -> impl Iterator<Item = &'e str> {
        let named = self.attributes.iter().filter(move |(name, _)| name.eq_ignore_ascii_case(attribute));
        named.flat_map(|(_, values)| values).filter_map(|value| std::str::from_utf8(value).ok())
    }
}

/// A search in everything below an entry, or of an entry alone.
#[derive(Debug, Clone)]
pub struct Search<'s> {
    /// Where.
    pub base: &'s str,
    /// Whether only that entry is looked at.
    pub is_of_base: bool,
    /// What for.
    pub filter: rasn_ldap::Filter,
    /// What is wanted of it.
    pub attributes: &'s [&'s str],
    /// How many entries, at most.
    pub most: u32,
    /// How long it may take, seconds.
    pub seconds: u32,
}

fn encode(id: u32, operation: ProtocolOp) -> Result<Vec<u8>, Malformed> {
    rasn::ber::encode(&LdapMessage::new(id, operation)).map_err(|_| Malformed::Unreadable)
}

/// Asks to be taken for somebody.
pub fn bind(id: u32, dn: &str, password: &[u8]) -> Result<Vec<u8>, Malformed> {
    let password = AuthenticationChoice::Simple(password.to_vec().into());
    encode(id, ProtocolOp::BindRequest(BindRequest::new(3, dn.into(), password)))
}

/// Asks for entries. Aliases are not followed.
pub fn search(id: u32, search: &Search<'_>) -> Result<Vec<u8>, Malformed> {
    let scope =
        if search.is_of_base { SearchRequestScope::BaseObject } else { SearchRequestScope::WholeSubtree };
    let attributes = search.attributes.iter().map(|name| (*name).into()).collect();
    let request = SearchRequest::new(
        search.base.into(),
        scope,
        SearchRequestDerefAliases::NeverDerefAliases,
        search.most,
        search.seconds,
        false,
        search.filter.clone(),
        attributes,
    );
    encode(id, ProtocolOp::SearchRequest(request))
}

/// Asks for TLS.
pub fn start_tls(id: u32) -> Result<Vec<u8>, Malformed> {
    let request = ExtendedRequest { request_name: START_TLS.as_bytes().to_vec().into(), request_value: None };
    encode(id, ProtocolOp::ExtendedReq(request))
}

/// Takes leave.
pub fn unbind(id: u32) -> Result<Vec<u8>, Malformed> {
    encode(id, ProtocolOp::UnbindRequest(UnbindRequest))
}

/// A filter for a user's name and a DN.
pub fn filter(template: &Filter, user: &str, dn: &str) -> rasn_ldap::Filter {
    let all = |inner: &[Filter]| {
        let filled: Vec<_> = inner.iter().map(|inner| filter(inner, user, dn)).collect();
        rasn::types::SetOf::from(filled)
    };
    match template {
        Filter::And(inner) => rasn_ldap::Filter::And(all(inner)),
        Filter::Or(inner) => rasn_ldap::Filter::Or(all(inner)),
        Filter::Not(inner) => !filter(inner, user, dn),
        Filter::Present(attribute) => rasn_ldap::Filter::Present(attribute.as_str().into()),
        Filter::Compare(comparison, attribute, value) => {
            let value = value.fill(user, dn).into();
            let assertion = AttributeValueAssertion::new(attribute.as_str().into(), value);
            match comparison {
                Comparison::Equal => rasn_ldap::Filter::EqualityMatch(assertion),
                Comparison::GreaterOrEqual => rasn_ldap::Filter::GreaterOrEqual(assertion),
                Comparison::LessOrEqual => rasn_ldap::Filter::LessOrEqual(assertion),
                Comparison::Approximate => rasn_ldap::Filter::ApproxMatch(assertion),
            }
        }
        Filter::Substrings { attribute, first, middle, last } => {
            let piece = |bytes: &Vec<u8>| bytes.clone().into();
            let mut pieces: Vec<SubstringChoice> = Vec::with_capacity(middle.len() + 2);
            pieces.extend((!first.is_empty()).then(|| SubstringChoice::Initial(piece(first))));
            pieces.extend(middle.iter().map(|bytes| SubstringChoice::Any(piece(bytes))));
            pieces.extend((!last.is_empty()).then(|| SubstringChoice::Final(piece(last))));
            rasn_ldap::Filter::Substrings(SubstringFilter::new(attribute.as_str().into(), pieces))
        }
        Filter::Extensible { attribute, rule, of_dn, value } => {
            let name = |name: &Option<String>| name.as_deref().map(Into::into);
            let value = value.fill(user, dn).into();
            let assertion = MatchingRuleAssertion::new(name(rule), name(attribute), value, *of_dn);
            rasn_ldap::Filter::ExtensibleMatch(assertion)
        }
    }
}

/// The length of the message that bytes begin with; `None`: it has not come whole.
///
/// # Errors
/// They begin no message, or too long a one.
pub fn length(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    match bytes.first() {
        None => return Ok(None),
        Some(0x30) => {}
        Some(_) => return Err(Malformed::NotLdap),
    }
    let Some((head, content)) = header(bytes)? else { return Ok(None) };
    let length = head + content;
    if length > LONGEST {
        return Err(Malformed::TooLong);
    }
    Ok((bytes.len() >= length).then_some(length))
}

/// How long the head of an element is, and its content; `None`: it has not come whole.
fn header(bytes: &[u8]) -> Result<Option<(usize, usize)>, Malformed> {
    // No tag of LDAP takes more than a byte.
    if bytes.first().is_some_and(|tag| tag & 0x1f == 0x1f) {
        return Err(Malformed::Unreadable);
    }
    let Some(&first) = bytes.get(1) else { return Ok(None) };
    if first < 0x80 {
        return Ok(Some((2, usize::from(first))));
    }
    let count = usize::from(first & 0x7f);
    if count == 0 || count > 8 {
        return Err(Malformed::Unreadable); // an indefinite length, or one beyond all bounds
    }
    let Some(digits) = bytes.get(2..2 + count) else { return Ok(None) };
    let length = digits
        .iter()
        .fold(0usize, |length, digit| length.saturating_mul(256).saturating_add((*digit).into()));
    if length > LONGEST { Err(Malformed::TooLong) } else { Ok(Some((2 + count, length))) }
}

/// Whether each element lies within the one around it, and none too deep.
fn is_well_formed(message: &[u8]) -> bool {
    let (mut ends, mut at) = (Vec::with_capacity(DEPTH), 0);
    while at < message.len() {
        while ends.last() == Some(&at) {
            ends.pop();
        }
        let around = ends.last().copied().unwrap_or(message.len());
        let Ok(Some((head, length))) = header(&message[at..around]) else { return false };
        let end = at + head + length;
        if end > around {
            return false;
        }
        let is_constructed = message[at] & 0x20 != 0;
        at += head;
        if !is_constructed {
            at = end;
        } else if ends.len() == DEPTH {
            return false;
        } else {
            ends.push(end);
        }
    }
    true
}

/// Reads a message that has come whole.
///
/// # Errors
/// It cannot be read, or is nothing that a directory says.
pub fn decode(message: &[u8]) -> Result<Answer, Malformed> {
    if !is_well_formed(message) {
        return Err(Malformed::Unreadable);
    }
    let decoded: LdapMessage = rasn::ber::decode(message).map_err(|_| Malformed::Unreadable)?;
    let kind = match decoded.protocol_op {
        ProtocolOp::BindResponse(response) => {
            Kind::Bound(response.result_code, response.diagnostic_message.0)
        }
        ProtocolOp::SearchResEntry(entry) => {
            let attributes = entry.attributes.into_iter().map(|attribute| {
                let values = attribute.vals.to_vec().into_iter().map(|value| value.to_vec());
                (attribute.r#type.0, values.collect())
            });
            Kind::Entry(Entry { dn: entry.object_name.0, attributes: attributes.collect() })
        }
        ProtocolOp::SearchResRef(_) => Kind::Elsewhere,
        ProtocolOp::SearchResDone(done) => Kind::Searched(done.0.result_code, done.0.diagnostic_message.0),
        ProtocolOp::ExtendedResp(response) => {
            Kind::Extended(response.result_code, response.diagnostic_message.0)
        }
        _ => return Err(Malformed::Unreadable),
    };
    Ok(Answer { id: decoded.message_id, kind })
}
