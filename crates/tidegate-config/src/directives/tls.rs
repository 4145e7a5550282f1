//! TLS: on a listener, in a site, for a route.

use crate::directive::{
    Apply, Argument, Children, Context, Count, Directive, Inheritance, Kind, OFF, Property, one, one_or, some,
};
use crate::lower;

const LISTEN: &[Context] = &[Context::Listen];
const ACME: &[Context] = &[Context::Acme];
const TLS: &[Context] = &[Context::Tls];
const EVERYWHERE: &[Context] = &[Context::Top, Context::Site];

#[rustfmt::skip]
pub(super) const DIRECTIVES: &[Directive] = &[
    Directive {
        properties: &[
            Property { name: "certificate", kind: Kind::File, default: None,
                doc: "A PEM file: the certificate, then those of who signed it. Without it the certificates are automatic." },
            Property { name: "key", kind: Kind::File, default: None,
                doc: "A PEM file with the private key. Without it the key lies in the file of the certificate." },
        ],
        doc: "Speaks TLS on this listener. The certificate is for the sites that have none of their own. Its files \
              are read anew when they change; a pair that is broken then leaves the old one in use.",
        example: "tls",
        ..Directive::new("tls", LISTEN)
    },
    Directive {
        properties: &[Property { name: "from", kind: Kind::Network, default: None,
            doc: "The load balancers that are believed: an address or a network." }],
        repeats: true,
        doc: "Connections begin with a header of the PROXY protocol, version 1 or 2, that says who the client is. \
              Only who connects from one of these networks may say so, and must; for all others the listener is an \
              ordinary one, and a header is a malformed request.",
        example: "proxy-protocol from=\"10.0.0.0/8\"",
        ..Directive::new("proxy-protocol", LISTEN)
    },
    Directive {
        properties: &[Property { name: "port", kind: Kind::Number { least: 1, most: 65535 }, default: Some("443"),
            doc: "The port that clients are sent to." }],
        doc: "Answers every request on this listener with 308 to the same address with `https`. What an authority \
              asks for while it checks a certificate is still answered. Connections that are open stay with it when the listener goes; \
              and where an address speaks TLS from a reload on, those without are sent to `https` there.",
        example: "redirect-to-https",
        ..Directive::new("redirect-to-https", LISTEN)
    },
    Directive {
        children: Children::Block(Context::Tls),
        doc: "What this site wants of the TLS connections to it, on every listener that speaks TLS. A session of one \
              site never resumes into another.",
        example: "tls { versions \"1.3\" }",
        ..Directive::new("tls", &[Context::Site])
    },
    Directive {
        arguments: &[one("file", Kind::File)],
        properties: &[Property { name: "key", kind: Kind::File, default: None,
            doc: "A PEM file with the private key. Without it the key lies in the file of the certificate." }],
        repeats: true,
        doc: "A certificate of the site's own, a PEM file: the certificate, then those of who signed it. Several may \
              stand: the client gets one that it can verify and that is good for the name it asks for, ECDSA before RSA.",
        example: "certificate \"site.pem\" key=\"site.key\"",
        ..Directive::new("certificate", TLS)
    },
    Directive {
        arguments: &[one("file", Kind::File)],
        properties: &[Property { name: "mode", kind: Kind::Choice(&["required", "optional"]), default: Some("required"),
            doc: "`required` refuses the connection of a client without one; `optional` serves it, and routes may \
                  ask with `require-client-certificate`." }],
        doc: "Asks clients for a certificate that one of the authorities in this PEM file has signed.",
        example: "client-certificates \"authorities.pem\" mode=optional",
        ..Directive::new("client-certificates", TLS)
    },
    Directive {
        arguments: &[some("version", Kind::Choice(&["1.2", "1.3"]))],
        default: Some("versions \"1.2\" \"1.3\""),
        doc: "The versions of TLS that are spoken. With 1.2 only suites with forward secrecy and authenticated encryption \
              are used; older versions are not spoken at all.",
        example: "versions \"1.3\"",
        ..Directive::new("versions", TLS)
    },
    Directive {
        arguments: &[some("protocol", Kind::Choice(&["h2", "http/1.1"]))],
        default: Some("protocols \"h2\" \"http/1.1\""),
        doc: "What a client may choose from by ALPN. A client that asks for nothing gets HTTP/1.1 in any case.",
        example: "protocols \"http/1.1\"",
        ..Directive::new("protocols", TLS)
    },
    Directive {
        doc: "Lets a client that comes back send its request with its first packet (0-RTT). Somebody who has recorded \
              such a packet could send it again, so a request that changes something is answered 425 and comes again. \
              Sessions of such a site are kept in memory, for 4,096 clients, and each is good once.",
        example: "early-data",
        ..Directive::new("early-data", TLS)
    },
    Directive {
        children: Children::Block(Context::Acme),
        doc: "Automatic certificates (ACME), for the sites of listeners that say `tls` and no certificate. Sites need \
              host names. Names that no public authority may vouch for (`localhost`, addresses, what lies below \
              `localhost`, `internal`, `local` and `home.arpa`) get theirs from an authority of the server's own, \
              which `tidegate trust` makes this system trust. Using it means agreeing to the authority's terms.",
        example: "acme { email \"admin@example.com\" }",
        ..Directive::new("acme", &[Context::Top])
    },
    Directive {
        arguments: &[one("address", Kind::Text { most: 254 })],
        doc: "Whom the authority may write to, such as when a certificate was not renewed.",
        example: "email \"admin@example.com\"",
        ..Directive::new("email", ACME)
    },
    Directive {
        arguments: &[one("url", Kind::Text { most: 2048 })],
        properties: &[
            Property { name: "roots", kind: Kind::File, default: None,
                doc: "A PEM file that the authority's own server is verified with, in place of what the system trusts." },
            Property { name: "eab-id", kind: Kind::Text { most: 1024 }, default: None,
                doc: "External account binding: the identifier that the authority has given you." },
            Property { name: "eab-key", kind: Kind::Text { most: 1024 }, default: None,
                doc: "External account binding: the key that the authority has given you, in base64url." },
            Property { name: "profile", kind: Kind::Token, default: None,
                doc: "The kind of certificate asked for, where the authority has several, such as `shortlived`." },
        ],
        repeats: true,
        default: Some("authority \"https://acme-v02.api.letsencrypt.org/directory\""),
        doc: "The URL of an authority's directory. Where several stand, the next one is asked when one fails.",
        example: "authority \"https://acme-v02.api.letsencrypt.org/directory\" profile=\"shortlived\"",
        ..Directive::new("authority", ACME)
    },
    Directive {
        arguments: &[some("kind", Kind::Choice(&["http-01", "tls-alpn-01", "dns-01"]))],
        default: Some("challenge \"tls-alpn-01\" \"http-01\""),
        doc: "How it is shown that a name is yours, best first: `tls-alpn-01` on port 443, `http-01` on port 80, \
              `dns-01` by a record, which a wildcard needs and `dns-hook` or `dns-update` sets.",
        example: "challenge \"http-01\"",
        ..Directive::new("challenge", ACME)
    },
    Directive {
        arguments: &[one("command", Kind::File)],
        properties: &[
            Property { name: "settle", kind: Kind::Duration { least: 0, most: 3_600_000 }, default: Some("10s"),
                doc: "How long a record needs until every server of the zone has it." },
            Property { name: "user", kind: Kind::Text { most: 64 }, default: None,
                doc: "The user that the command runs as, where the server is started as root; without it that of the \
                      server. Give it one of its own where it reads a key that applications must not." },
        ],
        doc: "A command that sets records for `dns-01`. It gets `present` or `cleanup`, the full name of the record, and \
              its value; its environment holds `PATH`, `HOME`, `USER` and `LOGNAME`. It is root only with `user=\"root\"`.",
        example: "dns-hook \"dns-hook\" settle=\"30s\"",
        ..Directive::new("dns-hook", ACME)
    },
    Directive {
        arguments: &[one("zone", Kind::Host)],
        properties: &[
            Property { name: "server", kind: Kind::Address, default: None,
                doc: "The primary name server of the zone, with its port, which is usually 53." },
            Property { name: "key-name", kind: Kind::Text { most: 253 }, default: None, doc: "The name of the key." },
            Property { name: "key", kind: Kind::Text { most: 1024 }, default: None, doc: "The key, in base64." },
            Property { name: "settle", kind: Kind::Duration { least: 0, most: 3_600_000 }, default: Some("10s"),
                doc: "How long a record needs until every server of the zone has it." },
        ],
        repeats: true,
        doc: "Sets records for `dns-01` by dynamic updates of a zone (RFC 2136), signed with HMAC-SHA256 (TSIG). Where \
              several stand, the narrowest zone that a record belongs to is changed. Takes the place of `dns-hook`.",
        example: "dns-update \"example.com\" server=\"127.0.0.1:53\" key-name=\"acme\" key=\"bm90IGEgcmVhbCBrZXk=\"",
        ..Directive::new("dns-update", ACME)
    },
    Directive {
        arguments: &[one("folder", Kind::File)],
        doc: "The folder that keeps certificates, keys and accounts. Several nodes may share it: one of them gets a \
              certificate, and all serve it. Without it, `/var/lib/tidegate/acme`, or \
              `~/.local/share/tidegate/acme` for who is not root.",
        example: "storage \"acme\"",
        ..Directive::new("storage", ACME)
    },
    Directive {
        arguments: &[
            one_or("time", Kind::Duration { least: 0, most: 3650 * 86_400_000 }, &["off"]),
            Argument { name: "scope", kind: Kind::Choice(&["subdomains", "preload"]), count: Count::Any, words: &[] },
        ],
        inheritance: Inheritance::Replaces(Apply::to_route(|route, item| route.hsts = lower::tls::hsts_value(item))),
        default: Some("hsts off"),
        doc: "Tells browsers to use `https` alone for this site and that long (`Strict-Transport-Security`), and \
              answers plain requests with 308 to `https`. Where TLS ends at a proxy in front, name it in \
              `trusted-proxies` and have it send `X-Forwarded-Proto`: that says which requests are plain. `subdomains` means every name below too, `preload` allows \
              browsers to know it from their list. It cannot be taken back sooner: begin with a short time.",
        example: "hsts \"365d\" \"subdomains\"",
        ..Directive::new("hsts", EVERYWHERE)
    },
    Directive {
        arguments: &[OFF],
        inheritance: Inheritance::Replaces(Apply::to_route(|route, item| {
            route.require_client_certificate(!item.is_word("off"));
        })),
        doc: "Refuses with 403 who has not shown a client certificate that the site's `client-certificates` accept. \
              Meant for single routes where that is optional. `off` opens a route of a site that requires one, by `require \
              certificate` too.",
        example: "require-client-certificate",
        ..Directive::new("require-client-certificate", &[Context::Site, Context::Route])
    },
];
