//! The JSON schema (draft 2020-12) of the settings in their JSON form, written from the table of directives.
//!
//! The JSON form of a document is a list of directives in order, each an object: `directive` (its name),
//! `arguments` (a list), `properties` (an object), `children` (a list of the same). `check --print-effective` writes
//! it. For editors and the console; it says what the table can say, and `check` says the rest.

use serde_json::{Map, Value, json};

use crate::directive::{Argument, Children, Context, Count, Directive, Kind};
use crate::directives;
use crate::language::Language;

/// The schema of the settings as text.
pub fn json_schema() -> String {
    let description = "The JSON form of a settings document: its directives, in order.";
    of(&directives::SETTINGS, "Tidegate settings", description, &Context::ALL)
}

/// The schema of a language as text; the first of its places is the outermost.
pub(crate) fn of(language: &Language, title: &str, description: &str, places: &[Context]) -> String {
    let mut definitions = Map::new();
    for context in places {
        let names = language.in_context(*context);
        let one_of: Vec<Value> =
            names.map(|directive| json!({ "$ref": format!("#/$defs/{}", key(directive)) })).collect();
        definitions.insert(
            format!("in-{}", context.key()),
            json!({ "type": "array", "items": { "oneOf": one_of } }),
        );
    }
    for directive in language.all() {
        definitions.insert(key(directive), definition(directive));
    }
    let outermost = places.first().map_or("top", |place| place.key());
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        "description": description,
        "$ref": format!("#/$defs/in-{outermost}"),
        "$defs": definitions,
    });
    let mut text = serde_json::to_string_pretty(&schema).expect("invariant: a JSON value has a text");
    text.push('\n');
    text
}

fn key(directive: &Directive) -> String {
    format!("{}.{}", directive.contexts[0].key(), directive.name)
}

fn definition(directive: &Directive) -> Value {
    let mut fields = Map::new();
    fields.insert("directive".to_owned(), json!({ "const": directive.name }));
    let at = json!({ "type": "string", "description": "where it was written, `FILE:LINE`, or `default`" });
    fields.insert("at".to_owned(), at);
    let mut required = vec!["directive"];
    if !directive.arguments.is_empty() {
        let (arguments, least) = arguments(directive.arguments);
        fields.insert("arguments".to_owned(), arguments);
        if least > 0 {
            required.push("arguments");
        }
    }
    if !directive.properties.is_empty() {
        let properties: Map<String, Value> = directive
            .properties
            .iter()
            .map(|property| {
                let mut schema = value(property.kind, &[]);
                schema["description"] = json!(property.doc);
                if let Some(default) = property.default {
                    schema["default"] = default_value(property.kind, default);
                }
                (property.name.to_owned(), schema)
            })
            .collect();
        let schema = json!({ "type": "object", "properties": properties, "additionalProperties": false });
        fields.insert("properties".to_owned(), schema);
    }
    match directive.children {
        Children::None => {}
        Children::Block(context) => {
            fields.insert("children".to_owned(), json!({ "$ref": format!("#/$defs/in-{}", context.key()) }));
        }
        Children::Deferred => {
            fields.insert("children".to_owned(), json!({ "type": "array" }));
        }
        Children::Pairs { value: kind, .. } | Children::Rows { value: kind, .. } => {
            let pairs = json!({ "type": "object", "additionalProperties": value(kind, &[]) });
            fields.insert("children".to_owned(), pairs);
        }
    }
    json!({
        "type": "object",
        "description": directive.doc,
        "properties": fields,
        "required": required,
        "additionalProperties": false,
        "$comment": format!("in KDL: {}", directive.example),
    })
}

