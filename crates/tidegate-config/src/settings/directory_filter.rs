//! Filters of LDAP searches (RFC 4515), with places for the name of a user and for a DN.
//!
//! The text is read once, when settings are loaded; what a client types in is put into a value of what has been read, and
//! never into the text. So no name, whatever it holds, makes another filter of it.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The deepest nesting of a filter.
const DEPTH: usize = 32;

/// A filter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Filter {
    /// All of these.
    And(Vec<Filter>),
    /// One of these.
    Or(Vec<Filter>),
    /// Not this.
    Not(Box<Filter>),
    /// There is such an attribute.
    Present(String),
    /// An attribute beside a value.
    Compare(Comparison, String, FilterValue),
    /// An attribute holds these pieces, in this order.
    Substrings {
        /// The attribute.
        attribute: String,
        /// What it begins with; may be empty.
        first: Vec<u8>,
        /// What comes in between.
        middle: Vec<Vec<u8>>,
        /// What it ends with; may be empty.
        last: Vec<u8>,
    },
    /// A matching rule of its own: `(member:1.2.840.113556.1.4.1941:={dn})`.
    Extensible {
        /// The attribute.
        attribute: Option<String>,
        /// The rule.
        rule: Option<String>,
        /// Whether the attributes of the DN count, too.
        of_dn: bool,
        /// What is looked for.
        value: FilterValue,
    },
}

/// How an attribute and a value are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `>=`
    GreaterOrEqual,
    /// `<=`
    LessOrEqual,
    /// `~=`
    Approximate,
}

/// A value that an attribute is compared with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FilterValue {
    /// These bytes.
    Bytes(Vec<u8>),
    /// The name that somebody has typed in, with what stands around it.
    User(Vec<u8>, Vec<u8>),
    /// The DN of a user, or of a group that may belong to another.
    Dn,
}

impl FilterValue {
    /// The value for a user's name and a DN.
    pub fn fill(&self, user: &str, dn: &str) -> Vec<u8> {
        match self {
            FilterValue::Bytes(bytes) => bytes.clone(),
            FilterValue::User(before, behind) => [before, user.as_bytes(), behind].concat(),
            FilterValue::Dn => dn.as_bytes().to_vec(),
        }
    }
}

/// Why a text is no filter.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{what} at character {at}")]
pub struct FilterSyntax {
    what: &'static str,
    /// From 1.
    at: usize,
}

impl Filter {
    /// Reads a filter.
    ///
    /// # Errors
    /// It is none, or a placeholder stands where it may not.
    pub fn parse(text: &str) -> Result<Filter, FilterSyntax> {
        let mut reader = Reader { text: text.as_bytes(), at: 0 };
        let filter = reader.filter(0)?;
        match reader.peek() {
            None => Ok(filter),
            Some(_) => Err(reader.fault("nothing may stand behind the filter")),
        }
    }

    /// The values in it that are compared.
    pub fn values(&self) -> Vec<&FilterValue> {
        match self {
            Filter::And(inner) | Filter::Or(inner) => inner.iter().flat_map(Filter::values).collect(),
            Filter::Not(inner) => inner.values(),
            Filter::Present(_) | Filter::Substrings { .. } => Vec::new(),
            Filter::Compare(_, _, value) | Filter::Extensible { value, .. } => vec![value],
        }
    }

    /// The first attribute that has to be what a user has typed in.
    pub fn attribute_of_user(&self) -> Option<&str> {
        match self {
            Filter::And(inner) | Filter::Or(inner) => inner.iter().find_map(Filter::attribute_of_user),
            Filter::Compare(Comparison::Equal, attribute, FilterValue::User(before, behind)) => {
                (before.is_empty() && behind.is_empty()).then_some(attribute)
            }
            _ => None,
        }
    }
}

