//! The definition of a directive: the one place that says its name, where it stands, what it takes, its
//! unit, bounds, default, meaning and an example.
//!
//! `directives` holds the table of all of them. Checking, defaults, the reference page, the JSON schema and
//! the words of every error derive from it; nothing else may know a bound or a default.

use crate::check::Item;
use crate::lower::inherit::Inherited;
use crate::settings::RequestLimits;

/// Where a directive may stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Context {
    /// Outside every block, in the main file or an included one.
    Top,
    /// Inside `listen { … }`.
    Listen,
    /// Inside `limits { … }`.
    Limits,
    /// Inside `limits { … }` of a site or a route.
    RequestLimits,
    /// Inside `file-cache { … }`.
    FileCache,
    /// Inside `cache { … }` of the top level.
    CacheStore,
    /// Inside `cache { … }` of a site or a route.
    Cache,
    /// Inside `statistics { … }`.
    Statistics,
    /// Inside `admin { … }`.
    Admin,
    /// Inside `site { … }`.
    Site,
    /// Inside `route { … }`.
    Route,
    /// Inside `listing { … }`.
    Listing,
    /// Inside `compress { … }`.
    Compress,
    /// Inside `tls { … }` of a site.
    Tls,
    /// Inside `acme { … }`.
    Acme,
    /// Inside `fastcgi { … }`.
    Fastcgi,
    /// Inside `scgi { … }`.
    Scgi,
    /// Inside `cgi { … }`.
    Cgi,
    /// Inside `proxy { … }`.
    Proxy,
    /// Inside `pool { … }`.
    Pool,
    /// Inside `upstream { … }`.
    Upstream,
    /// Inside `users { … }`.
    Users,
    /// Inside `ldap { … }`.
    Ldap,
    /// Inside `forward { … }`.
    Forward,
    /// Inside `tokens { … }`.
    Tokens,
    /// Inside `openid { … }`.
    Openid,
    /// Inside `console { … }`.
    Console,
    /// Inside `match { … }`.
    Match,
    /// A place of another language than the settings (`language`).
    Of(&'static Place),
}

/// A place where directives of another language than the settings stand.
#[derive(Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// Where it is, in messages: `in \`mix\``.
    pub place: &'static str,
    /// A short name.
    pub key: &'static str,
}

impl Context {
    /// Every context of the settings, in the order of the reference.
    pub const ALL: [Self; 28] = [
        Self::Top,
        Self::Listen,
        Self::Limits,
        Self::RequestLimits,
        Self::FileCache,
        Self::CacheStore,
        Self::Cache,
        Self::Statistics,
        Self::Admin,
        Self::Site,
        Self::Route,
        Self::Listing,
        Self::Compress,
        Self::Tls,
        Self::Acme,
        Self::Fastcgi,
        Self::Scgi,
        Self::Cgi,
        Self::Proxy,
        Self::Pool,
        Self::Upstream,
        Self::Users,
        Self::Ldap,
        Self::Forward,
        Self::Tokens,
        Self::Openid,
        Self::Console,
        Self::Match,
    ];

