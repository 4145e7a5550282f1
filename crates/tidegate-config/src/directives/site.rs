//! Sites and routes, and who may use them.

use crate::directive::{
    Apply, Argument, Children, Context, Count, Directive, Inheritance, Kind, Property, any, one, optional,
    some,
};

pub(super) const DIRECTIVES: &[Directive] = &[
    Directive {
        arguments: &[Argument { name: "names", kind: Kind::Host, count: Count::Any, words: &[] }],
        children: Children::Block(Context::Site),
        repeats: true,
        doc: "A virtual server: the host names it answers to and what it does. `\"*.example.com\"` stands for every \
              name below `example.com`, not for the name itself; an exact name wins over a star, a longer star \
              over a shorter one. A site without a name answers what no other claims. A site with a mistake is \
              left out and the other sites are served.",
        example: "site \"example.com\" \"www.example.com\" { root \".\" }",
        ..Directive::new("site", &[Context::Top])
    },
    Directive {
        arguments: &[optional("pattern", Kind::Pattern)],
        properties: &[Property {
            name: "regex",
            kind: Kind::Regex,
            default: None,
            doc: "A regular expression in place of the pattern: for paths that it is found in, so that `^` and `$` bind it \
                  to the whole. Its time is linear in the path, whatever stands there.",
        }],
        children: Children::Block(Context::Route),
        repeats: true,
        doc: "What to do with the requests whose path fits the pattern. Routes are tried in the order of the file; \
              the first that fits decides, and what fits none is the site's own. `*` stands for any characters, \
              `/` included: `\"/static/*\"`, `\"*.php\"`, `\"/a/*/b\"`; without a star the path must be equal. The \
              path is compared decoded and without its query. What the site sets holds in its routes unless they \
              set it anew. A name such as `\"@app\"` matches no path: only a `try` leads there. `when` and `unless` ask \
              for more than a path. What the stars stand for are the placeholders `{1}`, `{2}` and so on, and the named \
              groups of `regex` are placeholders by their names.",
        example: "route \"/static/*\" { expires \"30d\" }",
        ..Directive::new("route", &[Context::Site])
    },
    Directive {
        arguments: &[some("addresses", Kind::Address)],
        doc: "The site answers on these listeners alone, named as their `listen` is. On all others it is as if it were not \
              there: its names are nobody's, by TLS too, and it is no default. Where no site is left for a listener, the \
              answer is 404. Without it a site answers on every listener.",
        example: "bind \"127.0.0.1:8080\"",
        ..Directive::new("bind", &[Context::Site])
    },
    ALLOW,
    Directive {
        name: "deny",
        inheritance: Inheritance::Adds(Apply::to_route(|route, item| route.add_rules(item, false))),
        doc: "Refuses clients with 403, by their address, a list, their country, their name or the time, in the words of `allow`.",
        example: "deny list=\"/etc/tidegate/blocked\"",
        ..ALLOW
    },
    Directive {
        arguments: &[one("off", Kind::Choice(&["off"]))],
        doc: "`access off` does away with the `allow` and `deny` of the levels around: in a route with those of its \
              site and of the top level, in a site with those of the top level. Those that stand beside it hold. \
              `require-client-certificate` is not touched by it.",
        example: "access off",
        inheritance: Inheritance::Replaces(Apply::to_route(|route, _| route.open())),
        ..Directive::new("access", &[Context::Site, Context::Route])
    },
];

/// `allow`, and the shape of `deny`.
const ALLOW: Directive = Directive {
    arguments: &[any("networks", Kind::Network)],
    properties: &[
        Property {
            name: "list",
            kind: Kind::File,
            default: None,
            doc: "Clients whose address is in this file: a network, an address or a range `FIRST-LAST` in each line; what \
                  follows a `#` or a `;` is a comment. It is read by the master, shared by all server processes, and read \
                  again when it changes; what is no list leaves the one before in force. A million entries take 5 to 16 MB.",
        },
        Property {
            name: "country",
            kind: Kind::Countries,
            default: None,
            doc: "Clients of these countries, as the `country-database` says, by their codes (ISO 3166) with commas between \
                  them: `\"DE,AT,CH\"`. `ZZ` is whoever has none that is known there, clients of this machine too.",
        },
        Property {
            name: "name",
            kind: Kind::HostNames,
            default: None,
            doc: "Clients that are called so: `\"*.example.com\"` (whatever is below it), `\"a.example.com\"`, several with commas \
                  between them. A name is what the name servers say of the address, and counts only where they say of the \
                  name that it has this address (see `dns`). The request waits for them, for the `timeout` of `dns` at \
                  most. While they do not answer, and the line would decide, the answer is 503. A `deny` is for who wants \
                  to be known: whoever owns an address can leave it without a name.",
        },
        Property {
            name: "time",
            kind: Kind::TimeWindow,
            default: None,
            doc: "The line holds only at this time: days, hours and a time zone, `\"Mon-Fri 08:00-18:00 Europe/Berlin\"`. \
                  Each may be left out: every day, all day, `UTC`. Hours that end before they begin go over midnight, and \
                  belong to the day on which they begin. Alone it is for everybody.",
        },
    ],
    repeats: true,
    inheritance: Inheritance::Adds(Apply::to_route(|route, item| route.add_rules(item, true))),
    doc: "Lets clients in by their address: `\"10.0.0.0/8\"`, `\"::1\"`, `\"all\"`, `\"unix\"` for clients of a unix \
          socket, or `\"local\"` for those of this machine that do not speak for somebody else. Of what a line names, any \
          will do; a `time` has to hold beside it. `allow` and `deny` of a \
          level are tried in order and the first that fits decides; where there is an `allow`, whom no rule fits is \
          refused. The rules of the top level, of the site and of the route add up: each level has to let a client \
          in, so that a route's `allow` does not open what its site closes (`check` warns of one that cannot let \
          anybody in). `access off` is the way out. Behind `trusted-proxies` the address is that of the client.",
    example: "allow \"10.0.0.0/8\" \"::1\"",
    ..Directive::new("allow", &[Context::Top, Context::Site, Context::Route])
};
