//! `No-Vary-Search` (draft-ietf-httpbis-no-vary-search-04): which parameters of a query do not choose a response.
//!
//! Read only where the settings ask for it ([`super::Rules::no_vary_search`]). The cache remembers for a path what
//! its last response has said, and looks a second time under the key that follows from it.

use sfv::{BareItem, Dictionary, ListEntry};

use super::directives::structured;
use crate::field::FieldLines;
use crate::query::decoded;

/// Which parameters of a query do not matter, and whether their order does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoVarySearch {
    ignores_order: bool,
    params: Params,
}

/// Names, decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Params {
    /// Those that matter.
    Only(Vec<String>),
    /// Those that do not.
    AllBut(Vec<String>),
}

impl NoVarySearch {
    /// What a response says (section 4); `None` where it says nothing, or nothing valid: then the whole query
    /// matters, as it was sent.
    pub fn parse(fields: &FieldLines) -> Option<NoVarySearch> {
        let members: Dictionary = structured(fields, "No-Vary-Search")?;
        let ignores_order = match members.get("key-order") {
            None => false,
            Some(value) => boolean(value)?,
        };
        let all = Params::AllBut(Vec::new());
        let mut params = match members.get("params") {
            None => all,
            Some(value) => match boolean(value) {
                Some(true) => Params::Only(Vec::new()),
                Some(false) => all,
                None => Params::AllBut(names(value)?),
            },
        };
        if let Some(except) = members.get("except") {
            if members.get("params").and_then(boolean) != Some(true) {
                return None;
            }
            params = Params::Only(names(except)?);
        }
        let says_nothing = !ignores_order && params == Params::AllBut(Vec::new());
        (!says_nothing).then_some(NoVarySearch { ignores_order, params })
    }

    /// Whether two queries, without their question marks, get the same response (section 5).
    pub fn is_same(&self, one: Option<&str>, other: Option<&str>) -> bool {
        self.chosen(one.unwrap_or_default()) == self.chosen(other.unwrap_or_default())
    }

    /// Appends what matters of a query, so that two are the same exactly where [`NoVarySearch::is_same`] says so.
    pub(super) fn push_normal(&self, out: &mut Vec<u8>, query: &str) {
        for text in self.chosen(query).into_iter().flat_map(|(name, value)| [name, value]) {
            out.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        }
    }

    /// The parameters that matter, decoded.
    fn chosen(&self, query: &str) -> Vec<(String, String)> {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let mut chosen: Vec<(String, String)> = pairs
            .map(|(name, value)| (text(name), text(value)))
            .filter(|(name, _)| self.matters(name))
            .collect();
        if self.ignores_order {
            chosen.sort_by(|(one, _), (other, _)| one.cmp(other));
        }
        chosen
    }

    fn matters(&self, name: &String) -> bool {
        match &self.params {
            Params::Only(names) => names.contains(name),
            Params::AllBut(names) => !names.contains(name),
        }
    }
}

fn text(encoded: &str) -> String {
    String::from_utf8_lossy(&decoded(encoded)).into_owned()
}

fn boolean(value: &ListEntry) -> Option<bool> {
    match value {
        ListEntry::Item(item) => item.bare_item.as_boolean(),
        ListEntry::InnerList(_) => None,
    }
}

/// The names of an inner list of strings.
fn names(value: &ListEntry) -> Option<Vec<String>> {
    let ListEntry::InnerList(list) = value else { return None };
    let names = list.items.iter().map(|item| match &item.bare_item {
        BareItem::String(name) => Some(text(name.as_str())),
        _ => None,
    });
    names.collect()
}
