//! The request fields that a response was chosen by (`Vary`, RFC 9111 section 4.1), normalised.
//!
//! Made when a response is stored, compared for every hit.

use super::storing::NotStored;
use super::{Answered, Rules};
use crate::coding::ContentCoding;
use crate::field::{Fields, is_token, list_elements, trim};
use crate::quality::weighted;

/// Names and normalised values, as bytes: for a response without `Vary` none at all.
///
/// For each name, in the order of the alphabet: its length (1 byte), the name in small letters, how the value is
/// normalised (1 byte), its length (2 bytes, little-endian), the value.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Varying(Box<[u8]>);

/// Of these each client has its own: a variant would be for one client alone, and hold what names it.
const OF_ONE_CLIENT: [&str; 4] = ["cookie", "user-agent", "authorization", "proxy-authorization"];

impl Varying {
    /// The most names.
    pub const MOST_NAMES: usize = 8;
    /// The most bytes of names and values.
    pub const MOST_BYTES: usize = 2048;

    /// What a response to a request with these fields varies by. With [`Rules::ignores_cookies`] `Cookie` does
    /// not count.
    ///
    /// # Errors
    /// By anything (`*`), by what each client has its own of, or by more than is kept: such a response is
    /// not stored.
    pub fn of(answered: &Answered<'_>, fields: Fields<'_>, rules: &Rules) -> Result<Varying, NotStored> {
        let mut names: Vec<String> = Vec::new();
        for element in answered.fields.all("Vary").flat_map(list_elements) {
            let name = std::str::from_utf8(element).unwrap_or("*").to_ascii_lowercase();
            // What is no name matches nothing, as `*` does.
            if name == "*" || !is_token(name.as_bytes()) {
                return Err(NotStored::VariesByAnything);
            }
            if rules.ignores_cookies && name == "cookie" || names.contains(&name) {
                continue;
            }
            if OF_ONE_CLIENT.contains(&name.as_str()) {
                return Err(NotStored::VariesByClient);
            }
            if names.len() == Varying::MOST_NAMES {
                return Err(NotStored::VariesByTooMuch);
            }
            names.push(name);
        }
        names.sort_unstable();
        let mut bytes = Vec::new();
        for name in &names {
            push_member(&mut bytes, name, Form::of(name, answered, fields), fields)
                .ok_or(NotStored::VariesByTooMuch)?;
        }
        if bytes.len() > Varying::MOST_BYTES {
            return Err(NotStored::VariesByTooMuch);
        }
        Ok(Varying(bytes.into_boxed_slice()))
    }

    /// Whether the response is one for a request with these fields. Allocates nothing.
    #[inline]
    pub fn fits(&self, fields: Fields<'_>) -> bool {
        self.0.is_empty() || self.members().all(|member| member.fits(fields))
    }

    /// Whether the other one varies by the same fields.
    pub fn same_names(&self, other: &Varying) -> bool {
        self.members().map(|member| member.name).eq(other.members().map(|member| member.name))
    }

    /// What a request with these fields would have its response vary by, if it varies by the same names: to tell beforehand which
    /// requests get the same. Whether they do, [`Varying::fits`] of the response says. `None`: by more than is kept.
    pub fn of_request(&self, fields: Fields<'_>) -> Option<Varying> {
        let mut bytes = Vec::new();
        for member in self.members() {
            push_member(&mut bytes, member.name, Form::usual(member.name), fields)?;
        }
        (bytes.len() <= Varying::MOST_BYTES).then(|| Varying(bytes.into_boxed_slice()))
    }

    /// The names, in small letters.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.members().map(|member| member.name)
    }

    /// Names and normalised values, for operators; no value where there was no such field.
    pub fn told(&self) -> impl Iterator<Item = (&str, Option<&[u8]>)> {
        self.members().map(|member| (member.name, (member.form != Form::Absent).then_some(member.value)))
    }

    /// Whether the response is one for every request.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// For a disk.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The inverse; `None` where [`Varying::as_bytes`] cannot have given them.
    pub fn from_bytes(bytes: &[u8]) -> Option<Varying> {
        let mut rest = bytes;
        let mut before = "";
        for _ in 0..=Varying::MOST_NAMES {
            if rest.is_empty() {
                return (bytes.len() <= Varying::MOST_BYTES).then(|| Varying(bytes.into()));
            }
            let (member, behind) = Member::first(rest)?;
            if member.name <= before {
                return None;
            }
            (rest, before) = (behind, member.name);
        }
        None
    }

    fn members(&self) -> impl Iterator<Item = Member<'_>> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            let (member, behind) = Member::first(rest)?;
            rest = behind;
            Some(member)
        })
    }
}

/// How a value is normalised. The numbers are on disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Form {
    /// There was no such field.
    Absent = 0,
    /// The lines put together, as sent.
    Lines = 1,
    /// A list: without white space.
    List = 2,
    /// A list whose letters have no case: without white space, in small letters.
    Words = 3,
    /// The content codings that the client takes, of those that we know.
    Codings = 4,
}

impl Form {
    const ALL: [Form; 5] = [Form::Absent, Form::Lines, Form::List, Form::Words, Form::Codings];

