//! What comes down from the top level to a site to a route.
//!
//! Each level starts from a copy of the outer one and applies its own directives. How a directive is applied, its row
//! in the table says; here is what the rows change, and what is checked of a level as a whole.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::check::{Checker, Item, number};
use crate::diagnostic::{Diagnostic, Severity};
use crate::directive::Context;
use crate::lower::cache::{self, Stores};
use crate::lower::rules::{Names, method};
use crate::lower::{access, error_pages, limits, login, placeholders, rates};
use crate::settings::{
    Access, AccessRule, AccessRules, Ban, Bandwidth, Coding, Compress, Cors, FieldMode, Identification,
    Limit, Listing, MoreField, Network, NetworkSet, Origin, RequestLimits, RouteCache, Sampling, Shared,
    Symlinks, TextPattern, Try, Whom,
};
use crate::value::{Value, ValueError, field_names_agree};
use crate::{directives, lower};

/// The values in force at some level.
#[derive(Debug, Clone, Default)]
pub(crate) struct Inherited {
    pub root: Option<PathBuf>,
    /// Where it was written.
    pub root_origin: Origin,
    /// What was meant to be a root has a mistake, which has been said: none is missing.
    pub root_is_mistaken: bool,
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
    /// The rules of the level that is being applied.
    rules: Vec<AccessRule>,
    pub identification: Identification,
    /// How much of what is required comes from the levels around the one that is being applied.
    outer_requirements: usize,
    /// The same of what is required of certificates.
    outer_certificates: usize,
    pub rates: Vec<Shared<Limit>>,
    pub bans: Vec<Shared<Ban>>,
    /// How many of these are those of the levels around.
    outer_bans: usize,
    pub bandwidths: Vec<Shared<Bandwidth>>,
    /// How many of these are those of the levels around.
    outer_bandwidths: usize,
    /// What this level is called.
    pub level: String,
    /// How many of them come from there.
    outer_rates: usize,
    pub fields: Vec<(String, String)>,
    /// How many of them come from there.
    outer_fields: usize,
    pub more_fields: Vec<MoreField>,
    /// How many of these are of the levels around.
    outer_more_fields: usize,
    pub removed_fields: Vec<String>,
    pub languages: Shared<Vec<String>>,
    pub cors: Option<Shared<Cors>>,
    pub cache_control: Option<String>,
    pub cache: Option<Shared<RouteCache>>,
    /// What the stores say that it may be kept in.
    pub stores: Arc<Stores>,
    pub early_hints: Vec<String>,
    pub error_pages: Vec<(u16, String)>,
    pub intercepts: bool,
    pub compress: Option<Compress>,
    /// The value of `Strict-Transport-Security`.
    pub hsts: Option<String>,
    pub trusted_proxies: Shared<NetworkSet>,
    pub has_request_id: bool,
    pub sampling: Option<Sampling>,
    pub bucket: Option<String>,
    pub slow_after: Option<Duration>,
    pub server_timing: Shared<NetworkSet>,
    pub limits: RequestLimits,
    /// Those of the top level.
    pub limits_of_server: Arc<RequestLimits>,
    /// What routes may name.
    pub applications: Arc<Applications>,
    /// What their conditions and placeholders may name.
    pub names: Names,
}

/// The names of pools and of upstreams as written, those with mistakes too.
#[derive(Debug, Default)]
pub(crate) struct Applications {
    pub pools: BTreeSet<String>,
    /// What stands behind each pool: `php`, `cgi-stubs`, `command` or `address`.
    pub kinds: HashMap<String, &'static str>,
    pub upstreams: BTreeSet<String>,
    /// What the checks of an upstream speak, where it has any: `tcp`, `http` or `fastcgi`.
    pub checks: HashMap<String, String>,
    /// There is an admin API.
    pub has_admin: bool,
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
            has_admin: items.iter().any(|item| item.directive.name == "admin"),
            pools: named("pool"),
            upstreams: named("upstream"),
            checks: groups.filter_map(check).filter(|(_, kind)| kind != "off").collect(),
        }
    }
}

impl Inherited {
    /// Takes down where a site or a route names its folder, if it does.
    pub fn root_written_in(&mut self, item: &Item) {
        if let Some(written) = item.child("alias").or_else(|| item.child("root")) {
            self.root_origin = written.origin();
        }
    }