/// The schema of a list of arguments, and how many there must be.
fn arguments(arguments: &[Argument]) -> (Value, usize) {
    let least =
        arguments.iter().filter(|argument| matches!(argument.count, Count::One | Count::Some)).count();
    let schemas: Vec<Value> = arguments
        .iter()
        .map(|argument| {
            let mut schema = value(argument.kind, argument.words);
            schema["title"] = json!(argument.name);
            schema
        })
        .collect();
    let mut schema = json!({ "type": "array", "minItems": least });
    match arguments.last() {
        // What stands behind several cannot be told by its place.
        Some(last) if !last.is_repeated() && arguments.iter().any(Argument::is_repeated) => {
            schema["items"] = json!({ "anyOf": schemas });
        }
        Some(last) if last.is_repeated() => {
            schema["items"] = schemas.last().cloned().unwrap_or(Value::Bool(true));
            if schemas.len() > 1 {
                schema["prefixItems"] = Value::Array(schemas);
            }
        }
        _ => {
            schema["prefixItems"] = Value::Array(schemas);
            schema["items"] = Value::Bool(false);
        }
    }
    (schema, least)
}

fn value(kind: Kind, words: &[&str]) -> Value {
    let mut schema = match kind {
        Kind::Number { least, most } => json!({ "type": "integer", "minimum": least, "maximum": most }),
        Kind::Statuses => json!({ "type": "string" }),
        Kind::Status { only: &[] } => json!({ "type": "integer", "minimum": 200, "maximum": 599 }),
        Kind::Status { only } => json!({ "enum": only }),
        Kind::Size { least, most } => {
            json!({ "type": "string", "pattern": amounts(least, most, &crate::value::SIZE_UNITS) })
        }
        Kind::Speed { least, most } => {
            let amounts = amounts(least, most, &crate::value::SIZE_UNITS);
            json!({ "type": "string", "pattern": format!("{}/s$", amounts.trim_end_matches('$')) })
        }
        Kind::Duration { least, most } => {
            json!({ "type": "string", "pattern": amounts(least, most, &crate::value::TIME_UNITS) })
        }
        Kind::Decimal { most } => json!({ "anyOf": [
            { "type": "integer", "minimum": 0, "maximum": most },
            { "type": "string", "pattern": "^[0-9]{1,12}(\\.[0-9]{1,6})?$" },
        ] }),
        Kind::Rate => {
            let whole = numbers(1, crate::value::RATE_MOST);
            let below_one = "0+\\.([1-9][0-9]{0,2}|0[1-9][0-9]?|00[1-9])";
            json!({ "type": "string", "pattern": format!("^(0*({whole})(\\.[0-9]{{1,3}})?|{below_one})/[smhd]$") })
        }
        Kind::Share => {
            json!({ "type": "string", "pattern": "^(100(\\.0{1,4})?|[1-9]?[0-9](\\.[0-9]{1,4})?)%$" })
        }
        Kind::Choice(choice) => json!({ "enum": choice.iter().chain(words).collect::<Vec<_>>() }),
        // The bound is in bytes, of which a character has at most four; the schema counts characters.
        Kind::Text { most } => json!({ "type": "string", "maxLength": most }),
        Kind::SitePath => json!({ "type": "string", "pattern": "^/" }),
        Kind::Pattern => json!({ "type": "string", "pattern": "^[/*@]" }),
        Kind::FileName => json!({ "type": "string", "pattern": "^[^/]+$" }),
        Kind::FieldName | Kind::Token => {
            json!({ "type": "string", "pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$" })
        }
        Kind::Try => json!({ "type": "string", "pattern": "^(/|\\{path\\}|@|=[45][0-9][0-9]$)" }),
        Kind::FieldValue | Kind::FieldTemplate => json!({ "type": "string" }),
        _ => json!({ "type": "string", "minLength": 1 }),
    };
    if !words.is_empty() && !matches!(kind, Kind::Choice(_)) {
        schema = json!({ "anyOf": [schema, { "enum": words }] });
    }
    schema["description"] = json!(kind.expectation_with(words));
    schema
}

