//! Fields by which a proxy tells an application who asks, from where, and what was asked for.
//!
//! An application that believes them lets in whoever writes them, so a client's are dropped (FAULTS 36, 37); a proxy of
//! one's own may send them. There are too many products for a list of names, so the shape decides: the namespaces that
//! products keep for such fields, and the words that all of them use. A few names that fit no shape are listed.
//! Called for each field of a request to an application.

/// Names that begin otherwise than with `X-`, and those that follow it: the namespace of a product, or what a proxy says.
const PREFIXES: [&str; 33] = [
    "akamai-",
    "ali-cdn-",
    "auth-user",
    "cas-",
    "cf-",
    "cloudfront-",
    "disguised-host",
    "fastly-",
    "fly-client-",
    "incap-",
    "iv-",
    "kerberos-",
    "mellon-",
    "ms-aspnetcore-",
    "oam-",
    "oidc-",
    "osso-",
    "path-info",
    "path-translated",
    "pomerium-",
    "remote-",
    "script-filename",
    "script-name",
    "shib-",
    "sm-",
    "smuser",
    "ssl-",
    "tailscale-",
    "tls-client-",
    "client-verify",
    "vouch-",
    "was-default-hostname",
    "front-end-https",
];

/// The same behind `X-`. Where clients use a namespace too (`X-Amz-Date`, `X-Auth-Token`, `X-Ms-Date`, `X-Goog-Api-Key`), only
/// what a proxy says in it.
const X_PREFIXES: [&str; 56] = [
    "akamai-",
    "amzn-mtls-",
    "amzn-oidc-",
    "amzn-tls-",
    "anonymous-consumer",
    "appengine-",
    "appservice-",
    "arr-",
    "auth-email",
    "auth-group",
    "auth-name",
    "auth-request-",
    "auth-role",
    "auth-subject",
    "auth-user",
    "authenticated",
    "authentik-",
    "azure-",
    "client-cn",
    "client-issuer",
    "client-s-dn",
    "client-san",
    "client-serial",
    "client-subject",
    "client-verif",
    "consumer-",
    "credential-",
    "envoy-",
    "forward",
    "goog-iap-",
    "host",
    "http-host-override",
    "iis-",
    "ms-client-principal",
    "ms-token-",
    "nf-",
    "original-",
    "pomerium-",
    "proxy-",
    "proxyuser-",
    "real-",
    "remote-",
    "rewrite-",
    "scheme",
    "script-name",
    "ssl",
    "sucuri-",
    "tls-",
    "token-subject",
    "trusted-",
    "url-scheme",
    "user-dn",
    "userinfo",
    "vercel-",
    "vouch-",
    "waws-",
];

/// Whole names without a shape.
const NAMES: [&str; 2] = ["user", "x-user"];

/// The namespaces of networks that stand before servers, with or without `X-`: what they say is about the way of a request,
/// but where a word of [`OF_USERS`] is in the name.
const NETWORKS: [&str; 15] = [
    "akamai-",
    "ali-cdn-",
    "appengine-",
    "arr-",
    "azure-",
    "cf-",
    "cloudfront-",
    "envoy-",
    "fastly-",
    "fly-",
    "incap-",
    "nf-",
    "sucuri-",
    "vercel-",
    "waws-",
];

/// Words for a user, and for what proves who that is.
const OF_USERS: [&str; 22] = [
    "access",
    "assertion",
    "auth",
    "authenticated",
    "authorization",
    "cert",
    "certificate",
    "claim",
    "claims",
    "clientcert",
    "dn",
    "email",
    "groups",
    "identity",
    "jwt",
    "login",
    "mtls",
    "principal",
    "session",
    "subject",
    "token",
    "user",
];

/// How names end that say from where a request comes, and what for.
const OF_THE_WAY: [&str; 32] = [
    "addr",
    "address",
    "cipher",
    "clientip",
    "country",
    "for",
    "forward",
    "forwarded",
    "host",
    "hostname",
    "https",
    "ip",
    "ips",
    "ipv4",
    "ipv6",
    "location",
    "method",
    "override",
    "path",
    "port",
    "prefix",
    "proto",
    "protocol",
    "ray",
    "scheme",
    "server",
    "sni",
    "socketip",
    "ssl",
    "uri",
    "url",
    "version",
];

/// The same, whole names.
const WAYS: [&str; 5] = ["path-info", "path-translated", "script-filename", "script-name", "x-script-name"];

