//! What comes down from the top level to a site to a route.
//!
//! Each level starts from a copy of the outer one and applies its own directives. The table says for each
//! directive whether an inner one replaces the outer or is added; this is where that is done.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::check::{Checker, Item, number};
use crate::directive::{Context, Inheritance};
use crate::lower::access;
use crate::settings::{
    Access, AccessRule, AccessRules, Coding, Compress, Listing, NetworkSet, Shared, Symlinks, Try,
};
use crate::value::{Value, field_names_agree};
use crate::{directives, lower};

/// The values in force at some level.
#[derive(Debug, Clone, Default)]
pub(crate) struct Inherited {
    pub root: Option<PathBuf>,
    pub index: Vec<String>,
    pub try_list: Vec<Try>,
    pub listing: Option<Listing>,
    pub precompressed: Vec<Coding>,
    pub charset: Option<String>,
    pub types: Vec<(String, String)>,
    pub default_type: String,
    pub symlinks: Symlinks,
    pub serves_hidden: bool,
    pub uses_cache: bool,
    pub access: Access,
    pub fields: Vec<(String, String)>,
    pub removed_fields: Vec<String>,
    pub cache_control: Option<String>,
    pub early_hints: Vec<String>,
    pub error_pages: Vec<(u16, String)>,
    pub intercepts: bool,
    pub compress: Option<Compress>,
    /// The value of `Strict-Transport-Security`.
    pub hsts: Option<String>,
    pub trusted_proxies: Shared<NetworkSet>,
    /// What routes may name.
    pub applications: Arc<Applications>,
}

/// The names of pools and of upstreams as written, those with mistakes too.
#[derive(Debug, Default)]
pub(crate) struct Applications {
    pub pools: Vec<String>,
    /// What stands behind each pool: `php`, `cgi-stubs`, `command` or `address`.
    pub kinds: HashMap<String, &'static str>,
    pub upstreams: Vec<String>,
    /// What the checks of an upstream speak, where it has any: `tcp`, `http` or `fastcgi`.
    pub checks: Vec<(String, String)>,
}

impl Applications {
    fn of(items: &[Item]) -> Self {
        let named = |what: &str| {
            let items = items.iter().filter(|item| item.directive.name == what);
            items.filter_map(|item| item.texts().into_iter().next()).collect()
        };
        let groups = items.iter().filter(|item| item.directive.name == "upstream");
        let check = |item: &Item| {
            let Some(Value::Word(kind)) = item.child("check")?.first() else { return None };
            Some((item.texts().into_iter().next()?, (*kind).to_owned()))
        };
        let pools = items.iter().filter(|item| item.directive.name == "pool");
        let kinds = pools.filter_map(|item| {
            let mut kinds = item.children.iter().map(|child| child.directive.name);
            let kind = kinds.find(|name| super::pool::KINDS.contains(name))?;
            Some((item.texts().into_iter().next()?, kind))
        });
        Self {
            kinds: kinds.collect(),
            pools: named("pool"),
            upstreams: named("upstream"),
            checks: groups.filter_map(check).filter(|(_, kind)| kind != "off").collect(),
        }
    }
}

impl Inherited {
    /// The defaults of the table with what the top level sets.
    pub fn top(checker: &mut Checker<'_>, items: &[Item]) -> Self {
        let applications = Arc::new(Applications::of(items));
        let mut inherited = Self { applications, ..Self::default() };
        for directive in directives::in_context(Context::Top) {
            if directive.inheritance != Inheritance::None
                && let Some(item) = lower::default_item(directive, Context::Top)
            {
                inherited.set(&item);
            }
        }
        inherited.apply(checker, items);
        inherited
    }

    /// Applies the directives of a level.
    pub fn apply(&mut self, checker: &mut Checker<'_>, items: &[Item]) {
        let has = |name: &str| items.iter().find(|item| item.directive.name == name);
        if let (Some(_), Some(second)) = (has("expires"), has("cache-control")) {
            let message = "`cache-control` stands beside `expires`, which sets the same field";
            checker.diagnostics.push(
                second
                    .error(message)
                    .help("keep one; `cache-control \"max-age=3600\"` says what `expires \"1h\"` does"),
            );
        }
        self.access(checker, items);
        // A field given here takes the place of the inherited one; given twice here, both are sent.
        for item in items.iter().filter(|item| item.directive.name == "header") {
            if let Some(Value::Text(name)) = item.first() {
                self.fields.retain(|(known, _)| !field_names_agree(known, name));
            }
        }
        let mut codes: Vec<(u64, &Item)> = Vec::new();
        for item in items.iter().filter(|item| item.directive.name == "error-page") {
            let code = number(item);
            if code != 0 && codes.iter().any(|(known, _)| *known == code) {
                let message = format!("the page for status {code} is given twice");
                checker.diagnostics.push(item.error_at(0, message).help("keep one of the two"));
            }
            if (1..400).contains(&code) {
                checker.diagnostics.push(
                    item.error_at(0, format!("{code} is no error status"))
                        .help("error statuses go from 400 to 599"),
                );
            }
            codes.push((code, item));
        }
        for item in items {
            self.set(item);
        }
    }