struct Reader<'t> {
    text: &'t [u8],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn fault(&self, what: &'static str) -> FilterSyntax {
        FilterSyntax { what, at: self.at + 1 }
    }

    fn take(&mut self, byte: u8, what: &'static str) -> Result<(), FilterSyntax> {
        match self.peek() {
            Some(found) if found == byte => {
                self.at += 1;
                Ok(())
            }
            _ => Err(self.fault(what)),
        }
    }

    fn filter(&mut self, depth: usize) -> Result<Filter, FilterSyntax> {
        if depth > DEPTH {
            return Err(self.fault("the filter is nested too deeply"));
        }
        self.take(b'(', "a filter begins with `(`")?;
        let filter = match self.peek() {
            Some(b'&') => Filter::And(self.list(depth)?),
            Some(b'|') => Filter::Or(self.list(depth)?),
            Some(b'!') => {
                self.at += 1;
                Filter::Not(Box::new(self.filter(depth + 1)?))
            }
            _ => self.item()?,
        };
        self.take(b')', "`)` is missing")?;
        Ok(filter)
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Filter>, FilterSyntax> {
        self.at += 1;
        let mut list = Vec::new();
        while self.peek() == Some(b'(') {
            list.push(self.filter(depth + 1)?);
        }
        if list.is_empty() { Err(self.fault("a filter begins with `(`")) } else { Ok(list) }
    }

    /// A name of an attribute or a rule; empty where there is none.
    fn name(&mut self) -> String {
        let rest = &self.text[self.at..];
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b';' | b'_');
        let length = rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
        self.at += length;
        String::from_utf8_lossy(&rest[..length]).into_owned()
    }

    fn item(&mut self) -> Result<Filter, FilterSyntax> {
        let attribute = self.name();
        if self.peek() == Some(b':') {
            return self.extensible(attribute);
        }
        if attribute.is_empty() {
            return Err(self.fault("the name of an attribute is missing"));
        }
        let comparison = match self.peek() {
            Some(b'>') => Comparison::GreaterOrEqual,
            Some(b'<') => Comparison::LessOrEqual,
            Some(b'~') => Comparison::Approximate,
            _ => Comparison::Equal,
        };
        self.at += usize::from(comparison != Comparison::Equal);
        self.take(b'=', "`=` is missing behind the attribute")?;
        let mut pieces = vec![self.value()?];
        while self.peek() == Some(b'*') {
            self.at += 1;
            pieces.push(self.value()?);
        }
        if pieces.len() == 1 {
            let value = pieces.pop().unwrap_or(FilterValue::Bytes(Vec::new()));
            return Ok(Filter::Compare(comparison, attribute, value));
        }
        if comparison != Comparison::Equal {
            return Err(self.fault("a star may stand behind `=` only"));
        }
        let plain = pieces.into_iter().map(|piece| match piece {
            FilterValue::Bytes(bytes) => Some(bytes),
            _ => None,
        });
        let Some(mut plain) = plain.collect::<Option<Vec<Vec<u8>>>>() else {
            return Err(self.fault("a star beside `{user}` would find others, too"));
        };
        let (last, first) = (plain.pop().unwrap_or_default(), plain.remove(0));
        if plain.is_empty() && first.is_empty() && last.is_empty() {
            return Ok(Filter::Present(attribute));
        }
        if plain.iter().any(Vec::is_empty) {
            return Err(self.fault("two stars stand side by side"));
        }
        Ok(Filter::Substrings { attribute, first, middle: plain, last })
    }

    fn extensible(&mut self, attribute: String) -> Result<Filter, FilterSyntax> {
        let (mut rule, mut of_dn) = (None, false);
        loop {
            self.take(b':', "`:=` is missing")?;
            if self.peek() == Some(b'=') {
                self.at += 1;
                break;
            }
            match self.name().as_str() {
                "dn" if rule.is_none() && !of_dn => of_dn = true,
                "" => return Err(self.fault("the name of a matching rule is missing")),
                _ if rule.is_some() => return Err(self.fault("there are two matching rules")),
                name => rule = Some(name.to_owned()),
            }
        }
        let attribute = Some(attribute).filter(|name| !name.is_empty());
        if attribute.is_none() && rule.is_none() {
            return Err(self.fault("the name of an attribute is missing"));
        }
        Ok(Filter::Extensible { attribute, rule, of_dn, value: self.value()? })
    }

    /// A value up to what ends it.
    fn value(&mut self) -> Result<FilterValue, FilterSyntax> {
        let (mut bytes, mut before) = (Vec::new(), None);
        while let Some(byte) = self.peek() {
            match byte {
                b')' | b'*' => break,
                b'(' => return Err(self.fault("write `(` in a value as `\\28`")),
                0 => return Err(self.fault("write NUL in a value as `\\00`")),
                b'\\' => {
                    let digits = self.text.get(self.at + 1..self.at + 3);
                    let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
                    let is_hex = |digits: &&str| digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                    let byte = digits.filter(is_hex).and_then(|digits| u8::from_str_radix(digits, 16).ok());
                    bytes.push(byte.ok_or_else(|| self.fault("two hexadecimal digits follow a `\\`"))?);
                    self.at += 3;
                }
                b'{' if self.text[self.at..].starts_with(b"{user}") => {
                    if before.is_some() {
                        return Err(self.fault("`{user}` stands twice in a value"));
                    }
                    before = Some(std::mem::take(&mut bytes));
                    self.at += 6;
                }
                b'{' if self.text[self.at..].starts_with(b"{dn}") => {
                    self.at += 4;
                    let is_whole = bytes.is_empty() && before.is_none();
                    return match self.peek() {
                        Some(b')') if is_whole => Ok(FilterValue::Dn),
                        _ => Err(self.fault("nothing may stand beside `{dn}`")),
                    };
                }
                b'{' => return Err(self.fault("only `{user}` and `{dn}` are known; write `{` as `\\7b`")),
                _ => {
                    bytes.push(byte);
                    self.at += 1;
                }
            }
        }
        Ok(match before {
            Some(before) => FilterValue::User(before, bytes),
            None => FilterValue::Bytes(bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn equal(attribute: &str, value: FilterValue) -> Filter {
        Filter::Compare(Comparison::Equal, attribute.into(), value)
    }

    fn bytes(text: &str) -> FilterValue {
        FilterValue::Bytes(text.into())
    }

    #[test]
    fn filters() {
        let user = || FilterValue::User(Vec::new(), Vec::new());
        for (text, expected) in [
            ("(uid={user})", equal("uid", user())),
            ("(upn={user}@example.com)", equal("upn", FilterValue::User(vec![], b"@example.com".into()))),
            ("(member={dn})", equal("member", FilterValue::Dn)),
            ("(cn=a\\2ab\\5C)", equal("cn", bytes("a*b\\"))),
            ("(cn=)", equal("cn", bytes(""))),
            ("(uid=*)", Filter::Present("uid".into())),
            ("(age>=5)", Filter::Compare(Comparison::GreaterOrEqual, "age".into(), bytes("5"))),
            (
                "(cn=a*b*c)",
                Filter::Substrings {
                    attribute: "cn".into(),
                    first: b"a".into(),
                    middle: vec![b"b".into()],
                    last: b"c".into(),
                },
            ),
            (
                "(&(objectClass=person)(!(|(uid={user})(l=x))))",
                Filter::And(vec![
                    equal("objectClass", bytes("person")),
                    Filter::Not(Box::new(Filter::Or(vec![equal("uid", user()), equal("l", bytes("x"))]))),
                ]),
            ),
            (
                "(member:1.2.840.113556.1.4.1941:={dn})",
                Filter::Extensible {
                    attribute: Some("member".into()),
                    rule: Some("1.2.840.113556.1.4.1941".into()),
                    of_dn: false,
                    value: FilterValue::Dn,
                },
            ),
            (
                "(:dn:2.4.8:=x)",
                Filter::Extensible {
                    attribute: None,
                    rule: Some("2.4.8".into()),
                    of_dn: true,
                    value: bytes("x"),
                },
            ),
        ] {
            assert_eq!(Filter::parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn no_filters() {
        for (text, expected) in [
            ("", "a filter begins with `(` at character 1"),
            ("uid={user}", "a filter begins with `(` at character 1"),
            ("(uid={user}", "`)` is missing at character 12"),
            ("(uid={user}))", "nothing may stand behind the filter at character 13"),
            ("(={user})", "the name of an attribute is missing at character 2"),
            ("(uid)", "`=` is missing behind the attribute at character 5"),
            ("(uid={user}*)", "a star beside `{user}` would find others, too at character 13"),
            ("(uid={name})", "only `{user}` and `{dn}` are known; write `{` as `\\7b` at character 6"),
            ("(uid=\\2)", "two hexadecimal digits follow a `\\` at character 6"),
            ("(uid=\\+2)", "two hexadecimal digits follow a `\\` at character 6"),
            ("(member=x{dn})", "nothing may stand beside `{dn}` at character 14"),
            ("(a=b(c)", "write `(` in a value as `\\28` at character 5"),
            ("(&)", "a filter begins with `(` at character 3"),
            ("(a=b**c)", "two stars stand side by side at character 8"),
        ] {
            assert_eq!(Filter::parse(text).unwrap_err().to_string(), expected, "{text}");
        }
        let deep = format!("{}(a=b){}", "(!".repeat(1000), ")".repeat(1000));
        assert!(Filter::parse(&deep).unwrap_err().to_string().starts_with("the filter is nested too deeply"));
    }

    proptest! {
        /// Nothing panics, and what is typed in stays a value.
        #[test]
        fn any_text_is_a_filter_or_none(text in "[()&|!=*\\\\a{}user:<>~ -]{0,40}", name in ".*") {
            if let Ok(filter) = Filter::parse(&text) {
                for value in filter.values() {
                    let filled = value.fill(&name, "cn=x");
                    if let FilterValue::User(before, behind) = value {
                        prop_assert_eq!(filled.len(), before.len() + name.len() + behind.len());
                    }
                }
            }
        }
    }
}
