//! `ldap` and what stands in it: directories that know users.

use super::SECOND;
use crate::directive::{Argument, Children, Context, Count, Directive, Kind, Property, one, some};

const LDAP: &[Context] = &[Context::Ldap];
/// A DN or a filter.
const TEXT: Kind = Kind::Text { most: 1024 };
/// The name of an attribute.
const ATTRIBUTE: Kind = Kind::Token;

pub(super) const DIRECTIVES: &[Directive] = &[
    Directive {
        arguments: &[some("servers", Kind::Text { most: 256 })],
        children: Children::Block(Context::Ldap),
        doc: "A directory (LDAP) that knows these users: who logs in is searched for and has to be able to bind with the \
              password. Servers with the same content are named in the order in which they are asked: one that fails is \
              left alone for ten seconds. While none answers, logins that are not in the cache get 503. Starting, \
              reloading and `check` never ask a directory. A user who stands in an `htpasswd` file as well is compared \
              with that alone.",
        example: "ldap \"ldaps://a.example\" \"ldaps://b.example\" { base \"dc=example,dc=com\"; filter \"(uid={user})\" }",
        ..Directive::new("ldap", &[Context::Users])
    },
    Directive {
        arguments: &[one("dn", TEXT)],
        doc: "The DN below which users are.",
        example: "base \"ou=people,dc=example,dc=com\"",
        ..Directive::new("base", LDAP)
    },
    Directive {
        arguments: &[one("filter", TEXT)],
        doc: "What finds a user (RFC 4515). `{user}` is the name that was typed in, always as a value and never as a part of the \
              filter. Where several are found nobody gets in.",
        example: "filter \"(&(objectClass=person)(uid={user}))\"",
        ..Directive::new("filter", LDAP)
    },
    Directive {
        arguments: &[one("attribute", ATTRIBUTE)],
        doc: "The attribute with the name that the user goes by from then on, however it was typed in: in `require`, \
              `REMOTE_USER` and the access log. Without it the one that `filter` compares with `{user}`. Who has no such \
              attribute does not get in.",
        example: "user-name \"uid\"",
        ..Directive::new("user-name", LDAP)
    },
    Directive {
        arguments: &[one("dn", TEXT)],
        properties: &[Property {
            name: "password-file",
            kind: Kind::File,
            default: None,
            doc: "The file with the password, in its first line. The master reads it at start and at a reload. Has to be given.",
        }],
        doc: "Who searches. Without it searches are made without a name.",
        example: "bind \"cn=tidegate,dc=example,dc=com\" password-file=\"staff\"",
        ..Directive::new("bind", LDAP)
    },
    Directive {
        arguments: &[
            one("dn", TEXT),
            Argument { name: "nested", kind: Kind::Choice(&["nested"]), count: Count::Optional, words: &[] },
        ],
        properties: &[
            Property {
                name: "filter",
                kind: TEXT,
                default: None,
                doc: "What finds the groups of a user, whose DN is `{dn}`. Without it `(member={dn})`. Active Directory \
                      finds nested groups by itself with `(member:1.2.840.113556.1.4.1941:={dn})`.",
            },
            Property {
                name: "attribute",
                kind: ATTRIBUTE,
                default: None,
                doc: "The attribute of a user that holds the DNs of the groups, in place of a search: `memberOf`.",
            },
            Property {
                name: "name",
                kind: ATTRIBUTE,
                default: Some("cn"),
                doc: "The attribute with the name of a group, which `require group` goes by. Where groups are found by an \
                      attribute of the user it is the one that the DN of a group begins with.",
            },
        ],
        doc: "The DN below which groups are, or that of one group, and how those of a user are found. `nested` counts groups that belong to groups, \
              too. What lies elsewhere is no group, whatever it is called.",
        example: "groups \"ou=groups,dc=example,dc=com\" nested",
        ..Directive::new("groups", LDAP)
    },
    Directive {
        doc: "Begins TLS on connections of `ldap` before anything else is said. A server that does not is not asked.",
        example: "starttls",
        ..Directive::new("starttls", LDAP)
    },
    Directive {
        arguments: &[one("file", Kind::File)],
        doc: "Who signs the certificates of the servers, PEM. Without it those whom the system trusts.",
        example: "ca \"staff\"",
        ..Directive::new("ca", LDAP)
    },
    Directive {
        arguments: &[one("time", Kind::Duration { least: 100, most: 60 * SECOND })],
        default: Some("timeout \"3s\""),
        doc: "How long a server may take for all that one login asks, connecting included. Then the next one is asked.",
        example: "timeout \"2s\"",
        ..Directive::new("timeout", LDAP)
    },
    Directive {
        arguments: &[one("count", Kind::Number { least: 1, most: 64 })],
        default: Some("connections 4"),
        doc: "How many logins each server process looks up at the same time. Each has a connection that searches and one \
              that binds, which are kept for half a minute when there is nothing to do.",
        example: "connections 8",
        ..Directive::new("connections", LDAP)
    },
];
