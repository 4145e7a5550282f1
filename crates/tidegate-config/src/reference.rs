//! `docs/reference/settings.md`, written from the table of directives.

use std::fmt::Write as _;

use crate::directive::{Children, Context, Count, Directive, Inheritance};
use crate::directives;
use crate::language::Language;

/// The reference page, Markdown.
pub fn reference() -> String {
    let mut out = String::from(INTRODUCTION);
    for (title, context, text) in SECTIONS {
        let _ = write!(out, "\n## {title}\n\n{text}\n");
        if context == Context::Top {
            out.push_str("\n| directive | where |\n| --- | --- |\n");
            for directive in directives::all() {
                let _ = writeln!(
                    out,
                    "| [`{}`](#{}) | {} |",
                    directive.name,
                    anchor(directive),
                    places(directive)
                );
            }
        }
        describe_all(&mut out, &directives::SETTINGS, context);
    }
    out
}

/// The directives whose first place is this one, as a part of a reference page.
pub(crate) fn describe_all(out: &mut String, language: &Language, context: Context) {
    for directive in language.all().filter(|directive| directive.contexts[0] == context) {
        describe(out, language, directive);
    }
}

const INTRODUCTION: &str = "\
<!-- Written from the table of directives in crates/tidegate-config; `UPDATE=1 cargo test -p tidegate-config` writes it anew. -->
# Settings