    /// The defaults of the table with what the top level sets.
    pub fn top(checker: &mut Checker<'_>, items: &[Item], limits: &RequestLimits) -> Self {
        let applications = Arc::new(Applications::of(items));
        let limits_of_server = Arc::new(limits.clone());
        let mut inherited = Self {
            applications,
            limits: limits.clone(),
            limits_of_server,
            level: "the server".to_owned(),
            stores: cache::by_name(items),
            ..Self::default()
        };
        for directive in directives::in_context(Context::Top) {
            if directive.inheritance.is_some()
                && let Some(item) = lower::default_item(directive, Context::Top)
            {
                directive.inheritance.apply_to_route(&mut inherited, &item);
            }
        }
        inherited.cache = cache::of_server(items).and_then(|item| cache::usage(&inherited.stores, item));
        inherited.names = inherited.names.with(checker, items);
        let values = inherited.names.values.clone();
        let has_languages =
            items.iter().any(|item| item.directive.name == "languages" && !item.is_word("off"));
        placeholders::check(
            checker,
            items,
            placeholders::Scope { pattern: None, values: &values, has_languages },
        );
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
        let mut codes: Vec<(u64, &Item)> = Vec::new();
        for item in items.iter().filter(|item| item.directive.name == "error-page") {
            let code = number(item);
            if code != 0 && codes.iter().any(|(known, _)| *known == code) {
                let message = format!("the page for status {code} is given twice");
                checker.diagnostics.push(item.error_at(0, message).help("keep one of the two"));
            }
            codes.push((code, item));
        }
        if let Some(cors) = has("cors") {
            check_cors(checker, cors);
        }
        for item in items.iter().filter(|item| item.directive.name == "trusted-proxies") {
            let everybody = item.arguments.iter().position(
                |placed| matches!(&placed.value, Value::Network(network) if network.is_everybody()),
            );
            if let Some(at) = everybody {
                let message =
                    "every client may say here who it is: whoever asks is taken for a proxy of one's own";
                let warning = Diagnostic { severity: Severity::Warning, ..item.error_at(at, message) };
                checker.diagnostics.push(warning.help("name the addresses of the proxies, `\"10.0.0.5\"`"));
            }
        }
        for item in items.iter().filter(|item| item.directive.name == "methods") {
            for (at, placed) in item.arguments.iter().enumerate() {
                let Value::Text(text) = &placed.value else { continue };
                if let Err(ValueError { message, help }) = method(text) {
                    checker.diagnostics.push(item.error_at(at, message).help(help));
                }
            }
        }
        for item in items.iter().filter(|item| item.directive.name == "header" && item.arguments.len() > 2) {
            if matches!(item.arguments.get(1).map(|placed| &placed.value), Some(Value::Word("off"))) {
                let message = "`off` takes the field away, and nothing is added";
                checker.diagnostics.push(item.error_at(2, message).help("take the word behind it out"));
            }
        }
        let headers: Vec<(&Item, String)> = items
            .iter()
            .filter(|item| item.directive.name == "header")
            .filter_map(|item| Some((item, item.texts().into_iter().next()?)))
            .collect();
        for (at, (item, name)) in headers.iter().enumerate() {
            let is_off =
                matches!(item.arguments.get(1).map(|placed| &placed.value), Some(Value::Word("off")));
            if is_off && headers[..at].iter().any(|(_, before)| field_names_agree(before, name)) {
                let message = format!("`off` takes away the `{name}` that this level sends by a line before");
                let help = "write it before that line, to take away what the levels around and the answer say; or take one \
                            of the two out";
                checker.diagnostics.push(item.error_at(1, message).help(help));
            }
        }
        for (at, (item, name)) in headers.iter().enumerate() {
            let is_plain =
                |item: &Item| item.arguments.len() == 2 && matches!(item.arguments[1].value, Value::Text(_));
            let is_list = ["Set-Cookie", "Vary", "Link"].iter().any(|list| list.eq_ignore_ascii_case(name));
            let twice = headers[..at]
                .iter()
                .find(|(before, known)| is_plain(before) && field_names_agree(known, name))
                .filter(|_| is_plain(item) && !is_list);
            let Some((first, _)) = twice else { continue };
            let message = format!("`{name}` is given twice in this level, and both are sent");
            let warning = Diagnostic { severity: Severity::Warning, ..item.error_at(0, message) };
            let help = format!(
                "it stands already in {}; keep one of the two, or write `add` behind this one",
                first.origin()
            );
            checker.diagnostics.push(warning.help(help));
        }
        self.outer_fields = self.fields.len();
        self.outer_more_fields = self.more_fields.len();
        self.outer_requirements = self.identification.requirements.len();
        self.outer_certificates = self.identification.certificates.len();
        self.outer_rates = self.rates.len();
        self.outer_bandwidths = self.bandwidths.len();
        self.outer_bans = self.bans.len();
        for item in items {
            item.directive.inheritance.apply_to_route(self, item);
        }
        cache::check_uses(checker, &self.stores, items);
        self.end_access(checker, items);
        if let Some(block) = has("limits").filter(|item| item.directive.inheritance.is_some()) {
            limits::check(checker, block, &mut self.limits, &self.limits_of_server);
        }
        error_pages::unshown(checker, items, self);
    }

