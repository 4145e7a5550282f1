//! The nearest known name for one that is not known, and our names for those of other servers.
//!
//! Called wherever a word is refused. It only words the help; nothing is ever accepted because of it.

use crate::directive::Context;
use crate::directives;

/// The candidate nearest to a word, if one is near enough to be a likely slip.
pub(crate) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Long words are no slips of a short one; the bound also keeps the quadratic distance small.
    if word.chars().count() > 64 {
        return None;
    }
    let lower = word.to_lowercase().replace('_', "-");
    let allowed = (lower.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (strsim::osa_distance(&lower, candidate), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// What a directive of nginx, lighttpd, Apache or Caddy is called here.
pub(crate) fn foreign(word: &str) -> Option<&'static str> {
    FOREIGN.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)).map(|(_, ours)| *ours)
}

/// Whether what is written for a directive of a context is likely one of these, misspelt or in the words of another server.
pub(crate) fn means(word: &str, context: Context, names: &[&str]) -> bool {
    let near = nearest(word, directives::in_context(context).map(|directive| directive.name));
    near.is_some_and(|near| names.contains(&near))
        || foreign(word).is_some_and(|help| {
            names
                .iter()
                .any(|name| help.contains(&format!("`{name} ")) || help.contains(&format!("`{name}`")))
        })
}

