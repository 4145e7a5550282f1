//! `openid` and what stands in it: an identity provider (OpenID Connect).

use super::{DAY, HOUR, SECOND};
use crate::directive::{Children, Context, Directive, Kind, Property, any, one};

const OPENID: &[Context] = &[Context::Openid];
/// A claim, or the way to one.
const CLAIM: Kind = Kind::Text { most: 256 };

pub(super) const DIRECTIVES: &[Directive] = &[
    Directive {
        arguments: &[one("issuer", Kind::Service)],
        children: Children::Block(Context::Openid),
        doc: "An identity provider that says who somebody is, for `login openid` (OpenID Connect: authorization code with PKCE). The \
              address is what it calls itself (`issuer`), exactly; what it has stands at `/.well-known/openid-configuration` below \
              it, which the server processes ask when somebody logs in. While it is away, who has a session keeps it and who has \
              none gets 503.",
        example: "openid \"https://id.example.com\" { client \"tidegate\" secret-file=\"openid-secret\"; session-keys \"session-keys\" }",
        ..Directive::new("openid", &[Context::Users])
    },
    Directive {
        arguments: &[one("id", Kind::Text { most: 256 })],
        properties: &[Property {
            name: "secret-file",
            kind: Kind::File,
            default: None,
            doc: "The file whose first line is the secret of this client. Without it the client is a public one, which PKCE alone \
                  protects.",
        }],
        doc: "What the provider calls this server (`client_id`). Has to be given.",
        example: "client \"tidegate\" secret-file=\"openid-secret\"",
        ..Directive::new("client", OPENID)
    },
    Directive {
        arguments: &[one("file", Kind::File)],
        doc: "What sessions are sealed with: a line of base64 of 32 bytes or more, as `openssl rand -base64 32` writes it. A second \
              line is the key before it, which is good as well. All server processes, and all servers that have the same file, \
              know each other's sessions, over reloads, upgrades and restarts. The master reads it, and again when it changes. Has \
              to be given.",
        example: "session-keys \"session-keys\"",
        ..Directive::new("session-keys", OPENID)
    },
    Directive {
        arguments: &[any("scopes", Kind::Token)],
        doc: "What the provider is asked to tell, beside `openid`.",
        example: "scopes \"profile\" \"email\" \"groups\"",
        ..Directive::new("scopes", OPENID)
    },
    Directive {
        arguments: &[one("claim", CLAIM)],
        default: Some("user \"sub\""),
        doc: "The claim of the ID token with the name of the user: for `require`, `{user}`, `REMOTE_USER` and the access log. \
              Without it nobody gets in. An `email` counts only where the provider does not say that it is unverified.",
        example: "user \"preferred_username\"",
        ..Directive::new("user", OPENID)
    },
    Directive {
        arguments: &[one("claim", CLAIM)],
        doc: "The claim with the groups: a list, or a text with spaces between them. A claim in a claim is written with dots.",
        example: "groups \"realm_access.roles\"",
        ..Directive::new("groups", OPENID)
    },
    Directive {
        arguments: &[one("time", Kind::Duration { least: 60 * SECOND, most: 30 * DAY })],
        default: Some("session \"8h\""),
        doc: "How long somebody stays logged in, from when the provider has said so.",
        example: "session \"1h\"",
        ..Directive::new("session", OPENID)
    },
    Directive {
        arguments: &[one("time", Kind::Duration { least: 10 * SECOND, most: 30 * DAY })],
        doc: "How old what the provider has said of somebody may grow, groups above all. Whoever asks for a page after that is sent \
              there and comes back without being asked anything (`prompt=none`); who is known there no longer has to log in. What \
              is no page cannot be sent there, and gets 401 after twice this time. While the provider is away, a session holds \
              until then, too. Without it the bound is that of `session`.",
        example: "refresh \"10m\"",
        ..Directive::new("refresh", OPENID)
    },
    Directive {
        arguments: &[one("time", Kind::Duration { least: 0, most: HOUR })],
        default: Some("leeway \"60s\""),
        doc: "How far the clock of the provider may be from that of this machine, for `exp` and `nbf`.",
        example: "leeway \"10s\"",
        ..Directive::new("leeway", OPENID)
    },
    Directive {
        arguments: &[one("path", Kind::SitePath)],
        default: Some("callback \"/.openid/callback\""),
        doc: "The path of each site with such a login that the provider sends browsers back to. The provider has to know it: \
              `https://example.com/.openid/callback`.",
        example: "callback \"/login/back\"",
        ..Directive::new("callback", OPENID)
    },
    Directive {
        arguments: &[one("path", Kind::SitePath)],
        properties: &[Property {
            name: "to",
            kind: Kind::SitePath,
            default: None,
            doc: "Where the browser goes then, a path of the site that needs no login. The provider has to know its URL, too.",
        }],
        default: Some("logout \"/.openid/logout\""),
        doc: "The path of each such site that ends a session, also at the provider where it has a page for that \
              (`end_session_endpoint`).",
        example: "logout \"/logout\" to=\"/bye\"",
        ..Directive::new("logout", OPENID)
    },
    Directive {
        arguments: &[one("address", Kind::Service)],
        doc: "Where the keys of the provider are, where that is on another host than its own: no other host is asked because a \
              provider names it.",
        example: "keys \"https://keys.example.com/jwks\"",
        ..Directive::new("keys", OPENID)
    },
    Directive {
        arguments: &[one("address", Kind::Service)],
        doc: "Where codes are redeemed, where that is on another host than the provider's own.",
        example: "token-endpoint \"https://login.example.com/token\"",
        ..Directive::new("token-endpoint", OPENID)
    },
];