    /// Ends a level of access: its rules stand beside those of the levels around it.
    fn end_access(&mut self, checker: &mut Checker<'_>, items: &[Item]) {
        let rules = AccessRules::from(std::mem::take(&mut self.rules));
        let is_empty =
            |item: &&Item| item.arguments.is_empty() && item.properties.is_empty() && !item.is_faulty;
        let rule = |item: &&Item| matches!(item.directive.name, "allow" | "deny");
        for item in items.iter().filter(rule).filter(is_empty) {
            let message = format!("`{}` names nobody", item.directive.name);
            let help = format!("for example `{}`", item.directive.example);
            checker.diagnostics.push(item.error(message).help(help));
        }
        for placed in items
            .iter()
            .filter(|item| item.directive.name == "allow")
            .flat_map(|item| item.arguments.iter().map(move |placed| (item, placed)))
        {
            let (item, placed) = placed;
            let Value::Network(network) = placed.value else { continue };
            if let Some(rule) = access::refusing(&self.access.levels, network) {
                let diagnostic = access::warning(network, rule);
                checker.diagnostics.push(diagnostic.at(&item.file.source, placed.range.clone()));
            } else if let Some(rule) = rules.refusing(network).filter(|rule| !rule.allows) {
                let diagnostic = access::too_late(network, rule);
                checker.diagnostics.push(diagnostic.at(&item.file.source, placed.range.clone()));
            }
        }
        for item in items.iter().filter(|item| item.directive.name == "deny") {
            for placed in &item.arguments {
                let Value::Network(network) = placed.value else { continue };
                if let Some((_, rule)) = rules.deciding(network).filter(|(_, rule)| rule.allows) {
                    let warning = access::never_denies(&format!("\"{network}\""), rule);
                    checker.diagnostics.push(warning.at(&item.file.source, placed.range.clone()));
                }
            }
            // A list, a country and a name may be of anybody: only who is let in as one of all is let in before.
            let of_others = ["list", "country", "name", "time"].into_iter();
            let written = of_others.filter_map(|name| {
                item.properties.iter().find(|(known, _)| *known == name).map(|(_, placed)| (name, placed))
            });
            let written: Vec<_> = written.collect();
            if let Some((_, placed)) = written.first().filter(|_| item.arguments.is_empty())
                && let Some((first, rule)) = rules.deciding(Network::All).filter(|(_, rule)| rule.allows)
                && rules.iter().position(|rule| rule.origin == item.origin()).is_some_and(|at| first < at)
            {
                let words: Vec<String> = written
                    .iter()
                    .map(|(name, placed)| format!("{name}={}", item.file.source.slice(&placed.range)))
                    .collect();
                let warning = access::never_denies(&words.join(" "), rule);
                checker.diagnostics.push(warning.at(&item.file.source, placed.range.clone()));
            }
        }
        if !rules.is_empty() {
            self.access.levels.push(rules.into());
        }
    }

    /// `allow` and `deny`.
    pub fn add_rules(&mut self, item: &Item, allows: bool) {
        let time = match item.property("time") {
            Some(Value::Time(time)) => Some(time),
            _ => None,
        };
        let mut add = |whom, origin| self.rules.push(AccessRule { allows, whom, time: time.clone(), origin });
        for placed in &item.arguments {
            let Value::Network(network) = placed.value else { continue };
            add(Whom::Network(network), item.file.source.origin(placed.range.start));
        }
        if let Some(Value::Path(path)) = item.property("list") {
            add(Whom::List(path), item.origin());
        }
        if let Some(Value::Countries(countries)) = item.property("country") {
            add(Whom::Countries(countries), item.origin());
        }
        if let Some(Value::HostNames(names)) = item.property("name") {
            add(Whom::Names(names), item.origin());
        }
        let names_nobody =
            item.arguments.is_empty() && item.properties.iter().all(|(name, _)| *name == "time");
        if time.is_some() && names_nobody {
            add(Whom::Network(Network::All), item.origin());
        }
    }