/// Name elsewhere, and the sentence that leads home.
#[rustfmt::skip]
const FOREIGN: &[(&str, &str)] = &[
    ("server", "a `server` block is called `site` here, and its names stand behind the word: `site \"example.com\" { … }`"),
    ("virtualhost", "a virtual host is called `site` here: `site \"example.com\" { … }`"),
    ("vhost", "a virtual host is called `site` here: `site \"example.com\" { … }`"),
    ("server_name", "the names stand behind the word `site`: `site \"example.com\" \"www.example.com\" { … }`"),
    ("servername", "the names stand behind the word `site`: `site \"example.com\" { … }`"),
    ("location", "`location` is called `route` here: `route \"/static/*\" { … }`"),
    ("handle", "`handle` is called `route` here: `route \"/static/*\" { … }`"),
    ("document-root", "`document-root` is called `root` here"),
    ("documentroot", "`DocumentRoot` is called `root` here"),
    ("document_root", "`document_root` is called `root` here"),
    ("server.document-root", "`server.document-root` is called `root` here"),
    ("autoindex", "`autoindex on` is called `listing` here"),
    ("dir-listing", "a directory listing is called `listing` here"),
    ("browse", "a directory listing is called `listing` here"),
    ("directoryindex", "`DirectoryIndex` is called `index` here"),
    ("try_files", "`try_files $uri $uri.html =404` is `try \"{path}\" \"{path}.html\" \"=404\"` here"),
    ("error_page", "`error_page` is called `error-page` here: `error-page 404 \"/404.html\"`"),
    ("errordocument", "`ErrorDocument` is called `error-page` here: `error-page 404 \"/404.html\"`"),
    ("return", "`return` is called `respond` here (`respond 200 \"text\"`), or `redirect` for another address"),
    ("rewriterule", "use `route \"/old/*\" { rewrite \"/new/{1}\" }`, or `redirect` to send the client elsewhere"),
    ("rewritecond", "conditions choose routes here: `route \"*\" { when header \"X-A\" \"b\"; … }`"),
    ("if", "conditions choose routes here: `route \"*\" { when header \"X-A\" \"b\"; … }`"),
    ("map", "`map` is called `value` here: `value \"group\" from=\"{cookie.ab}\" { \"b\" \"new\" }`"),
    ("limit_except", "methods are named with `methods \"GET\" \"POST\"` here"),
    ("snippet", "use `rules \"NAME\" { … }`, and `use \"NAME\"` where it is meant"),
    ("redir", "`redir` is called `redirect` here"),
    ("add_header", "`add_header` is called `header` here: `header \"Name\" \"value\"`"),
    ("setenv.add-response-header", "response fields are set with `header \"Name\" \"value\"` here"),
    ("gzip", "compression on the fly is called `compress` here: `compress \"gzip\"`"),
    ("brotli", "compression on the fly is called `compress` here: `compress \"br\"`"),
    ("encode", "compression on the fly is called `compress` here"),
    ("deflate", "compression on the fly is called `compress` here"),
    ("gzip_static", "`gzip_static` is called `precompressed` here: `precompressed \"gz\"`"),
    ("brotli_static", "`brotli_static` is called `precompressed` here: `precompressed \"br\"`"),
    ("gzip_types", "the word is `media-types` inside `compress` here: `compress { media-types \"application/x-thing\" }`"),
    ("default_type", "`default_type` is called `default-type` here"),
    ("mime", "media types are given as `types { \"wasm\" \"application/wasm\" }`"),
    ("worker_processes", "`worker_processes` is called `workers` here"),
    ("worker_connections", "the bound is `limits { connections 20000 }` here"),
    ("events", "there is no `events` block here; the number of connections is `limits { connections 20000 }`"),
    ("http", "there is no `http` block here; what stood in it stands at the top level"),
    ("keepalive_timeout", "the bound is `limits { keep-alive-timeout \"60s\" }` here"),
    ("keepalive_requests", "the bound is `limits { keep-alive-requests unlimited }` here"),
    ("client_max_body_size", "the bound is `limits { body-size \"16MiB\" }` here"),
    ("client_header_timeout", "the bound is `limits { head-timeout \"10s\" }` here"),
    ("client_body_timeout", "a slow body is bounded by `limits { body-rate \"256B\"; rate-grace \"30s\" }` here"),
    ("send_timeout", "a slow reader is bounded by `limits { send-rate \"256B\"; rate-grace \"30s\" }` here"),
    ("large_client_header_buffers", "the bound is `limits { head-size \"32KiB\" }` here"),
    ("limit_conn", "connections of one address are bounded by `limits { connections-per-address 2048 }` here"),
    ("limit_conn_zone", "connections of one address are bounded by `limits { connections-per-address 2048 }` here"),
    ("maxconn", "the bound is `limits { connections 20000 }` here"),
    ("open_file_cache", "`open_file_cache` is called `file-cache` here"),
    ("server_tokens", "the field is set or left out with `server-field off` here"),
    ("access_log", "`access_log` is called `access-log` here"),
    ("error_log", "`error_log` is called `error-log` here"),
    ("customlog", "`CustomLog` is called `access-log` here"),
    ("log", "the logs are `access-log` and `error-log` here"),
    ("pid", "`pid` is called `pid-file` here"),
    ("bind", "`bind` is called `listen` here"),
    ("port", "a port is given as `listen \":8080\"` here"),
    ("import", "`import` is called `include` here: `include \"sites/*.kdl\"`"),
    ("proxy_pass", "`proxy_pass` is called `proxy` here: `proxy \"http://127.0.0.1:3000\"`"),
    ("proxypass", "`ProxyPass` is called `proxy` here: `proxy \"http://127.0.0.1:3000\"`"),
    ("reverse_proxy", "`reverse_proxy` is called `proxy` here: `proxy \"http://127.0.0.1:3000\"`"),
    ("fastcgi_pass", "`fastcgi_pass` is called `fastcgi` here: `fastcgi \"unix:/run/php.sock\"`"),
    ("php_fastcgi", "`php_fastcgi` is called `fastcgi` here: `fastcgi \"unix:/run/php.sock\"`"),
    ("fastcgi_param", "`fastcgi_param` is called `param` here, inside `fastcgi { … }`"),
    ("fastcgi_split_path_info", "`fastcgi_split_path_info` is called `split` here, inside `fastcgi { … }`"),
    ("fastcgi_read_timeout", "the bound is called `timeout` here, inside `fastcgi { … }`"),
    ("proxy_read_timeout", "the bound is called `timeout` here, inside `proxy { … }`"),
    ("proxy_connect_timeout", "the bound is called `connect-timeout` here, inside `proxy { … }`"),
    ("proxy_set_header", "`proxy_set_header` is called `request-header` here, inside `proxy { … }`"),
    ("set_real_ip_from", "proxies of one's own are named with `trusted-proxies \"10.0.0.0/8\"` here"),
    ("scgi_pass", "`scgi_pass` is called `scgi` here: `scgi \"127.0.0.1:4000\"`"),
    ("client_body_temp_path", "the folder is called `spill` here"),
    ("ssl_certificate", "use `tls { certificate \"site.pem\" key=\"site.key\" }` in a site, or `tls` in `listen`"),
    ("ssl_certificate_key", "the key stands beside the certificate: `tls { certificate \"site.pem\" key=\"site.key\" }`"),
    ("sslcertificatefile", "use `tls { certificate \"site.pem\" key=\"site.key\" }` in a site, or `tls` in `listen`"),
    ("sslcertificatekeyfile", "the key stands beside the certificate: `tls { certificate \"site.pem\" key=\"site.key\" }`"),
    ("ssl_protocols", "the versions are named with `tls { versions … }` here; without it the safe ones are spoken"),
    ("sslprotocol", "the versions are named with `tls { versions … }` here; without it the safe ones are spoken"),
    ("ssl_ciphers", "there is nothing to choose here: only ciphers without known weakness are spoken"),
    ("sslciphersuite", "there is nothing to choose here: only ciphers without known weakness are spoken"),
    ("auth_basic", "use `login basic \"staff\"`, and name the users at the top level: `users \"staff\" { htpasswd \"/etc/tidegate/staff\" }`"),
    ("auth_basic_user_file", "the file is named at the top level: `users \"staff\" { htpasswd \"/etc/tidegate/staff\" }`, and asked for with `login basic \"staff\"`"),
    ("basic_auth", "use `login basic \"staff\"`, and name the users at the top level: `users \"staff\" { htpasswd \"/etc/tidegate/staff\" }`"),
    ("basicauth", "use `login basic \"staff\"`, and name the users at the top level: `users \"staff\" { htpasswd \"/etc/tidegate/staff\" }`"),
    ("auth.require", "use `login basic \"staff\"`, and name the users at the top level: `users \"staff\" { htpasswd \"/etc/tidegate/staff\" }`"),
    ("authtype", "use `login basic \"staff\"`, and name the users at the top level: `users \"staff\" { htpasswd \"/etc/tidegate/staff\" }`"),
    ("authname", "the realm stands beside the login: `login basic \"staff\" realm=\"The staff\"`"),
    ("authuserfile", "the file is named at the top level: `users \"staff\" { htpasswd \"/etc/tidegate/staff\" }`"),
    ("authgroupfile", "groups stand beside the passwords: `users \"staff\" { htpasswd \"staff\"; groups \"groups\" }`"),
    ("satisfy", "address and login are both asked for here; for one of the two, give a route for the addresses: `route \"/*\" { when client \"10.0.0.0/8\"; … }` before the one with the `login`"),
    ("limit_req", "use `limit \"api\" requests=\"10/s\" burst=20 by=\"{client}\"`"),
    ("limit_req_zone", "a limit needs no zone here: `limit \"api\" requests=\"10/s\" burst=20 by=\"{client}\"`"),
    ("rate_limit", "use `limit \"api\" requests=\"10/s\" burst=20 by=\"{client}\"`"),
    ("stick-table", "a limit needs no table here: `limit \"api\" requests=\"10/s\" burst=20 by=\"{client}\"`"),
    ("valid_referers", "conditions choose routes here: `route \"*.jpg\" { unless header \"Referer\" \"https://example.com/*\"; respond 403 }`"),
    ("stub_status", "use `status` here, in a route that not everybody may ask"),
    ("internal", "a route that others lead to needs no word: they name it with `hand-to`"),
    ("url.rewrite-once", "use `route \"/old/*\" { rewrite \"/new/{1}\" }`"),
    ("url.redirect", "use `route \"/old/*\" { redirect \"/new/{1}\" }`"),
    ("alias.url", "`alias.url` is called `alias` here, inside `route \"/files/*\" { … }`"),
    ("fastcgi.server", "use `route \"*.php\" { fastcgi \"unix:/run/php.sock\" }`"),
    ("server.port", "a port is given as `listen \":8080\"` here"),
    ("server.username", "`server.username` is called `user` here"),
    ("accesslog.filename", "`accesslog.filename` is called `access-log` here"),
    ("setenv", "what an application is told is `param \"NAME\" \"value\"` inside `fastcgi`, `scgi` or `cgi`, and `environment` inside `pool`"),
    ("directory", "a folder is the `root` of a `site` or a `route` here, and what is said of it stands in that route"),
    ("allowoverride", "files within a root settle nothing here: what `.htaccess` says stands in a `route` of the settings"),
    ("proxy_buffering", "an answer is passed on as it comes, and what a slow client leaves waiting is bounded by `buffer` inside `proxy { … }`"),
    ("proxy_redirect", "a `Location` of the application is rewritten by `redirects`, inside `proxy { … }`"),
    ("default_server", "it is named by the listener: `listen \":80\" { default-site \"example.com\" }`"),
];

