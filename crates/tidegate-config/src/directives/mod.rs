//! The table of all directives: the source of checking, defaults, reference and schema.
//!
//! Split by where they stand. To add one: add a row here. One that is inherited says in its row how it is applied; any
//! other is lowered in `lower`. The tests hold its example and its default to what the row says.

mod answer;
mod cache;
mod directory;
mod files;
mod forward;
mod gateway;
mod guard;
mod limits;
mod openid;
mod pool;
mod rules;
mod server;
mod site;
mod tls;
mod tokens;
mod upstream;

use crate::directive::{Argument, Context, Directive};
use crate::language::Language;

/// The parts of the table, in the order of the reference.
pub(crate) static SETTINGS: Language = Language::of_settings(&[
    server::DIRECTIVES,
    limits::DIRECTIVES,
    site::DIRECTIVES,
    rules::DIRECTIVES,
    files::DIRECTIVES,
    guard::DIRECTIVES,
    directory::DIRECTIVES,
    forward::DIRECTIVES,
    answer::DIRECTIVES,
    cache::DIRECTIVES,
    gateway::DIRECTIVES,
    pool::DIRECTIVES,
    upstream::DIRECTIVES,
    tls::DIRECTIVES,
    tokens::DIRECTIVES,
    openid::DIRECTIVES,
]);

/// Every directive, in the order of the reference.
pub fn all() -> impl Iterator<Item = &'static Directive> {
    SETTINGS.all()
}

/// The directive of a name within a context.
pub fn find(context: Context, name: &str) -> Option<&'static Directive> {
    SETTINGS.find(context, name)
}

/// The directives that may stand in a context.
pub fn in_context(context: Context) -> impl Iterator<Item = &'static Directive> {
    SETTINGS.in_context(context)
}

/// The names of all directives; one that stands in several forms comes several times.
pub fn names() -> impl Iterator<Item = &'static str> {
    SETTINGS.names()
}

// Of the rows: bytes, and milliseconds.
const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;
const TIB: u64 = 1024 * GIB;
const SECOND: u64 = 1000;
const HOUR: u64 = 3600 * SECOND;
const DAY: u64 = 24 * HOUR;

/// A row of one value with one default.
const fn bound(
    name: &'static str,
    contexts: &'static [Context],
    argument: &'static [Argument],
    default: &'static str,
    doc: &'static str,
    example: &'static str,
) -> Directive {
    let mut directive = Directive::new(name, contexts);
    directive.arguments = argument;
    directive.default = Some(default);
    directive.doc = doc;
    directive.example = example;
    directive
}
