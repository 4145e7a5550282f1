//! What a client has to write as a JSON object.
//!
//! Serde also takes a list for a struct, its members in the order in which the program happens to declare them: what a client writes
//! so means something else with the next version. [`Object`] takes an object alone, at the top of a content and within.

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// A value that is written as an object, and never as a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Object<T>, D::Error> {
        from.deserialize_map(Members(PhantomData))
    }
}

struct Members<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(members)).map(Object)
    }
}

/// Reads the content of a request, which is an object.
///
/// # Errors
/// A clause that says what is wrong with it, in words of JSON.
pub fn read<'de, T: Deserialize<'de>>(content: &'de [u8]) -> Result<T, String> {
    let read = serde_json::from_slice(content);
    read.map(|Object(read)| read).map_err(|error| in_words(&error.to_string()))
}

/// What serde says of a value of another kind, without the types of the program.
fn in_words(said: &str) -> String {
    let kinds = ["invalid type: ", "invalid value: "];
    let of_kind = kinds.iter().find_map(|kind| said.strip_prefix(kind)?.rsplit_once(", expected "));
    let Some((found, expected)) = of_kind else { return said.to_owned() };
    let (expected, place) = expected.split_once(" at line ").unwrap_or((expected, ""));
    let expected = match expected {
        "a sequence" => "a list",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number",
        other => other,
    };
    let found = match found {
        "sequence" => "a list",
        "map" => "an object",
        other => other,
    };
    let place = if place.is_empty() { String::new() } else { format!(" at line {place}") };
    format!("{expected} is expected{place}, and not {found}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        inner: Vec<Object<Inner>>,
        number: Option<u64>,
    }

    #[derive(Debug, PartialEq, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        text: String,
    }

    #[test]
    fn an_object_is_no_list_and_what_is_wrong_is_said_in_words() {
        let inner = vec![Object(Inner { text: "a".into() })];
        let read = read::<Outer>;
        assert_eq!(read(br#"{"inner":[{"text":"a"}],"number":5}"#), Ok(Outer { inner, number: Some(5) }));
        for (content, said) in [
            (r#"[[{"text":"a"}],5]"#, "an object is expected at line 1 column 0, and not a list"),
            ("[]", "an object is expected at line 1 column 0, and not a list"),
            ("5", "an object is expected at line 1 column 1, and not integer `5`"),
            ("null", "an object is expected at line 1 column 4, and not null"),
            (r#"{"inner":[["a"]]}"#, "an object is expected at line 1 column 10, and not a list"),
            (r#"{"inner":{"text":"a"}}"#, "a list is expected at line 1 column 9, and not an object"),
            (
                r#"{"inner":[],"number":"x"}"#,
                "a whole number is expected at line 1 column 24, and not string \"x\"",
            ),
            (
                r#"{"inner":[],"number":-1}"#,
                "a whole number is expected at line 1 column 23, and not integer `-1`",
            ),
            (r#"{"inner":[],"inner":[]}"#, "duplicate field `inner` at line 1 column 19"),
            (
                r#"{"inner":[{"text":"a","more":1}]}"#,
                "unknown field `more`, expected `text` at line 1 column 28",
            ),
            (r#"{"number":1}"#, "missing field `inner` at line 1 column 12"),
            ("{} {}", "missing field `inner` at line 1 column 2"),
        ] {
            assert_eq!(read(content.as_bytes()), Err(said.to_owned()), "{content}");
        }
    }
}
