//! Conditions of routes.

use crate::directive::{Argument, Children, Context, Directive, Kind, Property, any, one, some};

/// What a condition may ask.
const CONDITIONS: &[&str] = &[
    "client",
    "client-list",
    "cookie",
    "country",
    "file",
    "header",
    "host",
    "match",
    "method",
    "path",
    "query",
    "scheme",
    "time",
    "value",
];

const TEXT: Kind = Kind::Text { most: 4096 };

const VALUES: Argument = any("values", TEXT);

const REGEX: Property = Property {
    name: "regex",
    kind: Kind::Regex,
    default: None,
    doc: "A regular expression beside the values or in their place, for `cookie`, `header`, `path`, `query` and `value`: \
          `regex=\"(?i)bot\"` minds no case.",
};

#[rustfmt::skip]
pub(super) const DIRECTIVES: &[Directive] = &[
    WHEN,
    Directive {
        name: "unless",
        doc: "The route is not for requests of which this holds, in the words of `when`.",
        example: "unless path \"/robots.txt\"",
        ..WHEN
    },
    Directive {
        arguments: &[one("name", Kind::Token)],
        children: Children::Block(Context::Match),
        repeats: true,
        doc: "Conditions under a name, for `when match \"NAME\"` and `unless match \"NAME\"`. All lines of the block have to \
              hold; each asks for one thing, in the words of `when`. One at the top level is for all sites. They stand in each \
              other sixteen deep at most.",
        example: "match \"bots\" { header \"User-Agent\" \"*AhrefsBot*\" \"*GPTBot*\" }",
        ..Directive::new("match", &[Context::Top, Context::Site])
    },
    Directive {
        arguments: &[one("name", Kind::Token)],
        properties: &[Property {
            name: "from",
            kind: Kind::FieldTemplate,
            default: None,
            doc: "What is looked up, in the words of `header`: `\"{cookie.ab}\"`, `\"{host}\"`.",
        }],
        children: Children::Pairs { name: TEXT, value: Kind::FieldValue },
        repeats: true,
        doc: "A text that follows from another: of the patterns in the block, in which a `*` stands for any characters, the \
              first that fits says it, and where none does it is empty. It is to be had as `{value.NAME}` in addresses and \
              fields, and by `when value \"NAME\" VALUES`. Like `map` of nginx; as every result is written here, none is \
              what a client has sent. `{path}` and `{uri}` are here the path that routes are chosen by, decoded and \
              normalised, however a request has come to it; `{host}` is in lower case.",
        example: "value \"group\" from=\"{cookie.ab}\" { \"b\" \"new\"; \"*\" \"old\" }",
        ..Directive::new("value", &[Context::Top, Context::Site])
    },
    Directive {
        arguments: &[one("path", Kind::Rewrite)],
        doc: "What answers the route is asked for this path in place of the request's own: `route \"/blog/*\" { rewrite \
              \"/index.php?page={1}\"; fastcgi \"php\" }`. `{path}` is the path, `{1}` and `{id}` are stars and groups; behind \
              a `?` stands the query, in which `{query}` is that of the request, and without a `?` the query stays. The \
              path is normalised as one that a client sends. Whoever may not have it by the route that it has itself (`allow`, \
              `deny`, an error of `respond`) may not have it by this one. In a route that says nothing else of how to answer, \
              it is `hand-to`.",
        example: "rewrite \"/users/{1}\"",
        ..Directive::new("rewrite", &[Context::Route])
    },
    Directive {
        arguments: &[one("path", Kind::Rewrite)],
        doc: "The route of another path answers, in the words of `rewrite`: routes are chosen anew, and all that is said of \
              that path holds, and nothing else of this route than who is let in and the limits of requests. Four times at \
              most, then the answer is 508.",
        example: "hand-to \"/index.php?page={1}\"",
        ..Directive::new("hand-to", &[Context::Route])
    },
    Directive {
        doc: "Only the server itself comes here: by `hand-to`, `rewrite`, `try`, `index`, an `error-page`, or where a script leads \
              with a path in `Location`. A client that asks for such a path is answered 404, as if nothing were there; the `error-page` \
              of the route is what it sees. Whoever may choose the path of a `hand-to` may choose one of these.",
        example: "internal",
        ..Directive::new("internal", &[Context::Route])
    },
    Directive {
        arguments: &[one("name", Kind::Token)],
        children: Children::Deferred,
        repeats: true,
        doc: "Directives under a name, for `use` in sites and routes: as if they stood there, routes too, in their order. \
              Rules may use others, sixteen deep at most.",
        example: "rules \"secure\" { header \"X-Content-Type-Options\" \"nosniff\"; header \"Referrer-Policy\" \"same-origin\" missing }",
        ..Directive::new("rules", &[Context::Top])
    },
    Directive {
        arguments: &[some("names", Kind::Token)],
        repeats: true,
        doc: "The directives of `rules` in this place.",
        example: "use \"secure\"",
        ..Directive::new("use", &[Context::Site, Context::Route])
    },
    condition("client", "Who asks, in the words of `allow`, as the site's `trusted-proxies` say.", "client \"10.0.0.0/8\""),
    condition("client-list", "The client's address is in this file, as `allow list=` has it.", "client-list \"/etc/tidegate/crawlers\""),
    condition("cookie", "The name of a cookie and what it may be; without values it has to be there. Of several of one name the first counts.", "cookie \"ab\" \"b\""),
    condition("country", "The client's country, by its code, as the `country-database` says.", "country \"DE\" \"AT\""),
    condition("file", "There is a file or folder of this name, which may come and go while the server runs.", "file \"/run/down\""),
    condition("header", "The name of a field and what it may be. `\"\"` is a field that is not there, too, and nothing else is. Several lines are one value, with `, ` between them.", "header \"Referer\" \"\" \"https://www.example.com/*\""),
    condition("host", "The host that is asked for, however it is spelled: `\"example.com\"`, `\"*.example.com\"`.", "host \"*.example.com\""),
    condition("match", "The conditions of another `match`.", "match \"own\""),
    condition("method", "The method: `\"GET\"` is for `HEAD` as well.", "method \"GET\" \"POST\""),
    condition("path", "Patterns over the path, as a route has one.", "path \"/shop/*\" \"*.php\""),
    condition("query", "The name of a parameter of the query, decoded, and what it may be. Of several of one name the first counts.", "query \"page\" \"1\""),
    condition("scheme", "`\"http\"` or `\"https\"`: what the client speaks.", "scheme \"https\""),
    condition("time", "Days, hours and a time zone, as `allow time=` has them.", "time \"Mon-Fri 08:00-18:00 Europe/Berlin\""),
    condition("value", "The name of a `value` and what its result may be; without values it must not be empty.", "value \"group\" \"b\""),
];