/// A pattern of the amounts from `least` to `most`, each with its unit.
fn amounts(least: u64, most: u64, units: &[(&str, u64)]) -> String {
    let units = units.iter().filter_map(|(unit, factor)| {
        let (low, high) = (least.div_ceil(*factor), most / factor);
        (low <= high).then(|| format!("0*({}){unit}", numbers(low, high)))
    });
    format!("^({})$", units.collect::<Vec<_>>().join("|"))
}

/// A pattern of the decimal numbers from `low` to `high`, without zeros in front: the range cut into parts within
/// which the first digits are fixed, one varies, and the rest is free.
fn numbers(low: u64, high: u64) -> String {
    let mut parts = Vec::new();
    let mut from = low;
    loop {
        // The widest part of this shape that begins at `from` and ends by `high`.
        let mut step = 1u64;
        while let Some(wider) = step.checked_mul(10)
            && from.is_multiple_of(wider)
            && from.checked_add(wider - 1).is_some_and(|end| end <= high)
            && from >= wider
        {
            step = wider;
        }
        let digit = from / step % 10;
        let more = ((high - from).saturating_add(1) / step).saturating_sub(1).min(9 - digit);
        let front = from / step / 10;
        let front = if front == 0 { String::new() } else { front.to_string() };
        let free = step.ilog10();
        let digit = match more {
            0 => digit.to_string(),
            _ => format!("[{digit}-{}]", digit + more),
        };
        let free = match free {
            0 => String::new(),
            1 => "[0-9]".to_owned(),
            _ => format!("[0-9]{{{free}}}"),
        };
        parts.push(format!("{front}{digit}{free}"));
        match from.checked_add((more + 1).saturating_mul(step)) {
            Some(next) if next <= high => from = next,
            _ => return parts.join("|"),
        }
    }
}

