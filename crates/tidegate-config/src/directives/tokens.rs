//! `tokens` and what stands in it: who somebody is by a token.

use super::HOUR;
use crate::directive::{Children, Context, Directive, Kind, one, some};

const TOKENS: &[Context] = &[Context::Tokens];
/// A claim, or the way to one.
const CLAIM: Kind = Kind::Text { most: 256 };

pub(super) const DIRECTIVES: &[Directive] = &[
    Directive {
        arguments: &[one("keys", Kind::FileOrService)],
        children: Children::Block(Context::Tokens),
        doc: "JSON Web Tokens (RFC 7519) that say who somebody is, for `login token`, and the keys that they are verified with: a \
              JWK Set as an identity provider publishes it, in a file or at an address (`https`, or `http` on this machine). RS256 \
              to PS512, ES256, ES384, EdDSA and, in a file, HS256 to HS512 are known; each key is good for its own algorithm \
              (`alg`) alone. The master reads a file, and again when it changes. An address is asked by each server process when \
              the first token comes, as its `max-age` says (between a minute and a day) and when a token names a key that is not \
              known, every 30 seconds at most. While it is away, what it said last holds for a day.",
        example: "tokens \"jwks.json\" { issuer \"https://id.example.com\"; audience \"api\" }",
        ..Directive::new("tokens", &[Context::Users])
    },
    Directive {
        arguments: &[one("issuer", Kind::Text { most: 1024 })],
        doc: "Who has to have issued a token (`iss`). Has to be given.",
        example: "issuer \"https://id.example.com\"",
        ..Directive::new("issuer", TOKENS)
    },
    Directive {
        arguments: &[some("audience", Kind::Text { most: 1024 })],
        doc: "For whom it has to be (`aud`), one of these. Has to be given: tokens for others are good for them alone.",
        example: "audience \"api\"",
        ..Directive::new("audience", TOKENS)
    },
    Directive {
        arguments: &[one("claim", CLAIM)],
        default: Some("user \"sub\""),
        doc: "The claim with the name of the user: for `require`, `{user}`, `REMOTE_USER` and the access log. Without it in a \
              token nobody gets in.",
        example: "user \"preferred_username\"",
        ..Directive::new("user", TOKENS)
    },
    Directive {
        arguments: &[one("claim", CLAIM)],
        doc: "The claim with the groups: a list, or a text with spaces between them. A claim in a claim is written with dots.",
        example: "groups \"realm_access.roles\"",
        ..Directive::new("groups", TOKENS)
    },
    Directive {
        arguments: &[one("time", Kind::Duration { least: 0, most: HOUR })],
        default: Some("leeway \"60s\""),
        doc: "How far the clock of the issuer may be from that of this machine, for `exp` and `nbf`.",
        example: "leeway \"10s\"",
        ..Directive::new("leeway", TOKENS)
    },
];
