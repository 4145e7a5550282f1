//! The store of limits that several servers share (`limit-store`), in the report.

use super::report::{Row, Section, label};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt::Write;
use tidegate_core::rate::StoreHealth;

/// How it stands with the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitStoreReport {
    /// Where it is.
    pub address: String,
    /// How many servers use it, this one included, as far as is known.
    pub servers: u32,
    /// Questions that it has not answered.
    pub failures: u64,
    /// Why it has not answered the last one of a server process; `None` where it has.
    pub trouble: Option<String>,
}

impl From<StoreHealth> for LimitStoreReport {
    fn from(health: StoreHealth) -> LimitStoreReport {
        let StoreHealth { address, servers, failures, trouble } = health;
        LimitStoreReport { address, servers, failures, trouble }
    }
}

/// Adds what another process says. Of two stores the one with trouble is told of, since processes that end may have another.
pub fn merge(of: &mut Option<LimitStoreReport>, more: Option<&LimitStoreReport>) {
    match (of.as_mut(), more) {
        (_, None) => {}
        (None, Some(more)) => *of = Some(more.clone()),
        (Some(known), Some(more)) => {
            known.servers = known.servers.max(more.servers);
            known.failures += more.failures;
            if known.trouble.is_none() && more.trouble.is_some() {
                (known.address, known.trouble) = (more.address.clone(), more.trouble.clone());
            }
        }
    }
}

/// A section, where there is one.
pub(super) fn section(store: Option<&LimitStoreReport>) -> Option<Section> {
    let store = store?;
    let how = match &store.trouble {
        Some(why) => format!("does not answer: {why}; this server keeps to its part"),
        None => "limits are shared".to_owned(),
    };
    let how = format!("{how}, servers: {}, questions not answered: {}", store.servers, store.failures);
    Some(Section { title: "Store of Limits".into(), rows: vec![Row::new(store.address.clone(), how)] })
}

/// As JSON; null where there is none.
pub(super) fn to_json(store: Option<&LimitStoreReport>) -> Value {
    store.map_or(Value::Null, |store| {
        json!({
            "address": store.address,
            "servers": store.servers,
            "failures": store.failures,
            "trouble": store.trouble,
        })
    })
}

/// For Prometheus.
pub(super) fn write_prometheus(text: &mut String, store: Option<&LimitStoreReport>) {
    let Some(store) = store else { return };
    let address = label(&store.address);
    for (name, kind, help, value) in [
        ("up", "gauge", "Whether the store of limits has answered.", u64::from(store.trouble.is_none())),
        ("servers", "gauge", "Servers that share limits, as far as is known.", u64::from(store.servers)),
        ("failures_total", "counter", "Questions that the store of limits has not answered.", store.failures),
    ] {
        let _ = writeln!(
            text,
            "# HELP tidegate_limit_store_{name} {help}\n# TYPE tidegate_limit_store_{name} {kind}"
        );
        let _ = writeln!(text, "tidegate_limit_store_{name}{{address=\"{address}\"}} {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_that_is_not_answered_is_told_of() {
        let report = |trouble: Option<&str>, failures| LimitStoreReport {
            address: "192.0.2.1:6379".into(),
            servers: 2,
            failures,
            trouble: trouble.map(str::to_owned),
        };
        let mut all = None;
        merge(&mut all, None);
        merge(&mut all, Some(&report(None, 1)));
        merge(&mut all, Some(&report(Some("NOAUTH"), 2)));
        merge(&mut all, Some(&report(None, 0)));
        assert_eq!(all, Some(report(Some("NOAUTH"), 3)));
        let row = &section(all.as_ref()).unwrap().rows[0];
        assert!(row.value.contains("NOAUTH"), "{}", row.value);
        let mut text = String::new();
        write_prometheus(&mut text, all.as_ref());
        assert!(text.contains("tidegate_limit_store_up{address=\"192.0.2.1:6379\"} 0\n"), "{text}");
        assert_eq!(to_json(all.as_ref())["trouble"], "NOAUTH");
        assert!(section(None).is_none() && to_json(None).is_null());
    }
}