    fn set(&mut self, item: &Item) {
        match item.directive.name {
            "root" => {
                if let Some(Value::Path(path)) = item.first() {
                    self.root = Some(path.clone());
                }
            }
            "index" => self.index = item.texts(),
            "try" => {
                let entries = item.arguments.iter();
                let entries = entries.filter_map(|placed| {
                    if let Value::Try(entry) = &placed.value { Some(entry.clone()) } else { None }
                });
                self.try_list = entries.collect();
            }
            "listing" => self.listing = listing(item),
            "charset" => self.charset = item.texts().pop(),
            "types" => {
                self.types.retain(|(known, _)| !item.pairs.iter().any(|(extension, _)| extension == known));
                self.types.extend(item.pairs.iter().cloned());
            }
            "default-type" => self.default_type = item.texts().pop().unwrap_or_default(),
            "precompressed" => self.precompressed = codings(item, &["br", "zst", "gz"]),
            "compress" => self.compress = compress(item),
            "trusted-proxies" => {
                self.trusted_proxies = lower::networks(item).into();
            }
            "intercept" => self.intercepts = !item.is_word("off"),
            "symlinks" => {
                self.symlinks = match item.first() {
                    Some(Value::Word("owner")) => Symlinks::Owner,
                    Some(Value::Word("any")) => Symlinks::Any,
                    _ => Symlinks::Beneath,
                }
            }
            "hidden" => self.serves_hidden = !item.is_word("off"),
            "nocache" => self.uses_cache = item.is_word("off"),
            "hsts" => self.hsts = lower::tls::hsts_value(item),
            "require-client-certificate" => self.access.requires_client_certificate = !item.is_word("off"),
            "expires" => {
                self.cache_control = match item.first() {
                    Some(Value::Duration(time)) => Some(format!("max-age={}", time.as_secs())),
                    _ => None,
                };
            }
            "early-hints" => self.early_hints = if item.is_word("off") { Vec::new() } else { item.texts() },
            "cache-control" => self.cache_control = item.texts().pop(),
            "header" => match item.texts().as_slice() {
                [name, value] => {
                    self.removed_fields.retain(|removed| !field_names_agree(removed, name));
                    self.fields.push((name.clone(), value.clone()));
                }
                [name] if !self.removed_fields.iter().any(|removed| field_names_agree(removed, name)) => {
                    self.removed_fields.push(name.clone());
                }
                _ => {}
            },
            "error-page" => {
                let code = u16::try_from(number(item)).unwrap_or_default();
                self.error_pages.retain(|(known, _)| *known != code);
                if let Some(path) = item.texts().pop() {
                    self.error_pages.push((code, path)); // `off` is no text
                }
            }
            // All of a level together: `access`.
            "allow" | "deny" | "access" => {}
            name => debug_assert_eq!(
                item.directive.inheritance,
                Inheritance::None,
                "`{name}` is inherited, and nothing applies it"
            ),
        }
    }

    /// The rules of a level stand beside those of the levels around it.
    fn access(&mut self, checker: &mut Checker<'_>, items: &[Item]) {
        if items.iter().any(|item| item.directive.name == "access") {
            self.access.levels.clear();
        }
        let mut rules = Vec::new();
        for item in items.iter().filter(|item| matches!(item.directive.name, "allow" | "deny")) {
            let allows = item.directive.name == "allow";
            for placed in &item.arguments {
                let Value::Network(network) = placed.value else { continue };
                if allows && let Some(rule) = access::refusing(&self.access.levels, network) {
                    let diagnostic = access::warning(network, rule);
                    checker.diagnostics.push(diagnostic.at(&item.file.source, placed.range.clone()));
                }
                let origin = item.file.source.origin(placed.range.start);
                rules.push(AccessRule { allows, network, origin });
            }
        }
        if !rules.is_empty() {
            self.access.levels.push(AccessRules::from(rules).into());
        }
    }
}

pub(super) fn listing(item: &Item) -> Option<Listing> {
    if item.is_word("off") {
        return None;
    }
    let names = |name: &str| {
        lower::written_or_default(&item.children, Context::Listing, name)
            .map(|item| item.texts())
            .unwrap_or_default()
    };
    let page = match item.property("page") {
        Some(Value::Number(page)) => u32::try_from(page).unwrap_or(u32::MAX),
        _ => 0,
    };
    Some(Listing { header: names("header"), readme: names("readme"), page })
}

/// The codings that are named, or all of them where none is.
fn codings(item: &Item, all: &[&'static str]) -> Vec<Coding> {
    let words: Vec<&str> = item
        .arguments
        .iter()
        .filter_map(|placed| if let Value::Word(word) = placed.value { Some(word) } else { None })
        .collect();
    if words.contains(&"off") {
        return Vec::new();
    }
    let words = if words.is_empty() { all } else { &words };
    let mut codings = Vec::new();
    for word in words {
        let coding = match *word {
            "br" => Coding::Brotli,
            "zst" | "zstd" => Coding::Zstd,
            _ => Coding::Gzip,
        };
        if !codings.contains(&coding) {
            codings.push(coding);
        }
    }
    codings
}

fn compress(item: &Item) -> Option<Compress> {
    let codings = codings(item, &["zstd", "br", "gzip"]);
    if codings.is_empty() {
        return None;
    }
    let property = |name: &str| match item.property(name) {
        Some(Value::Number(number)) => number,
        _ => 0,
    };
    let level = |coding: &Coding| match coding {
        Coding::Zstd => property("zstd-level"),
        Coding::Brotli => property("br-level"),
        Coding::Gzip => property("gzip-level"),
    };
    let codings =
        codings.iter().map(|coding| (*coding, u8::try_from(level(coding)).unwrap_or_default())).collect();
    let types = item.child("media-types").map(Item::texts).unwrap_or_default();
    Some(Compress { codings, min_length: property("min"), types })
}