    /// Where the context is, in messages.
    pub fn place(self) -> &'static str {
        match self {
            Self::Top => "at the top level",
            Self::Listen => "in `listen`",
            Self::Limits => "in `limits`",
            Self::RequestLimits => "in `limits` of a site or a route",
            Self::FileCache => "in `file-cache`",
            Self::CacheStore => "in `cache` at the top level",
            Self::Cache => "in `cache` of a site or a route",
            Self::Statistics => "in `statistics`",
            Self::Admin => "in `admin`",
            Self::Site => "in `site`",
            Self::Route => "in `route`",
            Self::Listing => "in `listing`",
            Self::Compress => "in `compress`",
            Self::Tls => "in `tls`",
            Self::Acme => "in `acme`",
            Self::Fastcgi => "in `fastcgi`",
            Self::Scgi => "in `scgi`",
            Self::Cgi => "in `cgi`",
            Self::Proxy => "in `proxy`",
            Self::Pool => "in `pool`",
            Self::Upstream => "in `upstream`",
            Self::Users => "in `users`",
            Self::Ldap => "in `ldap`",
            Self::Forward => "in `forward`",
            Self::Tokens => "in `tokens`",
            Self::Openid => "in `openid`",
            Self::Console => "in `console`",
            Self::Match => "in `match`",
            Self::Of(place) => place.place,
        }
    }

    /// A short name for the schema and the tests.
    pub fn key(self) -> &'static str {
        match self {
            Self::Top => "top",
            Self::Listen => "listen",
            Self::Limits => "limits",
            Self::RequestLimits => "request-limits",
            Self::FileCache => "file-cache",
            Self::CacheStore => "cache-store",
            Self::Cache => "cache",
            Self::Statistics => "statistics",
            Self::Admin => "admin",
            Self::Site => "site",
            Self::Route => "route",
            Self::Listing => "listing",
            Self::Compress => "compress",
            Self::Tls => "tls",
            Self::Acme => "acme",
            Self::Fastcgi => "fastcgi",
            Self::Scgi => "scgi",
            Self::Cgi => "cgi",
            Self::Proxy => "proxy",
            Self::Pool => "pool",
            Self::Upstream => "upstream",
            Self::Users => "users",
            Self::Ldap => "ldap",
            Self::Forward => "forward",
            Self::Tokens => "tokens",
            Self::Openid => "openid",
            Self::Console => "console",
            Self::Match => "match",
            Self::Of(place) => place.key,
        }
    }
}

/// The type of a value, with its bounds in the unit of the type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// A whole number.
    Number {
        /// The least that fits.
        least: u64,
        /// The most that fits.
        most: u64,
    },
    /// An amount of bytes: `"64KiB"`.
    Size {
        /// The least that fits.
        least: u64,
        /// The most that fits.
        most: u64,
    },
    /// A length of time, bounds in milliseconds: `"30s"`.
    Duration {
        /// The least that fits.
        least: u64,
        /// The most that fits.
        most: u64,
    },
    /// So many in a time: `"10/s"`.
    Rate,
    /// A share of something, in millionths: `"1%"`, `"0.25%"`.
    Share,
    /// A number with a fraction, from 0 on, in millionths: `"0.5"`.
    Decimal {
        /// The most that fits, of whole ones.
        most: u64,
    },
    /// An amount of bytes in each second: `"1MiB/s"`.
    Speed {
        /// The least that fits.
        least: u64,
        /// The most that fits.
        most: u64,
    },
    /// A status code, one of a list, or within 200..=599 when the list is empty.
    Status {
        /// The statuses that fit; empty for all.
        only: &'static [u16],
    },
    /// Statuses that are expected: `200`, `"2xx"`, `"200-299|404"`.
    Statuses,
    /// One of some words.
    Choice(&'static [&'static str]),
    /// Any text up to a length in bytes.
    Text {
        /// The most bytes.
        most: usize,
    },
    /// A path in the file system; a relative one counts from the folder of the file it is written in.
    File,
    /// `stderr`, `stdout` or a path.
    LogTarget,
    /// What an access line looks like.
    LogFormat,
    /// Names of files to read, `*` and `?` allowed.
    Glob,
    /// A host name: `example.com`, `*.example.com`.
    Host,
    /// The host that applications are told: a name or an address.
    ToldHost,
    /// A pattern over the path of a request.
    Pattern,
    /// A regular expression.
    Regex,
    /// A path within the site, from its `/`.
    SitePath,
    /// An address to listen on.
    Address,
    /// `all`, `unix`, an address, or a network with its bits.
    Network,
    /// The tag of a language: `de`, `pt-BR`.
    Language,
    /// Codes of countries with commas between them.
    Countries,
    /// Names of hosts with commas between them, each as [`Kind::Host`].
    HostNames,
    /// Days, hours and a time zone.
    TimeWindow,
    /// A file name without any `/`.
    FileName,
    /// An entry of `try`.
    Try,
    /// An address to redirect to, with `{path}` and its like.
    Target,
    /// A path of the site to be asked for in place of the request's own, with placeholders.
    Rewrite,
    /// A field name that a response may be given.
    FieldName,
    /// A field value.
    FieldValue,
    /// The same with placeholders.
    FieldTemplate,
    /// A media type: `text/html`.
    MediaType,
    /// A token of RFC 9110, such as a charset.
    Token,
    /// Tokens with commas between them, or a star.
    Tokens,
    /// An origin, with a star perhaps, or the word `credentials` (`cors`).
    Origin,
    /// The extension of a file name, without its dot.
    Extension,
    /// The name of a pool, or the address of an application.
    Destination,
    /// The same for applications that speak HTTP, as a URL.
    Url,
    /// A service that the server itself asks, as a URL.
    Service,
    /// A path in the file system, or such a URL.
    FileOrService,
    /// The name of a variable for an application.
    Variable,
    /// A field name that a request may be given.
    RequestField,
    /// How the names of scripts end.
    Suffix,
}