/// Words between the hyphens of a name, in small letters, that none but a proxy uses: an address, a certificate, a login.
const WORDS: [u128; 17] = [
    word("authenticated"),
    word("clientcert"),
    word("clientip"),
    word("dn"),
    word("forward"),
    word("forwarded"),
    word("ip"),
    word("ips"),
    word("ipv4"),
    word("ipv6"),
    word("mtls"),
    word("oidc"),
    word("principal"),
    word("socketip"),
    word("ssl"),
    word("webauth"),
    word("xfcc"),
];

/// Two words behind each other.
const PAIRS: [(u128, u128); 7] = [
    (word("client"), word("cert")),
    (word("client"), word("certificate")),
    (word("jwt"), word("assertion")),
    (word("peer"), word("certificate")),
    (word("remote"), word("addr")),
    (word("remote"), word("address")),
    (word("remote"), word("user")),
];

/// How browsers' own fields and those of RFC 9110 begin: most of what comes is done with after three letters.
const PLAIN: [[u8; 3]; 16] = [
    *b"acc", *b"cac", *b"con", *b"coo", *b"dnt", *b"hos", *b"if-", *b"pra", *b"pri", *b"ran", *b"ref",
    *b"sec", *b"te\0", *b"upg", *b"via", *b"max",
];

/// A word of at most 16 letters as a number; letters in front of those drop out.
const fn word(text: &str) -> u128 {
    let (bytes, mut index, mut sum) = (text.as_bytes(), 0, 0);
    while index < bytes.len() {
        sum = sum << 8 | (bytes[index] | 0x20) as u128;
        index += 1;
    }
    sum
}

/// Whether a field of this name is a proxy's to send.
#[inline]
pub fn is_claim(name: &str) -> bool {
    let bytes = name.as_bytes();
    let at = |index: usize| bytes.get(index).map_or(0, u8::to_ascii_lowercase);
    if PLAIN.contains(&[at(0), at(1), at(2)]) || name.eq_ignore_ascii_case("user-agent") {
        return false;
    }
    is_shaped_as_claim(bytes)
}

/// Whether a field that is a proxy's to send says who asks: a user, a group, a certificate or a token. What is not known to be about
/// the way of a request is taken for that.
pub fn is_identity(name: &str) -> bool {
    is_claim(name) && !is_about_the_way(name)
}

/// Whether a field that is a proxy's to send says from where a request comes, or what for.
pub fn is_routing(name: &str) -> bool {
    is_claim(name) && is_about_the_way(name)
}

fn is_about_the_way(name: &str) -> bool {
    let is_of = |words: &[&str], word: &str| words.iter().any(|known| known.eq_ignore_ascii_case(word));
    let bare = match name.as_bytes() {
        [b'x' | b'X', b'-', rest @ ..] => rest,
        bare => bare,
    };
    let is_in = |network: &&str| {
        bare.get(..network.len()).is_some_and(|start| start.eq_ignore_ascii_case(network.as_bytes()))
    };
    name.rsplit('-').next().is_some_and(|last| is_of(&OF_THE_WAY, last))
        || is_of(&WAYS, name)
        || NETWORKS.iter().any(is_in) && !name.split('-').any(|word| is_of(&OF_USERS, word))
}

fn is_shaped_as_claim(name: &[u8]) -> bool {
    let begins = |name: &[u8], prefix: &str| {
        name.first().is_some_and(|first| first.to_ascii_lowercase() == prefix.as_bytes()[0])
            && name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
    };
    let is_prefixed = match name {
        [b'x' | b'X', b'-', rest @ ..] => X_PREFIXES.iter().any(|prefix| begins(rest, prefix)),
        _ => PREFIXES.iter().any(|prefix| begins(name, prefix)),
    };
    is_prefixed || NAMES.iter().any(|other| name.eq_ignore_ascii_case(other.as_bytes())) || has_words(name)
}

