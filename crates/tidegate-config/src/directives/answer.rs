//! What is answered without files, and the fields of answers.

use crate::directive::{
    Apply, Argument, Children, Context, Count, Directive, Inheritance, Kind, OFF, Property, one, one_or,
    optional, some, some_or,
};
use crate::lower::inherit::{self, Inherited};

const EVERYWHERE: &[Context] = &[Context::Top, Context::Site, Context::Route];
const INSIDE: &[Context] = &[Context::Site, Context::Route];

/// How a field is put beside those of its name.
pub(super) const MODE: Argument = optional("mode", Kind::Choice(&["add", "missing"]));

pub(super) const DIRECTIVES: &[Directive] = &[
    Directive {
        arguments: &[some_or("origins", Kind::Origin, &["off"])],
        properties: &[
            Property {
                name: "methods",
                kind: Kind::Tokens,
                default: Some("GET,HEAD,POST"),
                doc: "Methods that such pages may use.",
            },
            Property {
                name: "headers",
                kind: Kind::Tokens,
                default: Some("Content-Type"),
                doc: "Fields that they may send beside those that are always allowed; `*` for whatever they ask for.",
            },
            Property {
                name: "expose",
                kind: Kind::Tokens,
                default: None,
                doc: "Fields of answers that they may read beside those that they always may.",
            },
            Property {
                name: "max-age",
                kind: Kind::Duration { least: 0, most: 86_400_000 },
                default: Some("10m"),
                doc: "How long browsers may remember the answer to their question.",
            },
        ],
        inheritance: Inheritance::Replaces(Apply::to_route(|route, item| route.cors = inherit::cors(item))),
        default: Some("cors off"),
        doc: "Which pages of other sites may have the answers (CORS), by their origins: `\"https://app.example.com\"`, \
              `\"https://*.example.com\"`, or `\"*\"` for all. The questions of browsers (`OPTIONS` with \
              `Access-Control-Request-Method`) are answered here; whatever an application says of it is replaced. The word \
              `credentials` behind the origins lets such pages act as the user whom the browser knows, which cannot be for all.",
        example: "cors \"https://app.example.com\" credentials methods=\"GET,POST\"",
        ..Directive::new("cors", EVERYWHERE)
    },
    Directive {
        arguments: &[some_or("methods", Kind::Token, &["off"])],
        inheritance: Inheritance::Replaces(Apply::to_route(|route, item| {
            let methods = item.texts();
            route.access.methods = (!methods.is_empty()).then(|| methods.into());
        })),
        default: Some("methods off"),
        doc: "The methods that may be used, as they are written; others are answered 405. `GET` is for `HEAD` as well, and a \
              question that `cors` answers needs no `OPTIONS` here.",
        example: "methods \"GET\" \"POST\"",
        ..Directive::new("methods", EVERYWHERE)
    },
    Directive {
        arguments: &[one("to", Kind::Target)],
        properties: &[Property {
            name: "status",
            kind: Kind::Status { only: &[301, 302, 303, 307, 308] },
            default: Some("301"),
            doc: "301 and 308 are kept by browsers, 302, 303 and 307 are not; 307 and 308 keep the method.",
        }],
        doc: "Sends the client to another address. `{path}` is the path of the request (its first `/` is not \
              doubled behind another), `{query}` its query with the `?` where there is one, `{host}` the host name, \
              `{uri}` path and query as sent, `{scheme}` `http` or `https`.",
        example: "redirect \"https://{host}{uri}\" status=308",
        ..Directive::new("redirect", INSIDE)
    },
    Directive {
        arguments: &[
            one_or("status", Kind::Status { only: &[] }, &["close"]),
            Argument { name: "text", kind: Kind::Text { most: 65536 }, count: Count::Optional, words: &[] },
        ],
        properties: &[Property {
            name: "type",
            kind: Kind::MediaType,
            default: None,
            doc: "The media type of the text. Without it `text/html` where the text begins with `<`, else `text/plain`.",
        }],
        doc: "A fixed answer: a status, any but 206 and 304, which are for files, and a short text. An error without a text gets the `error-page` of its status, \
              or the server's short page; one with a text is sent as it is, and an empty one is sent empty. `respond close` gives no answer and ends \
              the connection; in logs and figures it is a 403, which a client behind a trusted proxy is sent. Of the conditions of a request \
              (`If-Match` and the like) a 200 heeds those that do without an entity tag and a date.",
        example: "respond 200 \"all is well\"",
        ..Directive::new("respond", INSIDE)
    },
    Directive {
        doc: "The status page: statistics, and control of the file cache. Where no `allow` stands in the route \
              itself, only clients of this machine are let in, and of those none that asks for somebody else: a proxy \
              on this machine has to be named in `trusted-proxies`, and then its clients count. It answers for an address, `localhost`, and the names that \
              sites have, and for no other host.",
        example: "status",
        ..Directive::new("status", INSIDE)
    },
    Directive {
        doc: "The console: the figures of the server live, in a browser. The pattern of its route ends in `/*`. Who may see it is \
              decided as for `status`: without an `allow` in the route itself only clients of this machine, and only for an address, \
              `localhost`, and the names that sites have. It shows and changes nothing, unless `change` stands in its block.",
        children: Children::Block(Context::Console),
        example: "console",
        ..Directive::new("console", INSIDE)
    },
    Directive {
        doc: "Who is let in may read and change the settings, and operate the server, through this console. Takes an `admin` at the top, and a \
              `login` or a `require certificate` in force on the route: every change is logged with who made it.",
        example: "change",
        ..Directive::new("change", &[Context::Console])
    },
    Directive {
        arguments: &[
            some("codes", Kind::Number { least: 400, most: 599 }),
            one_or("path", Kind::SitePath, &["off"]),
        ],
        repeats: true,
        inheritance: Inheritance::Adds(Apply::to_route(Inherited::add_error_page)),
        doc: "The page of the site that is shown for an error of the server's own, or for each of several. The status stays what it is. What an \
              application answers is left alone unless `intercept` asks for it. `off` without quotes takes an inherited \
              page away. Whoever may not have the page by its path gets a plain error. What the server answers before a site is asked has none: a \
              request that cannot be read, 408, 417, 421, 425, 505, and what is beyond the `limits` of the server (414, 431), not those of the \
              site or the route.",
        example: "error-page 404 \"/404.html\"",
        ..Directive::new("error-page", EVERYWHERE)
    },
    Directive {
        arguments: &[OFF],
        inheritance: Inheritance::Replaces(Apply::to_route(|route, item| {
            route.intercepts = !item.is_word("off")
        })),
        default: Some("intercept off"),
        doc: "Has `error-page` take the place of what applications and `respond` answer with an error status, too.",
        example: "intercept",
        ..Directive::new("intercept", EVERYWHERE)
    },
    Directive {
        arguments: &[one_or("time", Kind::Duration { least: 0, most: 3650 * 86_400_000 }, &["off"])],
        inheritance: Inheritance::Replaces(Apply::to_route(|route, item| {
            route.cache_control = inherit::max_age(item)
        })),
        default: Some("expires off"),
        doc: "How long clients and caches may use a response without asking again (`Cache-Control: max-age`). Long \
              for files whose name changes with their content. Stands in for `cache-control`.",
        example: "expires \"30d\"",
        ..Directive::new("expires", EVERYWHERE)
    },
    Directive {
        arguments: &[one_or("value", Kind::FieldValue, &["off"])],
        inheritance: Inheritance::Replaces(Apply::to_route(|route, item| {
            route.cache_control = item.texts().pop()
        })),
        default: Some("cache-control off"),
        doc: "The `Cache-Control` field of successful responses, word for word. Stands in for `expires`.",
        example: "cache-control \"public, max-age=31536000, immutable\"",
        ..Directive::new("cache-control", EVERYWHERE)
    },
    Directive {
        arguments: &[some_or("link", Kind::FieldValue, &["off"])],
        inheritance: Inheritance::Replaces(Apply::to_route(|route, item| {
            route.early_hints = if item.is_word("off") { Vec::new() } else { item.texts() };
        })),
        doc: "What a page will need, as values of `Link` fields: told to browsers with 103 while the answer is still \
              being made. Meant for pages that an application makes; an answer that is there at once goes out alone. \
              Told only where a browser navigates (`Sec-Fetch-Mode: navigate`) and speaks HTTP/2.",
        example: "early-hints \"</site.css>; rel=preload; as=style\"",
        ..Directive::new("early-hints", INSIDE)
    },
    Directive {
        arguments: &[Argument {
            name: "languages",
            kind: Kind::Language,
            count: Count::Some,
            words: &["off"],
        }],
        inheritance: Inheritance::Replaces(Apply::to_route(Inherited::set_languages)),
        doc: "The languages that there are, the one for whoever wants none of them first. `{language}` is which of them the \
              client prefers (`Accept-Language`, RFC 4647), in redirects, `rewrite`, `hand-to`, fields and limits: `rewrite \
              \"/{language}{path}\"` serves folders by language under one address, `redirect \"/{language}/\" status=302` sends to \
              them. Answers say that they depend on it (`Vary`).",
        example: "languages \"en\" \"de\" \"pt-BR\"",
        ..Directive::new("languages", EVERYWHERE)
    },
    Directive {
        arguments: &[one("name", Kind::FieldName), one_or("value", Kind::FieldTemplate, &["off"]), MODE],
        repeats: true,
        inheritance: Inheritance::Adds(Apply::to_route(Inherited::add_field)),
        doc: "A field set on every response of the route, error pages included. It takes the place of one of the same \
              name that was inherited or that an application has sent (`Set-Cookie` and `Vary` are added); `off` without \
              quotes only takes it away. Written twice in one level, both are sent, and `check` asks whether that is meant. With `add` it stands beside others of its name and takes the place of none, with \
              `missing` it is only sent where the answer has none. `{client}`, `{country}` (its country, as the `country-database` says), `{language}` (of `languages`), `{host}`, `{method}`, `{path}`, `{query}`, `{scheme}`, `{uri}`, `{user}` (who has logged in) and `{groups}` (those of that user, with commas between them) are \
              filled in, and `{header.NAME}`, `{cookie.NAME}`, `{query.NAME}`, `{value.NAME}`, `{1}` and `{id}` (stars and \
              groups of the route), with a default where one may be empty, `{cookie.ab:-a}`; where all that comes of them is nothing, the field is not sent. `{path}` is the path that the client has asked for, also where `index` or `try` lead to another. \
              A word in brackets that is no placeholder is a mistake; a word that is meant as it is stands in two of them, `{{word}}`. Other text in brackets, such as JSON, is left as it is. \
              Fields that the server itself must get right are refused.",
        example: "header \"X-Content-Type-Options\" \"nosniff\"",
        ..Directive::new("header", EVERYWHERE)
    },
];