/// How often an argument may stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// Exactly once.
    One,
    /// Once or not at all.
    Optional,
    /// At least once.
    Some,
    /// Any number of times.
    Any,
}

/// The argument that a value in some position is for, of so many values: one that may stand several times takes what the
/// others leave.
pub(crate) fn argument_at(
    arguments: &'static [Argument],
    position: usize,
    count: usize,
) -> Option<&'static Argument> {
    let Some(several) = arguments.iter().position(Argument::is_repeated) else {
        return arguments.get(position);
    };
    let behind = arguments.len() - several - 1;
    let from_end = count.saturating_sub(position + 1);
    match position > several && from_end < behind {
        true => arguments.get(arguments.len() - 1 - from_end),
        false => arguments.get(position.min(several)),
    }
}

impl Argument {
    /// Whether it may stand several times.
    pub(crate) fn is_repeated(&self) -> bool {
        matches!(self.count, Count::Some | Count::Any)
    }
}

/// A positional value of a directive.
#[derive(Debug, Clone, Copy)]
pub struct Argument {
    /// What it is called in messages and in the reference.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// How often it may stand. One argument of a directive may stand several times; those behind it stand once.
    pub count: Count,
    /// Words that may stand in its place: `off`, `auto`.
    pub words: &'static [&'static str],
}

/// A named value of a directive: `status=301`.
#[derive(Debug, Clone, Copy)]
pub struct Property {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// The text of its default; `None` when leaving it out means something of its own (said in `doc`).
    pub default: Option<&'static str>,
    /// What it is for.
    pub doc: &'static str,
}

/// What the block behind a directive holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Children {
    /// There is no block.
    None,
    /// Directives of a context.
    Block(Context),
    /// `rules`: what may stand where they are used, and is checked there.
    Deferred,
    /// `types`: free names, each with one value.
    Pairs {
        /// The type of the names.
        name: Kind,
        /// The type of the values.
        value: Kind,
    },
    /// Free names, each with one number or with numbers under free names: the rows of a matrix.
    Rows {
        /// The type of the names.
        name: Kind,
        /// The type of the numbers.
        value: Kind,
    },
}

/// What happens to a directive on the way from the top level to a site to a route.
#[derive(Debug, Clone, Copy)]
pub enum Inheritance {
    /// It counts only where it stands.
    None,
    /// An inner one takes the place of an outer one.
    Replaces(Apply),
    /// Inner ones are added to outer ones; an inner one for the same key takes the place of the outer one.
    Adds(Apply),
}

/// Puts the value of a directive in force, for what comes after it and for the levels inside.
#[derive(Debug, Clone, Copy)]
pub struct Apply(To);

#[derive(Debug, Clone, Copy)]
enum To {
    Route(fn(&mut Inherited, &Item)),
    Limits(fn(&mut RequestLimits, &Item)),
}

impl Apply {
    /// To what routes go by.
    pub(crate) const fn to_route(apply: fn(&mut Inherited, &Item)) -> Apply {
        Apply(To::Route(apply))
    }

    /// To the limits of requests, within `limits`.
    pub(crate) const fn to_limits(apply: fn(&mut RequestLimits, &Item)) -> Apply {
        Apply(To::Limits(apply))
    }
}

impl Inheritance {
    /// Whether the levels inside have it too.
    pub fn is_some(&self) -> bool {
        !matches!(self, Inheritance::None)
    }

    fn apply(&self) -> Option<To> {
        match self {
            Inheritance::None => None,
            Inheritance::Replaces(Apply(to)) | Inheritance::Adds(Apply(to)) => Some(*to),
        }
    }