pub(crate) fn default_value(kind: Kind, text: &str) -> Value {
    match kind {
        Kind::Number { .. } | Kind::Status { .. } => {
            text.parse::<u64>().map_or_else(|_| json!(text), |number| json!(number))
        }
        _ => json!(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::{self, Written};
    use proptest::prelude::*;
    use std::path::Path;

    /// The few keywords that this schema uses for values.
    fn admits(schema: &Value, found: &Value) -> bool {
        let number = |key: &str| schema.get(key).and_then(Value::as_u64);
        let text = found.as_str();
        let is_type = match schema.get("type").and_then(Value::as_str) {
            Some("integer") => found.is_u64() || found.is_i64(),
            Some("string") => text.is_some(),
            _ => true,
        };
        is_type
            && schema.get("enum").and_then(Value::as_array).is_none_or(|known| known.contains(found))
            && schema
                .get("anyOf")
                .and_then(Value::as_array)
                .is_none_or(|any| any.iter().any(|one| admits(one, found)))
            && number("minimum").is_none_or(|least| found.as_u64().is_some_and(|found| found >= least))
            && number("maximum").is_none_or(|most| found.as_u64().is_some_and(|found| found <= most))
            && number("minLength")
                .is_none_or(|least| text.is_some_and(|text| text.chars().count() as u64 >= least))
            && number("maxLength")
                .is_none_or(|most| text.is_some_and(|text| text.chars().count() as u64 <= most))
            && schema.get("pattern").and_then(Value::as_str).is_none_or(|pattern| {
                text.is_some_and(|text| regex::Regex::new(pattern).expect("a sound pattern").is_match(text))
            })
    }

    /// Every type of a value that some directive takes, with its words.
    fn kinds() -> Vec<(Kind, &'static [&'static str])> {
        let all = directives::all();
        all.flat_map(|directive| {
            let arguments = directive.arguments.iter().map(|argument| (argument.kind, argument.words));
            arguments.chain(directive.properties.iter().map(|property| (property.kind, &[][..])))
        })
        .collect()
    }

    /// What `check` says of the value.
    fn is_taken((kind, words): (Kind, &'static [&'static str]), found: &Value) -> bool {
        let written = match found {
            Value::String(text) => Written::Text { text, is_bare: true },
            found => {
                Written::Number(found.as_i64().map_or_else(|| found.as_u64().unwrap_or(0).into(), i128::from))
            }
        };
        value::read(kind, words, written, Path::new("/")).is_ok()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(ProptestConfig::default().cases * 12) })]
        #[test]
        fn schema_and_check_agree_on_bounds(
            at in any::<prop::sample::Index>(), near in any::<bool>(), unit in 0usize..5, off in 0u64..3, any in any::<u64>(), word in "[a-z/*.:{}=%@é -]{0,6}"
        ) {
            let kinds = kinds();
            let (kind, words) = kinds[at.index(kinds.len())];
            // A number at one of the bounds, a step beside it, or anywhere.
            let beside = |bound: u64| bound.saturating_add(off).saturating_sub(1);
            let within = |least: u64, most: u64| if near { beside(least) } else if any % 2 == 0 { beside(most) } else { any % most.max(1) };
            let found = match kind {
                Kind::Number { least, most } => json!(within(least, most)),
                Kind::Status { only: &[] } => json!(within(200, 599)),
                Kind::Status { only } => json!(within(200, 599).max(u64::from(only[0]).saturating_sub(1))),
                Kind::Size { least, most } => {
                    let (unit, factor) = value::SIZE_UNITS[unit];
                    json!(format!("{}{unit}", beside(within(least, most) / factor)))
                }
                Kind::Speed { least, most } => {
                    let (unit, factor) = value::SIZE_UNITS[unit];
                    json!(format!("{}{unit}/s", beside(within(least, most) / factor)))
                }
                Kind::Duration { least, most } => {
                    let (unit, factor) = value::TIME_UNITS[unit];
                    json!(format!("{}{unit}", beside(within(least, most) / factor)))
                }
                Kind::Rate => {
                    let unit = ["s", "m", "h", "d", "ms", "min", ""][unit];
                    let fraction = ["", ".5", ".005", ".0005", ".000", "."][(any >> 8) as usize % 6];
                    json!(format!("{}{fraction}/{unit}", within(0, value::RATE_MOST)))
                }
                Kind::Share => {
                    let fraction = ["", ".5", ".0001", ".00001", "."][unit % 5];
                    json!(format!("{}{fraction}%", within(0, 100)))
                }
                Kind::Text { most } => json!("x".repeat(usize::try_from(beside(most as u64)).unwrap_or(0))),
                Kind::Choice(choice) if near => json!(choice[unit % choice.len()]),
                _ => json!(word),
            };
            let (schema, check) = (admits(&value(kind, words), &found), is_taken((kind, words), &found));
            prop_assert!(schema || !check, "check takes {} for {:?}, and the schema does not", found, kind);
            let is_bounded = matches!(
                kind,
                Kind::Number { .. } | Kind::Status { .. } | Kind::Size { .. } | Kind::Duration { .. } | Kind::Speed { .. } | Kind::Rate | Kind::Share | Kind::Choice(_) | Kind::Text { .. }
            );
            prop_assert!(check || !schema || !is_bounded, "the schema takes {} for {:?}, and check does not", found, kind);
            for word in words {
                let word = json!(word);
                prop_assert!(admits(&value(kind, words), &word) && is_taken((kind, words), &word), "{}", word);
            }
        }

        #[test]
        fn patterns_of_numbers(low in 0u64..5000, wide in 0u64..200_000, probe in 0u64..220_000) {
            let pattern = regex::Regex::new(&format!("^({})$", numbers(low, low + wide))).unwrap();
            for probe in [probe, low, low + wide, low.saturating_sub(1), low + wide + 1] {
                let expected = (low..=low + wide).contains(&probe);
                prop_assert_eq!(pattern.is_match(&probe.to_string()), expected, "{} in {}..={}: {}", probe, low, low + wide, pattern);
            }
        }
    }
}