    /// `access off`: the rules around this level are done away with.
    pub fn open(&mut self) {
        self.access.levels.clear();
    }

    /// `login`: an inner one takes the place of an outer one; `off` also of what the levels around require of who has
    /// logged in.
    pub fn set_login(&mut self, item: &Item) {
        let login = login::login(item).map(Shared::from);
        if login.is_none() {
            self.identification.requirements.drain(..std::mem::take(&mut self.outer_requirements));
        }
        self.identification.login = login;
    }

    /// `signed`: an inner one takes the place of an outer one.
    pub fn set_signed(&mut self, item: &Item) {
        self.identification.signed = login::signed(item).map(Shared::from);
    }

    /// `require`: an inner one stands beside the outer ones.
    pub fn add_requirement(&mut self, item: &Item) {
        if login::is_of_certificates(item) {
            return self.identification.certificates.extend(login::certificates(item).map(Shared::from));
        }
        self.identification.requirements.extend(login::requirement(item).map(Shared::from));
    }

    /// `require-client-certificate`; `off` also of what the levels around require of the names in it.
    pub fn require_client_certificate(&mut self, requires: bool) {
        self.access.requires_client_certificate = requires;
        if !requires {
            self.identification.certificates.drain(..std::mem::take(&mut self.outer_certificates));
        }
    }

    /// `limit`: another of a name that is in force says the same, which is checked elsewhere. `off`: none of the levels
    /// around.
    pub fn add_rate(&mut self, item: &Item) {
        match rates::limit(item) {
            _ if item.is_word("off") => drop(self.rates.drain(..std::mem::take(&mut self.outer_rates))),
            Some(rate) if !self.rates.iter().any(|known| known.name == rate.name) => {
                self.rates.push(rate.into());
            }
            _ => {}
        }
    }

    /// `ban`: as `limit`.
    pub fn add_ban(&mut self, item: &Item) {
        match rates::ban(item) {
            _ if item.is_word("off") => drop(self.bans.drain(..std::mem::take(&mut self.outer_bans))),
            Some(ban) if !self.bans.iter().any(|known| known.name == ban.name) => self.bans.push(ban.into()),
            _ => {}
        }
    }

    /// `bandwidth`: those of the levels around hold as well. `off`: none of them does.
    pub fn add_bandwidth(&mut self, item: &Item) {
        match rates::bandwidth(item, &self.level) {
            _ if item.is_word("off") => {
                drop(self.bandwidths.drain(..std::mem::take(&mut self.outer_bandwidths)))
            }
            Some(bandwidth) if !self.bandwidths.iter().any(|known| known.agrees(&bandwidth)) => {
                self.bandwidths.push(bandwidth.into());
            }
            _ => {}
        }
    }

    /// `types`: an inner one for the same extension takes the place of the outer one.
    pub fn add_types(&mut self, item: &Item) {
        self.types.retain(|(known, _)| !item.pairs.iter().any(|(extension, _)| extension == known));
        self.types.extend(item.pairs.iter().cloned());
    }

    /// `header`: one takes the place of those of the levels around; given twice in a level, both are sent.
    pub fn add_field(&mut self, item: &Item) {
        let texts = item.texts();
        let Some(name) = texts.first() else { return };
        let mode = field_mode(item);
        if mode == Some(FieldMode::Add) {
            return self.more(name, texts.get(1), FieldMode::Add);
        }
        let outer = self.more_fields.drain(..self.outer_more_fields);
        let outer: Vec<_> = outer.filter(|known| !field_names_agree(&known.name, name)).collect();
        self.outer_more_fields = outer.len();
        self.more_fields.splice(..0, outer);
        // Of this level, what is added stands beside it.
        self.more_fields.retain(|known| {
            known.mode == FieldMode::Add && texts.len() > 1 || !field_names_agree(&known.name, name)
        });
        let outer = self.fields.drain(..self.outer_fields);
        let outer: Vec<_> = outer.filter(|(known, _)| !field_names_agree(known, name)).collect();
        self.outer_fields = outer.len();
        self.fields.splice(..0, outer);
        match (texts.as_slice(), mode) {
            ([name, value], Some(mode)) => self.more(name, Some(value), mode),
            ([name, value], None) => {
                self.removed_fields.retain(|removed| !field_names_agree(removed, name));
                self.fields.push((name.clone(), value.clone()));
            }
            ([name], _) if !self.removed_fields.iter().any(|removed| field_names_agree(removed, name)) => {
                self.removed_fields.push(name.clone());
            }
            _ => {}
        }
    }