/// Why a limit of the server is none of a site or a route, and where it belongs.
pub(crate) fn for_the_server(limit: &str) -> &'static str {
    match limit {
        "in-flight" | "incoming-bodies" | "queue" => {
            "sites share its places by themselves, so write it in `limits` at the top level; to bound one application, \
             write `connections` and `queue` in its `proxy`, `fastcgi`, `scgi` or `upstream`"
        }
        "head-timeout" | "fields" | "streams" => {
            "the site is known only once a head has been read: write it in `limits` at the top level"
        }
        "handshake-timeout" | "connections" | "connections-per-address" | "exempt-addresses" => {
            "a connection is let in before the site is known: write it in `limits` at the top level"
        }
        _ => "it is for the server as a whole: write it in `limits` at the top level",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directive::Directive;

    #[test]
    fn finds_the_likely_slip() {
        let names = ["listen", "listing", "limits", "site", "header"];
        for (word, expected) in [
            ("lisen", Some("listen")),
            ("LISTEN", Some("listen")),
            ("listign", Some("listing")),
            ("sit", Some("site")),
            ("zebra", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, names), expected, "{word}");
        }
    }

    #[test]
    fn no_foreign_name_is_one_of_ours() {
        // What stands in `ldap` has the words of LDAP, which mean other things elsewhere.
        let is_elsewhere = |directive: &&Directive| {
            directive.contexts != [Context::Ldap] && directive.contexts != [Context::Forward]
        };
        for (name, _) in FOREIGN {
            let ours = directives::all().filter(is_elsewhere).find(|ours| ours.name == *name);
            assert!(ours.is_none(), "{name}");
        }
    }
}
