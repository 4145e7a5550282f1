//! TLS: on a listener, in a site, for a route.

use crate::directive::{
    Argument, Children, Context, Count, Directive, Inheritance, Kind, OFF, Property, one, one_or, some,
};

const LISTEN: &[Context] = &[Context::Listen];
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
              asks for while it checks a certificate is still answered.",
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
        doc: "Lets a client that comes back send its request with its first packet (0-RTT). Somebody who has recorded \
              such a packet could send it again, so a request that changes something is answered 425 and comes again. \
              Sessions of such a site are kept in memory, for 4,096 clients, and each is good once.",
        example: "early-data",
        ..Directive::new("early-data", TLS)
    },
    Directive {
        arguments: &[
            one_or("time", Kind::Duration { least: 0, most: 3650 * 86_400_000 }, &["off"]),
            Argument { name: "scope", kind: Kind::Choice(&["subdomains", "preload"]), count: Count::Any, words: &[] },
        ],
        inheritance: Inheritance::Replaces,
        default: Some("hsts off"),
        doc: "Tells browsers to use `https` alone for this site and that long (`Strict-Transport-Security`), and \
              answers plain requests with 308 to `https`. `subdomains` means every name below too, `preload` allows \
              browsers to know it from their list. It cannot be taken back sooner: begin with a short time.",
        example: "hsts \"365d\" \"subdomains\"",
        ..Directive::new("hsts", EVERYWHERE)
    },
    Directive {
        arguments: &[OFF],
        inheritance: Inheritance::Replaces,
        doc: "Refuses with 403 who has not shown a client certificate that the site's `client-certificates` accept. \
              Meant for single routes where that is optional.",
        example: "require-client-certificate",
        ..Directive::new("require-client-certificate", &[Context::Site, Context::Route])
    },
];