fn has_words(name: &[u8]) -> bool {
    let (mut before, mut current) = (0, 0);
    for byte in name.iter().copied().chain([b'-']) {
        if byte != b'-' {
            current = current << 8 | u128::from(byte | 0x20);
            continue;
        }
        if WORDS.contains(&current) || PAIRS.contains(&(before, current)) {
            return true;
        }
        (before, current) = (current, 0);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::{is_claim, is_identity, is_routing};

    /// What products tell applications of the way of a request, each by its documents.
    const WAYS_TOLD: &str = "
        Forwarded Forwarded-For X-Forwarded-For X-Forward-For X-Forwarded X-Forwarded-Host X-Forwarded-Proto
        X-Forwarded-Port X-Forwarded-Prefix X-Forwarded-Server X-Forwarded-Ssl X-Forwarded-Scheme
        Z-Forwarded-For X-Real-IP X-Real-Port True-Client-IP CF-Connecting-IP CF-Connecting-IPv6 CF-Pseudo-IPv4
        Client-IP X-Client-IP Fastly-Client-IP Fastly-SSL X-Cluster-Client-IP X-Remote-IP X-Remote-Addr
        Remote-Addr Proxy-Client-IP WL-Proxy-Client-IP Fly-Client-IP Fly-Forwarded-Port X-ProxyUser-IP
        X-Originating-IP X-Original-Forwarded-For Incap-Client-IP Ali-CDN-Real-IP EO-Client-IP EO-Connecting-IP
        DO-Connecting-IP X-Azure-ClientIP X-Azure-SocketIP X-Azure-FDID X-Appengine-User-IP X-Appengine-Country
        X-Vercel-Forwarded-For X-Vercel-IP-Country X-Nf-Client-Connection-Ip X-Sucuri-ClientIP
        CloudFront-Viewer-Address X-Akamai-Edgescape X-Envoy-External-Address X-Envoy-Original-Path
        X-Envoy-Internal X-Original-URL X-Original-Host X-Original-URI X-Rewrite-URL X-Host X-HTTP-Host-Override
        X-Scheme X-Url-Scheme Front-End-Https X-Script-Name Script-Name Path-Info Script-Filename Disguised-Host
        X-Waws-Unencoded-Url X-Arr-Ssl X-SSL";

    /// What browsers, programs and libraries send.
    const PLAIN: &str = "
        Accept Accept-Charset Accept-Encoding Accept-Language Accept-Patch Authorization Cache-Control Connection
        Content-Type Content-Length Content-Encoding Content-MD5 Content-Digest Cookie DNT Date Device-Memory Depth
        Destination Downlink Early-Data Expect From Host If-Match If-None-Match If-Modified-Since If-Range If-Unmodified-Since
        Idempotency-Key Last-Event-ID Lock-Token Max-Forwards Origin Overwrite Pragma Prefer Priority Range Referer RTT
        Save-Data Sec-Fetch-Mode Sec-CH-UA Sec-CH-UA-Platform Sec-GPC Sec-WebSocket-Key Service-Worker SOAPAction TE Timeout
        Trailer Traceparent Tracestate Baggage Upgrade-Insecure-Requests User-Agent Via Viewport-Width Width Want-Digest
        Grpc-Timeout Grpc-Encoding Apikey Api-Key Private-Token Job-Token Ce-Id Ce-Type
        X-Requested-With X-Requested-By X-Request-Id X-Correlation-Id X-Trace-Id X-B3-TraceId X-Api-Key X-Api-Version
        X-Auth-Token X-Auth-Key X-Access-Token X-Csrf-Token X-Xsrf-Token X-CSRFToken X-User-Agent X-User-Id X-User-Token
        X-User-Email X-Grpc-Web X-HTTP-Method-Override X-Http-Method X-Method-Override X-Pingback X-Prototype-Version
        X-Client-Data X-Client-Version X-Client-Name X-Client-Id X-Device-Id X-Session-Id X-Token X-Key X-Version
        X-Amz-Date X-Amz-Content-Sha256 X-Amz-Security-Token X-Amz-Target X-Amz-Meta-Name X-Amzn-Trace-Id X-Ms-Date
        X-Ms-Version X-Ms-Client-Request-Id X-Goog-Api-Key X-Goog-Api-Client X-Goog-User-Project X-GitHub-Event
        X-Hub-Signature-256 X-Gitlab-Token X-Gitlab-Event X-Shopify-Topic Stripe-Signature X-Vault-Token X-Consul-Token
        X-Registry-Auth X-Docker-Token X-Nextcloud-Ajax X-OC-MTime OCS-APIRequest OC-Total-Length Tus-Resumable Upload-Offset
        X-Inertia X-Livewire X-PJAX Turbo-Frame HX-Request HX-Target X-Moz Purpose X-Purpose X-Do-Not-Track X-Wap-Profile";

    #[test]
    fn what_proxies_say_is_told_from_what_clients_say() {
        for name in WAYS_TOLD.split_whitespace().chain(IDENTITIES.split_whitespace()) {
            for name in [name.to_owned(), name.to_ascii_lowercase(), name.to_ascii_uppercase()] {
                assert!(is_claim(&name), "{name} reaches applications");
            }
        }
        for name in PLAIN.split_whitespace() {
            for name in [name.to_owned(), name.to_ascii_lowercase(), name.to_ascii_uppercase()] {
                assert!(!is_claim(&name), "{name} is kept from applications");
            }
        }
    }

    /// The same of who asks.
    const IDENTITIES: &str = "
        X-Forwarded-User X-Forwarded-Email X-Forwarded-Groups X-Forwarded-Preferred-Username X-Forwarded-Access-Token
        X-Forwarded-Client-Cert X-Forwarded-Tls-Client-Cert X-Forwarded-Tls-Client-Cert-Info
        Remote-User Remote-Groups Remote-Name Remote-Email Remote-Role X-Remote-User X-Remote-Group X-Remote-Extra-Scopes
        X-Proxy-Remote-User OAM-Remote-User X-Authenticated-User X-Authenticated-Userid X-Authenticated-Scope
        X-Webauth-User X-Webauth-Email X-Webauth-Groups X-Auth-User X-Auth-Username X-Auth-User-Id X-Auth-Email
        X-Auth-Groups X-Auth-Roles X-Auth-Request-User X-Auth-Request-Email X-Auth-Request-Access-Token Auth-User
        User X-User X-Authentik-Username X-Authentik-Groups X-Authentik-Jwt X-Goog-Authenticated-User-Email
        X-Goog-Authenticated-User-Id X-Goog-Iap-Jwt-Assertion Cf-Access-Authenticated-User-Email Cf-Access-Jwt-Assertion
        X-Pomerium-Jwt-Assertion X-Pomerium-Claim-Email Tailscale-User-Login Tailscale-User-Name X-Vouch-User
        X-Vouch-Idp-Claims-Email X-Consumer-Username X-Consumer-Custom-Id X-Consumer-Groups X-Anonymous-Consumer
        X-Credential-Identifier X-Userinfo X-Amzn-Oidc-Identity X-Amzn-Oidc-Data X-Amzn-Oidc-Accesstoken
        X-Ms-Client-Principal X-Ms-Client-Principal-Id X-Ms-Client-Principal-Name X-Ms-Client-Principal-Idp
        X-Ms-Token-Aad-Id-Token X-Iis-Windowsauthtoken Ms-Aspnetcore-Winauthtoken Ms-Aspnetcore-Clientcert
        Iv-User Iv-User-L Iv-Groups Iv-Creds Sm-User Smuser Osso-User-Dn Shib-Session-Id Shib-Identity-Provider Oidc-Claim-Sub
        Mellon-Name-Id CAS-User
        Client-Cert Client-Cert-Chain X-Client-Cert X-Client-Certificate X-Client-Verify X-Client-DN X-Client-CN
        X-Client-Subject X-SSL-Cert X-SSL-Client-Cert X-SSL-Client-Verify X-SSL-Client-S-DN X-SSL-Client-CN SSL-Verified
        Ssl-Client-Cert Ssl-Client-Verify Ssl-Client-Subject-Dn X-TLS-Client-Cert X-ARR-ClientCert X-Amzn-Mtls-Clientcert
        X-Amzn-Mtls-Clientcert-Subject Cf-Client-Cert-Der-Base64 X-Subject-DN X-User-DN
        X-Token-Subject";

    #[test]
    fn who_asks_is_told_from_the_way_of_a_request() {
        let ways = WAYS_TOLD.split_whitespace().map(|name| (name, false));
        for (name, is_meant) in ways.chain(IDENTITIES.split_whitespace().map(|name| (name, true))) {
            for name in [name.to_owned(), name.to_ascii_lowercase(), name.to_ascii_uppercase()] {
                assert_eq!((is_identity(&name), is_routing(&name)), (is_meant, !is_meant), "{name}");
            }
        }
        for name in PLAIN.split_whitespace() {
            assert!(!is_identity(name) && !is_routing(name), "{name} is no claim");
        }
        assert!(is_identity("X-Forwarded-Whoever"), "in doubt it says who asks");
    }

    #[test]
    fn names_of_any_length_are_judged() {
        assert!(!is_claim(""));
        assert!(!is_claim("-"));
        assert!(!is_claim("x"));
        assert!(!is_claim("X-"));
        let long = "a".repeat(40_000);
        assert!(!is_claim(&long));
        assert!(is_claim(&format!("{long}-ip")));
        assert!(is_claim(&format!("X-Forwarded-{long}")));
    }
}