const WHEN: Directive = Directive {
    arguments: &[one("what", Kind::Choice(CONDITIONS)), VALUES],
    properties: &[REGEX],
    repeats: true,
    doc: "The route is only for requests of which this holds; else the routes behind it are tried. Several lines have to hold \
          together, of several values on a line any. In the values of `cookie`, `header`, `query` and `value` a `*` stands for \
          any characters; they are compared as they are written, capitals too, and `\"\"` alone is what a request does not \
          have. `method \"GET\"`, `path \"/a/*\"`, \
          `host \"*.example.com\"`, `scheme \"https\"`, `client \"10.0.0.0/8\"`, `header \"NAME\" VALUES`, `query \"NAME\" VALUES`, \
          `cookie \"NAME\" VALUES`, `client-list \"/etc/tidegate/crawlers\"`, `country \"DE\"`, `time \"Sat,Sun Europe/Berlin\"`, `file \"/run/down\"` (there is such a file), `value \"NAME\" VALUES` and `match \"NAME\"`. A \
          condition chooses the route and nothing else: all that stands in a route holds for all of its requests. Files of a \
          route of scripts are never sent as text where its conditions do not hold: such a request is answered 404.",
    example: "when cookie \"ab\" \"b\"",
    ..Directive::new("when", &[Context::Route])
};

const VALUES_ALONE: &[Argument] = &[VALUES];
const REGEX_ALONE: &[Property] = &[REGEX];

/// A line of `match`.
const fn condition(name: &'static str, doc: &'static str, example: &'static str) -> Directive {
    let mut directive = Directive::new(name, &[Context::Match]);
    directive.arguments = VALUES_ALONE;
    directive.properties = REGEX_ALONE;
    directive.repeats = true;
    directive.doc = doc;
    directive.example = example;
    directive
}