Settings are [KDL 2](https://kdl.dev) documents: a directive, its values, and where it has one a block in curly
brackets. A line ends a directive, and so does `;`. `//` begins a comment, `/* */` encloses one, `/-` leaves out the
directive, value or block behind it. `tidegate check` reads a file and says all that is wrong with it; `tidegate fmt`
writes it the one way.

- **Words and strings.** A value of letters, digits, `-`, `_` and `.` that does not begin with a digit needs no quotes;
  everything else does.
- **Switches.** There is no true and false: a word switches something on, its absence leaves it off, and `off` takes
  back what an outer level switched on.
- **Times** are whole numbers with `ms`, `s`, `m`, `h` or `d`: `\"500ms\"`, `\"30d\"`. **Sizes** are whole numbers with
  `B`, `KiB`, `MiB`, `GiB` or `TiB`. A number without its unit is an error.
- **Paths** that are relative count from the folder of the file they are written in.
- **Environment variables** are filled in within strings: `\"${NAME}\"`, or `\"${NAME:-value}\"` for when it is unset or
  empty. An unset one without a value is an error. `$${` stands for the characters `${`.
- **Order.** Routes are tried in the order of the file. Otherwise order does not matter.
- **Inheritance.** What stands at the top level holds for every site, what stands in a site for its routes. An inner
  directive takes the place of an outer one unless it says that it adds to it.
- **Mistakes** in a site leave that site out and the other sites are served; mistakes elsewhere keep a running server
  on the settings it has.
";

const SECTIONS: [(&str, Context, &str); 27] = [
    ("Top level", Context::Top, "What stands outside every block."),
    ("In `listen`", Context::Listen, "`listen \":80\" { backlog 8192 }`"),
    ("In `limits`", Context::Limits, "`limits { body-size \"1GiB\" }`"),
    (
        "In `limits` of a site or a route",
        Context::RequestLimits,
        "`limits { body-size \"1GiB\" }`; those of `limits` that stand there as well.",
    ),
    ("In `file-cache`", Context::FileCache, "`file-cache { entries 50000 }`"),
    (
        "In `cache`",
        Context::CacheStore,
        "`cache \"main\" { memory \"64MiB\" }`; what says how responses are kept may stand in the `cache` of a site or a route as well.",
    ),
    ("In `statistics`", Context::Statistics, "`statistics { history off }`"),
    ("In `admin`", Context::Admin, "`admin { socket \"admin.sock\" }`"),
    (
        "In `site`",
        Context::Site,
        "Beside these, what the top level sets for all sites may stand in each of them.",
    ),
    (
        "In `route`",
        Context::Route,
        "Beside this, what a site sets for all its routes may stand in each of them.",
    ),
    ("In `listing`", Context::Listing, "`listing { readme \"README.html\" }`"),
    ("In `compress`", Context::Compress, "`compress { media-types \"application/x-thing\" }`"),
    ("In `tls` of a site", Context::Tls, "`tls { certificate \"site.pem\" key=\"site.key\" }`"),
    ("In `acme`", Context::Acme, "`acme { email \"admin@example.com\" }`"),
    ("In `fastcgi`", Context::Fastcgi, "`fastcgi \"php\" { timeout \"10m\" }`"),
    (
        "In `scgi`",
        Context::Scgi,
        "`scgi \"127.0.0.1:4000\" { timeout \"10m\" }`; all of `fastcgi` but `keep` and `keep-timeout`.",
    ),
    ("In `cgi`", Context::Cgi, "`cgi { timeout \"10m\" }`; what `fastcgi` and `scgi` have in common."),
    (
        "In `proxy`",
        Context::Proxy,
        "`proxy \"http://127.0.0.1:3000\" { timeout \"10m\" }`; beside these, what all three have in common.",
    ),
    ("In `pool`", Context::Pool, "`pool \"app\" { command \"/usr/bin/php-cgi\"; processes max=16 }`"),
    (
        "In `upstream`",
        Context::Upstream,
        "`upstream \"backends\" { member \"10.0.0.1:3000\"; member \"10.0.0.2:3000\" }`",
    ),
    ("In `users`", Context::Users, "`users \"staff\" { htpasswd \"/etc/tidegate/staff\" }`"),
    (
        "In `ldap`",
        Context::Ldap,
        "`ldap \"ldaps://a.example\" { base \"ou=people,dc=example,dc=com\"; filter \"(uid={user})\" }`",
    ),
    (
        "In `forward`",
        Context::Forward,
        "`forward \"http://127.0.0.1:9091/verify\" { copy \"Remote-User\"; user \"Remote-User\" }`",
    ),
    (
        "In `tokens`",
        Context::Tokens,
        "`tokens \"/etc/tidegate/jwks.json\" { issuer \"https://id.example.com\"; audience \"api\" }`",
    ),
    (
        "In `openid`",
        Context::Openid,
        "`openid \"https://id.example.com\" { client \"tidegate\" secret-file=\"openid-secret\"; session-keys \"session-keys\" }`",
    ),
    ("In `console`", Context::Console, "`console { change }`"),
    (
        "In `match`",
        Context::Match,
        "`match \"bots\" { header \"User-Agent\" \"*AhrefsBot*\" \"*GPTBot*\" }`; each line is what `when` takes.",
    ),
];

fn describe(out: &mut String, language: &Language, directive: &Directive) {
    let _ = write!(out, "\n<a id=\"{}\"></a>\n### `{}`\n\n", anchor(directive), directive.name);
    let _ = write!(out, "```\n{}\n```\n\n{}\n\n", directive.synopsis(), directive.doc);
    let _ = writeln!(
        out,
        "- stands {}{}",
        places(directive),
        if directive.repeats { "; may be repeated" } else { "" }
    );
    for argument in directive.arguments {
        let count = match argument.count {
            Count::One => "",
            Count::Optional => "; may be left out",
            Count::Some => "; one or several",
            Count::Any => "; any number",
        };
        let _ =
            writeln!(out, "- *{}*: {}{count}", argument.name, argument.kind.expectation_with(argument.words));
    }
    for property in directive.properties {
        let default = property.default.map(|default| format!("; default `{default}`")).unwrap_or_default();
        let _ = writeln!(
            out,
            "- `{}=`: {}{default}. {}",
            property.name,
            property.kind.expectation(),
            property.doc
        );
    }
    match directive.children {
        Children::None => {}
        Children::Block(context) => {
            let names: Vec<String> = language
                .in_context(context)
                .map(|child| format!("[`{}`](#{})", child.name, anchor(child)))
                .collect();
            let _ = writeln!(out, "- block: {}", names.join(", "));
        }
        Children::Deferred => out.push_str("- block: whatever may stand where they are used\n"),
        Children::Pairs { name, value } | Children::Rows { name, value } => {
            let _ =
                writeln!(out, "- block: for each line {} and {}", name.expectation(), value.expectation());
        }
    }
    match directive.inheritance {
        Inheritance::None => {}
        Inheritance::Replaces(_) => {
            out.push_str("- inherited; an inner one takes the place of an outer one\n")
        }
        Inheritance::Adds(_) => out.push_str("- inherited; an inner one adds to the outer ones\n"),
    }
    if let Some(default) = directive.default {
        let _ = writeln!(out, "- default: `{default}`");
    }
    let _ = write!(out, "\n```kdl\n{}\n```\n", directive.example);
}

fn places(directive: &Directive) -> String {
    directive.contexts.iter().map(|context| context.place()).collect::<Vec<_>>().join(", ")
}

/// A name stands in several contexts only when it means different things there; the first one tells them apart.
fn anchor(directive: &Directive) -> String {
    format!("{}-{}", directive.contexts[0].key(), directive.name)
}
