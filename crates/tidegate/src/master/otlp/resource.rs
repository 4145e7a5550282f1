//! Who tells: the resource of all messages, by the semantic conventions of OpenTelemetry.

use crate::version::VERSION;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;

/// This server.
pub(super) struct Origin {
    /// `service.instance.id`.
    pub instance: String,
    /// Since when it counts: seconds since 1970.
    pub started: i64,
}

impl Origin {
    /// A server that counts since then, under an id of random bits: a UUID of version 4.
    pub(super) fn new(started: i64) -> Origin {
        let mut bytes = [0; 16];
        let _ = tidegate_tls::fill_random(&mut bytes); // without it the id is that of nobody
        let bits = u128::from_be_bytes(bytes) & !(0xf << 76) & !(0b11 << 62) | (4 << 76) | (0b10 << 62);
        let digits = format!("{bits:032x}");
        let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| digits.get(part).unwrap_or_default());
        Origin { instance: parts.join("-"), started }
    }

    /// As a collector has it.
    pub(super) fn resource(&self, service: &str) -> Resource {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let attributes = [
            ("service.name", service),
            ("service.version", VERSION),
            ("service.instance.id", &self.instance),
            ("host.name", &host),
        ];
        Resource {
            attributes: attributes.into_iter().map(|(name, value)| text(name, value)).collect(),
            ..Resource::default()
        }
    }
}

/// What has made the message.
pub(super) fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "tidegate".into(),
        version: VERSION.into(),
        ..InstrumentationScope::default()
    }
}

/// An attribute that is a text.
pub(super) fn text(name: &str, value: &str) -> KeyValue {
    attribute(name, Value::StringValue(value.to_owned()))
}

/// An attribute that is a number.
pub(super) fn number(name: &str, value: u64) -> KeyValue {
    attribute(name, Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX)))
}

fn attribute(name: &str, value: Value) -> KeyValue {
    KeyValue { key: name.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

/// What hexadecimal digits say, if they are as many as such an id has.
pub(super) fn id_of(digits: &str, length: usize) -> Option<Vec<u8>> {
    let pairs = (0..length).map(|at| digits.get(2 * at..2 * at + 2));
    let bytes = pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect::<Option<Vec<_>>>()?;
    (digits.len() == 2 * length).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_uuids_of_version_4() {
        let (one, other) = (Origin::new(0).instance, Origin::new(0).instance);
        assert_ne!(one, other);
        let parts: Vec<_> = one.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12]);
        assert!(one.as_bytes()[14] == b'4' && b"89ab".contains(&one.as_bytes()[19]), "{one}");
    }
}