    fn of(name: &str, answered: &Answered<'_>, fields: Fields<'_>) -> Form {
        match Form::usual(name) {
            Form::Codings if !is_taken(answered, codings(fields, name)) => Form::Words,
            usual => usual,
        }
    }

    fn usual(name: &str) -> Form {
        match name {
            "accept-encoding" => Form::Codings,
            "accept-language" | "accept-charset" => Form::Words,
            "accept" => Form::List,
            _ => Form::Lines,
        }
    }
}

/// Whether a client that takes these codings takes this response: not one in a coding that we do not know, and not
/// where the origin has not kept to what it was asked. Such a response is for those alone who have asked in the same words.
fn is_taken(answered: &Answered<'_>, taken: u8) -> bool {
    let mut codings = answered.fields.all("Content-Encoding").flat_map(list_elements);
    codings.all(|coding| ContentCoding::from_token(coding).is_some_and(|coding| taken & bit_of(coding) > 0))
}

struct Member<'a> {
    name: &'a str,
    form: Form,
    value: &'a [u8],
}

impl<'a> Member<'a> {
    /// The first one, and what is behind it.
    fn first(bytes: &'a [u8]) -> Option<(Member<'a>, &'a [u8])> {
        let (&length, rest) = bytes.split_first()?;
        let (name, rest) = rest.split_at_checked(usize::from(length))?;
        let name = std::str::from_utf8(name).ok().filter(|name| is_token(name.as_bytes()))?;
        let (&form, rest) = rest.split_first()?;
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let (value, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
        Some((Member { name, form: *Form::ALL.get(usize::from(form))?, value }, rest))
    }

    fn fits(&self, fields: Fields<'_>) -> bool {
        if self.form == Form::Absent || !fields.contains(self.name) {
            return self.form == Form::Absent && !fields.contains(self.name);
        }
        let mut expected = self.value.iter();
        normalise(self.form, fields, self.name, &mut |byte| expected.next() == Some(&byte))
            && expected.next().is_none()
    }
}

/// `None` where the value is too long.
fn push_member(bytes: &mut Vec<u8>, name: &str, form: Form, fields: Fields<'_>) -> Option<()> {
    let form = if fields.contains(name) { form } else { Form::Absent };
    bytes.push(u8::try_from(name.len()).ok()?);
    bytes.extend_from_slice(name.as_bytes());
    bytes.extend_from_slice(&[form as u8, 0, 0]);
    let start = bytes.len();
    let most = start + Varying::MOST_BYTES;
    if form != Form::Absent {
        let fits = normalise(form, fields, name, &mut |byte| {
            bytes.push(byte);
            bytes.len() <= most
        });
        fits.then_some(())?;
    }
    let length = u16::try_from(bytes.len() - start).ok()?;
    bytes[start - 2..start].copy_from_slice(&length.to_le_bytes());
    Some(())
}

/// Gives the bytes of a normalised value to `put`, until it says no.
fn normalise(form: Form, fields: Fields<'_>, name: &str, put: &mut impl FnMut(u8) -> bool) -> bool {
    match form {
        Form::Absent => true,
        Form::Codings => put(codings(fields, name)),
        Form::Lines => {
            let mut is_first = true;
            fields.all(name).all(|line| {
                let comma: &[u8] = if std::mem::take(&mut is_first) { b"" } else { b", " };
                comma.iter().chain(line).all(|&byte| put(byte))
            })
        }
        Form::List | Form::Words => {
            let mut is_first = true;
            fields.elements(name).all(|element| {
                (std::mem::take(&mut is_first) || put(b',')) && put_element(element, form, put)
            })
        }
    }
}

/// Without white space, but for what is in quotes.
fn put_element(element: &[u8], form: Form, put: &mut impl FnMut(u8) -> bool) -> bool {
    let mut is_quoted = false;
    let mut is_escaped = false;
    trim(element).iter().all(|&byte| {
        is_quoted ^= byte == b'"' && !is_escaped;
        is_escaped = is_quoted && byte == b'\\' && !is_escaped;
        if matches!(byte, b' ' | b'\t') && !is_quoted {
            return true;
        }
        put(if form == Form::Words { byte.to_ascii_lowercase() } else { byte })
    })
}

/// One bit for each coding that the client takes, whatever it likes best: 1 gzip, 2 br, 4 zstd, 8 as it is.
fn codings(fields: Fields<'_>, name: &str) -> u8 {
    let mut any = None;
    let (mut taken, mut refused) = (0, 0);
    for (token, weight) in fields.elements(name).filter_map(weighted) {
        let bit = ContentCoding::from_token(token).map_or(0, bit_of);
        match (token, weight) {
            (b"*", weight) => any = Some(any.unwrap_or(true) && weight > 0),
            (_, 0) => refused |= bit,
            _ => taken |= bit,
        }
    }
    let others = match any {
        Some(true) => 15,
        Some(false) => 0,
        None => IDENTITY,
    };
    (taken | others) & !refused
}

/// A content as it is.
const IDENTITY: u8 = 8;

fn bit_of(coding: ContentCoding) -> u8 {
    match coding {
        ContentCoding::Gzip => 1,
        ContentCoding::Brotli => 2,
        ContentCoding::Zstd => 4,
        ContentCoding::Identity => IDENTITY,
    }
}