    /// `languages`: an inner one takes the place of an outer one. Caches are told what answers depend on.
    pub fn set_languages(&mut self, item: &Item) {
        let vary =
            MoreField { name: "Vary".to_owned(), value: "Accept-Language".to_owned(), mode: FieldMode::Add };
        self.languages = item.texts().into(); // `off` is no text
        self.more_fields.retain(|known| *known != vary);
        if !self.languages.is_empty() {
            self.more_fields.push(vary);
        }
    }

    fn more(&mut self, name: &str, value: Option<&String>, mode: FieldMode) {
        let Some(value) = value else { return };
        let field = MoreField { name: name.to_owned(), value: value.clone(), mode };
        if !self.more_fields.contains(&field) {
            self.more_fields.push(field);
        }
    }

    /// `error-page`: one for the same status takes the place of the outer one, `off` without another.
    pub fn add_error_page(&mut self, item: &Item) {
        for code in item.numbers().map(|code| u16::try_from(code).unwrap_or_default()) {
            self.error_pages.retain(|(known, _)| *known != code);
            if let Some(path) = item.texts().pop() {
                self.error_pages.push((code, path)); // `off` is no text
            }
        }
    }
}

/// How a field is put beside those of its name; `None` in their place.
pub(crate) fn field_mode(item: &Item) -> Option<FieldMode> {
    match item.arguments.get(2).map(|placed| &placed.value) {
        Some(Value::Word("add")) => Some(FieldMode::Add),
        Some(Value::Word("missing")) => Some(FieldMode::Missing),
        _ => None,
    }
}

/// Who may have answers from other sites.
pub(crate) fn cors(item: &Item) -> Option<Shared<Cors>> {
    let mut origins = item.texts();
    let takes_credentials = origins.last().is_some_and(|last| last == "credentials");
    origins.truncate(origins.len() - usize::from(takes_credentials));
    if origins.is_empty() {
        return None; // `off`
    }
    let list = |name: &str| match item.property(name) {
        Some(Value::Text(text)) => text.split(',').map(|token| token.trim().to_owned()).collect(),
        _ => Vec::new(),
    };
    let cors = Cors {
        origins: origins.iter().map(|origin| TextPattern::glob(origin)).collect(),
        methods: list("methods"),
        headers: list("headers"),
        expose: list("expose"),
        takes_credentials,
        max_age: match item.property("max-age") {
            Some(Value::Duration(time)) => time,
            _ => Duration::ZERO,
        },
    };
    Some(cors.into())
}

/// Says what is wrong with a `cors`.
fn check_cors(checker: &mut Checker<'_>, item: &Item) {
    let origins = item.texts();
    let at = origins.iter().position(|origin| origin == "credentials");
    if at.is_some_and(|at| at + 1 < origins.len() || at == 0) {
        let message = "`credentials` stands behind the origins that it is for";
        checker
            .diagnostics
            .push(item.error(message).help(format!("for example `{}`", item.directive.example)));
    }
    if at.is_some() && origins.iter().any(|origin| origin == "*") {
        let message = "every page of the world would act as the user whom the browser knows";
        checker
            .diagnostics
            .push(item.error(message).help("name the origins that may, or take `credentials` out"));
    }
    if let Some(Value::Text(methods)) = item.property("methods") {
        for wrong in methods.split(',').filter_map(|text| method(text.trim()).err()) {
            let ValueError { message, help } = wrong;
            checker.diagnostics.push(item.error(message).help(help));
        }
    }
}

/// The entries of `try`.
pub(crate) fn try_list(item: &Item) -> Vec<Try> {
    let entries = item.arguments.iter();
    let entries = entries
        .filter_map(|placed| if let Value::Try(entry) = &placed.value { Some(entry.clone()) } else { None });
    entries.collect()
}

/// `Cache-Control` as `expires` says it.
pub(crate) fn max_age(item: &Item) -> Option<String> {
    match item.first() {
        Some(Value::Duration(time)) => Some(format!("max-age={}", time.as_secs())),
        _ => None,
    }
}

pub(crate) fn symlinks(item: &Item) -> Symlinks {
    match item.first() {
        Some(Value::Word("owner")) => Symlinks::Owner,
        Some(Value::Word("any")) => Symlinks::Any,
        _ => Symlinks::Beneath,
    }
}

pub(crate) fn listing(item: &Item) -> Option<Listing> {
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
pub(crate) fn codings(item: &Item, all: &[&'static str]) -> Vec<Coding> {
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

pub(crate) fn compress(item: &Item) -> Option<Compress> {
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
