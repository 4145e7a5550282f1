//! Identity providers in the report: whether what they publish could be had.

use super::report::{Row, Section, date};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Something that a provider publishes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderReport {
    /// What, and of whom.
    pub what: String,
    /// When it was last had, by whichever server process, seconds since 1970.
    pub success: Option<i64>,
    /// When it could last not be had, and why, unless that process has had it since.
    pub mistake: Option<(i64, String)>,
}

/// Adds what another process says.
pub fn merge(all: &mut Vec<ProviderReport>, others: &[ProviderReport]) {
    for other in others {
        match all.iter_mut().find(|known| known.what == other.what) {
            Some(known) => {
                known.success = known.success.max(other.success);
                known.mistake = known.mistake.take().max(other.mistake.clone());
            }
            None => all.push(other.clone()),
        }
    }
}

/// A section for all of them; none where there is none.
pub(super) fn sections(providers: &[ProviderReport]) -> Option<Section> {
    let row = |provider: &ProviderReport| {
        let had = provider.success.map_or_else(|| "never had".to_owned(), |at| format!("had {}", date(at)));
        let mistake = provider.mistake.as_ref();
        let mistake = mistake.map(|(at, why)| format!(", not had {}: {why}", date(*at))).unwrap_or_default();
        Row::new(provider.what.clone(), format!("{had}{mistake}"))
    };
    let rows: Vec<Row> = providers.iter().map(row).collect();
    (!rows.is_empty()).then(|| Section { title: "Identity Providers".into(), rows })
}

/// All of them as JSON.
pub(super) fn to_json(providers: &[ProviderReport]) -> Value {
    let one = |provider: &ProviderReport| {
        json!({
            "what": provider.what,
            "success": provider.success.map(date),
            "mistake": provider.mistake.as_ref().map(|(at, why)| json!({ "at": date(*at), "why": why })),
        })
    };
    providers.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_one() {
        let report = |success, mistake: Option<(i64, &str)>| ProviderReport {
            what: "the keys".into(),
            success,
            mistake: mistake.map(|(at, why)| (at, why.to_owned())),
        };
        let mut all = Vec::new();
        merge(&mut all, &[report(Some(5), None)]);
        merge(&mut all, &[report(Some(3), Some((7, "away")))]);
        merge(&mut all, &[report(None, Some((6, "slow")))]);
        assert_eq!(all, [report(Some(5), Some((7, "away")))]);
        let row = &sections(&all).unwrap().rows[0];
        assert!(row.value.contains("had 1970-01-01") && row.value.ends_with(": away"), "{}", row.value);
        assert_eq!(to_json(&all)[0]["mistake"]["why"], "away");
        assert!(sections(&[]).is_none());
    }
}
