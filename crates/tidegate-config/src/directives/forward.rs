//! `forward` and what stands in it: applications that say who somebody is.

use super::{HOUR, MIB, SECOND};
use crate::directive::{Children, Context, Directive, Kind, Property, one, some};

const FORWARD: &[Context] = &[Context::Forward];

pub(super) const DIRECTIVES: &[Directive] = &[
    Directive {
        arguments: &[one("to", Kind::Url)],
        children: Children::Block(Context::Forward),
        doc: "An application that decides who gets in, for `login forward`: an address with a path, a unix socket or an \
              `upstream`. It is asked with a `GET` that has the fields of the request and no content. 2xx lets the request \
              in, with the fields of its answer that `copy` names; 401, 403, 429 and redirects go to the client as they are; \
              with anything else, and while it cannot be reached, the answer is 503.",
        example: "forward \"http://127.0.0.1:9091/api/verify\" { copy \"Remote-User\" \"Remote-Groups\"; user \"Remote-User\" }",
        ..Directive::new("forward", &[Context::Users])
    },
    Directive {
        arguments: &[some("fields", Kind::RequestField)],
        repeats: true,
        doc: "Fields of an answer that lets a request in, which the request is passed on with. What the client has sent \
              by these names is dropped, however it is spelt, also where the answer has none.",
        example: "copy \"Remote-User\" \"Remote-Groups\" \"Remote-Email\"",
        ..Directive::new("copy", FORWARD)
    },
    Directive {
        arguments: &[one("field", Kind::RequestField)],
        doc: "The field of the answer that has the name of the user: for `require`, `{user}`, `REMOTE_USER` and the access \
              log.",
        example: "user \"Remote-User\"",
        ..Directive::new("user", FORWARD)
    },
    Directive {
        arguments: &[one("field", Kind::RequestField)],
        doc: "The field of the answer that has the groups of the user, with commas between them: for `require group` and \
              `{groups}`.",
        example: "groups \"Remote-Groups\"",
        ..Directive::new("groups", FORWARD)
    },
    Directive {
        arguments: &[one("host", Kind::Text { most: 253 })],
        doc: "The `Host` that the application is asked by. Without it the one that the client has named.",
        example: "host \"auth.example.com\"",
        ..Directive::new("host", FORWARD)
    },
    Directive {
        arguments: &[one("path", Kind::SitePath)],
        doc: "The path that is asked for, where the address has none, as that of a unix socket.",
        example: "path \"/verify\"",
        ..Directive::new("path", FORWARD)
    },
    Directive {
        arguments: &[one("time", Kind::Duration { least: 1, most: HOUR })],
        default: Some("timeout \"5s\""),
        doc: "How long the application may be silent: until it accepts a connection, until the head of its answer, and within its \
              content. All of it together, from connecting to the end of the answer, may take a tenth longer, a second at most. \
              Then the client gets 503.",
        example: "timeout \"2s\"",
        ..Directive::new("timeout", FORWARD)
    },
    Directive {
        arguments: &[one("size", Kind::Size { least: 0, most: 16 * MIB })],
        default: Some("content \"64KiB\""),
        doc: "The longest content of an answer that goes to a client. One with more goes there without its content.",
        example: "content \"1MiB\"",
        ..Directive::new("content", FORWARD)
    },
    Directive {
        arguments: &[one("time", Kind::Duration { least: SECOND, most: HOUR })],
        properties: &[Property {
            name: "by",
            kind: Kind::FieldTemplate,
            default: None,
            doc: "What of a request the decision depends on: a text with placeholders, such as `{cookie.session}`, and \
                  `{method}` and `{path}` where the application looks at them. Requests for which it is the same, on the same \
                  host, share a decision; those for which it is empty are always asked about. Has to be given.",
        }],
        doc: "How long a decision that has let somebody in holds for further requests, in each server process. Without it \
              every request is asked about. Refusals are never remembered.",
        example: "cache \"10s\" by=\"{cookie.session}\"",
        ..Directive::new("cache", FORWARD)
    },
];