    /// Puts an item in force at its level; nothing where it is not inherited.
    pub(crate) fn apply_to_route(&self, route: &mut Inherited, item: &Item) {
        if let Some(To::Route(apply)) = self.apply() {
            apply(route, item);
        }
    }

    /// The same for one in `limits`.
    pub(crate) fn apply_to_limits(&self, limits: &mut RequestLimits, item: &Item) {
        if let Some(To::Limits(apply)) = self.apply() {
            apply(limits, item);
        }
    }
}

/// A directive.
#[derive(Debug, Clone, Copy)]
pub struct Directive {
    /// Its name.
    pub name: &'static str,
    /// Where it may stand.
    pub contexts: &'static [Context],
    /// Its positional values, in order.
    pub arguments: &'static [Argument],
    /// Its named values.
    pub properties: &'static [Property],
    /// Its block.
    pub children: Children,
    /// Whether it may stand several times in the same block.
    pub repeats: bool,
    /// How it is inherited.
    pub inheritance: Inheritance,
    /// What holds when it is left out, as the directive one would write; `None` when nothing does.
    pub default: Option<&'static str>,
    /// What it is for and why one would change it. Markdown.
    pub doc: &'static str,
    /// How it is written in the first of its contexts; loads as it stands.
    pub example: &'static str,
}

impl Directive {
    /// A directive without values, block or default; the table fills in the rest.
    pub const fn new(name: &'static str, contexts: &'static [Context]) -> Self {
        Self {
            name,
            contexts,
            arguments: &[],
            properties: &[],
            children: Children::None,
            repeats: false,
            inheritance: Inheritance::None,
            default: None,
            doc: "",
            example: "",
        }
    }

    /// How it is written, for messages and the reference: `expires DURATION|off`.
    pub fn synopsis(&self) -> String {
        let mut out = self.name.to_owned();
        for argument in self.arguments {
            let mut value = match argument.kind {
                Kind::Choice(words) => words.join("|"),
                _ => argument.name.to_uppercase(),
            };
            for word in argument.words {
                value = if value.is_empty() { (*word).to_owned() } else { format!("{value}|{word}") };
            }
            out += &match argument.count {
                Count::One => format!(" {value}"),
                Count::Optional => format!(" [{value}]"),
                Count::Some => format!(" {value}..."),
                Count::Any => format!(" [{value}...]"),
            };
        }
        for property in self.properties {
            out += &format!(" [{}={}]", property.name, property.kind.placeholder());
        }
        match self.children {
            Children::None => {}
            Children::Block(_) | Children::Deferred | Children::Pairs { .. } | Children::Rows { .. } => {
                out += " { ... }";
            }
        }
        out
    }
}

/// An argument that stands exactly once.
pub const fn one(name: &'static str, kind: Kind) -> Argument {
    Argument { name, kind, count: Count::One, words: &[] }
}

/// An argument that stands exactly once, or one of some words.
pub const fn one_or(name: &'static str, kind: Kind, words: &'static [&'static str]) -> Argument {
    Argument { name, kind, count: Count::One, words }
}

/// An argument that stands at least once.
pub const fn some(name: &'static str, kind: Kind) -> Argument {
    Argument { name, kind, count: Count::Some, words: &[] }
}

/// An argument that stands at least once, or one of some words.
pub const fn some_or(name: &'static str, kind: Kind, words: &'static [&'static str]) -> Argument {
    Argument { name, kind, count: Count::Some, words }
}

/// An argument that stands once or not at all.
pub const fn optional(name: &'static str, kind: Kind) -> Argument {
    Argument { name, kind, count: Count::Optional, words: &[] }
}

/// An argument that stands any number of times.
pub const fn any(name: &'static str, kind: Kind) -> Argument {
    Argument { name, kind, count: Count::Any, words: &[] }
}

/// An argument that stands any number of times, or one of some words.
pub const fn any_or(name: &'static str, kind: Kind, words: &'static [&'static str]) -> Argument {
    Argument { name, kind, count: Count::Any, words }
}

/// The word `off` or nothing.
pub const OFF: Argument =
    Argument { name: "off", kind: Kind::Choice(&["off"]), count: Count::Optional, words: &[] };
