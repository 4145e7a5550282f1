//! What other servers call it: their directives, as the tables of `docs/from-*.md` have them, and their files.
//!
//! The pages are the one place where a word of another server is written down; the hints of `check` are made of their
//! rows. Called wherever a word is refused, and once for a file that is wrong. It only words the help; nothing is ever
//! accepted because of it.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::diagnostic::Diagnostic;
use crate::directive::Context;
use crate::directives;
use crate::source::Source;
use crate::syntax::Parsed;
use crate::syntax::document::{Literal, Node};

/// A server that people come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Server {
    Nginx,
    Apache,
    Lighttpd,
    Caddy,
    Haproxy,
}

/// A row of a page: what stands there, what it is here, what differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub server: Server,
    /// The word as its server writes it.
    pub word: &'static str,
    /// What it is here, between backticks; empty where there is no such thing.
    pub here: &'static str,
    pub differs: &'static str,
}

impl Server {
    /// In the order in which a word that several have is explained.
    pub const ALL: [Self; 5] = [Self::Nginx, Self::Apache, Self::Lighttpd, Self::Caddy, Self::Haproxy];

    pub fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Apache => "Apache",
            Self::Lighttpd => "lighttpd",
            Self::Caddy => "Caddy",
            Self::Haproxy => "HAProxy",
        }
    }

    /// The page for those who come from it, as the command that shows it: also who has the program alone can read it.
    pub fn page(self) -> &'static str {
        match self {
            Self::Nginx => "`tidegate docs from-nginx`",
            Self::Apache => "`tidegate docs from-apache`",
            Self::Lighttpd => "`tidegate docs from-lighttpd`",
            Self::Caddy => "`tidegate docs from-caddy`",
            Self::Haproxy => "`tidegate docs from-haproxy`",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Nginx => include_str!("../../../docs/from-nginx.md"),
            Self::Apache => include_str!("../../../docs/from-apache.md"),
            Self::Lighttpd => include_str!("../../../docs/from-lighttpd.md"),
            Self::Caddy => include_str!("../../../docs/from-caddy.md"),
            Self::Haproxy => include_str!("../../../docs/from-haproxy.md"),
        }
    }

    /// The rows of its page.
    pub fn rows(self) -> impl Iterator<Item = Row> {
        let lines = self.text().lines().filter(|line| line.starts_with("| `"));
        lines.flat_map(move |line| {
            let mut cells = line.trim_matches('|').split(" | ").map(str::trim);
            let there = cells.next().unwrap_or_default();
            let here = cells.next().unwrap_or_default().trim_matches('\u{2013}');
            let differs = cells.next().unwrap_or_default().trim_end_matches('|').trim();
            let words = there.split('`').skip(1).step_by(2);
            let words = words.filter_map(|code| code.split_whitespace().next());
            words.map(move |word| Row { server: self, word, here, differs })
        })
    }

    /// Whether a line, without white space at its ends, can only be one of its files.
    fn wrote(self, line: &str, is_indented: bool) -> bool {
        let word = line.split([' ', '\t', '{', ';']).next().unwrap_or_default();
        let knows = |word: &str| {
            WORDS.iter().any(|(known, rows)| {
                *known == word.to_ascii_lowercase() && rows.iter().any(|row| row.server == self)
            })
        };
        let is_ours = directives::all().any(|directive| directive.name == word);
        match self {
            Self::Nginx if line.contains('"') && is_ours => false,
            Self::Nginx => {
                let is_block = line.ends_with('}') && !is_ours && line.contains(['{', ';']);
                (line.ends_with([';', '{']) || is_block)
                    && (knows(word)
                        || matches!(word, "listen" | "root" | "index" | "include" | "expires" | "user"))
            }
            Self::Apache => {
                let tag = line
                    .strip_prefix('<')
                    .is_some_and(|line| line.starts_with(|c: char| c.is_alphabetic() || c == '/'));
                tag || word.starts_with(char::is_uppercase) && !line.ends_with([';', '{']) && knows(word)
            }
            Self::Lighttpd => {
                line.starts_with("$HTTP[")
                    || line.starts_with("$SERVER[")
                    || (line.contains(" = ") || line.contains(" += "))
                        && word.contains('.')
                        && !word.contains('"')
            }
            Self::Caddy => {
                let is_address = !is_indented && line.ends_with('{') && is_address_of_caddy(word);
                is_address || !line.ends_with(';') && !is_ours && knows(word)
            }
            Self::Haproxy => {
                let is_section =
                    matches!(word, "global" | "defaults" | "frontend" | "backend" | "listen" | "userlist");
                let is_ended = line.ends_with([';', '{', '}']);
                !is_ended
                    && (!is_indented && is_section && !line.contains('"')
                        || is_indented && !is_ours && knows(word))
            }
        }
    }
}

/// Whether a word is what a Caddyfile begins a site with.
fn is_address_of_caddy(word: &str) -> bool {
    let word = word.trim_end_matches(',');
    let host = word.split_once("://").map_or(word, |(_, host)| host);
    let is_port = host
        .strip_prefix(':')
        .is_some_and(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()));
    let name = host.split(':').next().unwrap_or_default();
    let is_host = name == "localhost"
        || name.contains('.')
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-*".contains(&byte));
    is_port || is_host
}

/// All rows by their word in lower case, those of the first server first.
static WORDS: LazyLock<HashMap<String, Vec<Row>>> = LazyLock::new(|| {
    let mut words: HashMap<String, Vec<Row>> = HashMap::new();
    for row in Server::ALL.into_iter().flat_map(Server::rows) {
        words.entry(row.word.to_ascii_lowercase()).or_default().push(row);
    }
    words
});

/// The row of a word, whatever its case; where several have it, of who writes it so.
pub(crate) fn row(word: &str) -> Option<Row> {
    let rows = WORDS.get(&word.to_ascii_lowercase())?;
    rows.iter().find(|row| row.word == word).or_else(|| rows.first()).copied()
}

/// What a line of another server is here whose word alone would be taken for something else.
pub(crate) fn hint_of_line(node: &Node) -> Option<String> {
    let first = node.arguments().next().map(|entry| &entry.value);
    let is_haproxy = match (node.name.as_str(), first) {
        // A name and an address; that of nginx has a block, and in `upstream` an address alone.
        ("server", Some(_)) => {
            node.children.is_none() && (node.is_header_broken || node.arguments().nth(1).is_some())
        }
        ("redirect", Some(Literal::Text(what))) => matches!(what.as_str(), "scheme" | "location" | "prefix"),
        _ => false,
    };
    let rows = WORDS.get(&node.name).filter(|_| is_haproxy)?;
    rows.iter().find(|row| row.server == Server::Haproxy).map(sentence)
}

/// What a directive of another server is called here.
pub(crate) fn hint(word: &str) -> Option<String> {
    if let Some(row) = row(word) {
        return Some(sentence(&row));
    }
    let page = |server: Server| format!("{} has each directive of {}", server.page(), server.name());
    let host = word.trim_end_matches(',');
    if word.starts_with('<') {
        // The word may hold what stands behind it, where nothing keeps them apart.
        let tag = word.trim_start_matches(['<', '/']).split(['>', ' ']).next().unwrap_or_default();
        let row = row(tag).filter(|row| row.server == Server::Apache);
        return Some(row.map_or_else(|| page(Server::Apache), |row| sentence(&row)));
    }
    if let Some(matcher) = word.strip_prefix('@').filter(|matcher| !matcher.is_empty()) {
        return Some(format!(
            "a matcher is `match \"{matcher}\" {{ \u{2026} }}` at the top level here, and `when match \"{matcher}\"` in a \
             route; {}",
            page(Server::Caddy)
        ));
    }
    if CONDITIONS.iter().any(|condition| word.starts_with(condition)) {
        return Some(format!(
            "a condition is a `site`, a `route` or a `when` here; {}",
            page(Server::Lighttpd)
        ));
    }
    if is_address_of_caddy(host) {
        let name =
            host.split_once("://").map_or(host, |(_, host)| host).split(':').next().unwrap_or_default();
        let site = if name.is_empty() { "site".to_owned() } else { format!("site \"{name}\"") };
        return Some(format!(
            "a site is `{site} {{ \u{2026} }}` here, and its address a `listen`; {}",
            page(Server::Caddy)
        ));
    }
    None
}

/// The same of a word that is one of ours, too: nothing where it means what ours does.
pub(crate) fn hint_of_another(word: &str) -> Option<String> {
    // Others write the same word in another case, and then it is not theirs that is meant.
    let row = WORDS.get(&word.to_ascii_lowercase())?.iter().find(|row| row.word == word)?;
    let here = row.here.split(['`', ' ']).find(|code| !code.is_empty());
    (here != Some(word)).then(|| sentence(row))
}

/// What lighttpd begins a conditional block with.
const CONDITIONS: [&str; 5] = ["$HTTP[", "$SERVER[", "$REQUEST_HEADER[", "$REQUEST_METHOD", "$PHYSICAL["];

fn sentence(row: &Row) -> String {
    let Row { server, word, here, differs } = row;
    let is = if here.is_empty() { "has no counterpart".to_owned() } else { format!("is {here}") };
    let differs = if differs.is_empty() { String::new() } else { format!("; {differs}") };
    format!("`{word}` of {} {is} here{differs} ({})", server.name(), server.page())
}

/// Whether a word of another server is one of these of ours.
pub(crate) fn means(word: &str, names: &[&str]) -> bool {
    let Some(row) = row(word) else { return false };
    let mut directives = row.here.split(['`', '{', ';']).filter_map(|code| code.split_whitespace().next());
    directives.any(|directive| names.contains(&directive))
}

/// What is said of a file that was written for another server, in place of all that is wrong with it.
pub(crate) fn refusal(source: &Source, parsed: &Parsed) -> Option<Diagnostic> {
    let (server, line) = recognise(source, parsed)?;
    let (name, page) = (server.name(), server.page());
    let error = Diagnostic::error(format!("this file is written for {name}"));
    let help = format!("{page} says of each directive of {name} what it is here");
    Some(error.at(source, line).help(help))
}

/// The server that a file was written for which is no file of ours, and the line that shows it.
///
/// Only for a file in which something is wrong. Where it has a `site` it is ours, and lines of others in it are told
/// one by one.
fn recognise(source: &Source, parsed: &Parsed) -> Option<(Server, std::ops::Range<usize>)> {
    let outlined = parsed.outline.iter().map(|(name, _)| name.as_str());
    let mut names = outlined.chain(parsed.nodes.iter().map(|node| node.name.as_str()));
    let is_unknown = |name: &str| directives::find(Context::Top, name).is_none();
    let is_wrong = !parsed.diagnostics.is_empty() || parsed.nodes.iter().any(|node| is_unknown(&node.name));
    if !is_wrong || names.any(|name| name == "site") {
        return None;
    }
    let mut found: [(usize, Option<std::ops::Range<usize>>); 5] = Default::default();
    let (mut statements, mut at) = (0usize, 0usize);
    for whole in source.text.split_inclusive('\n') {
        let start = at;
        at += whole.len();
        let line = whole.trim();
        // A comment behind a statement, as they all write it.
        let line = line.split(" #").next().unwrap_or_default().trim_end();
        if line.is_empty() || line.starts_with(['#', '}']) || line.starts_with("//") {
            continue;
        }
        statements += 1;
        let indent = whole.len() - whole.trim_start().len();
        for (server, (count, first)) in Server::ALL.into_iter().zip(&mut found) {
            if server.wrote(line, indent > 0) {
                *count += 1;
                first.get_or_insert(start + indent..start + indent + line.len());
            }
        }
        if statements >= LINES {
            break;
        }
    }
    // Of equal ones the first counts.
    let (server, (count, first)) =
        Server::ALL.into_iter().zip(found).rev().max_by_key(|(_, (count, _))| *count)?;
    (count >= 2 && count * 3 >= statements).then_some(())?;
    Some((server, first?))
}

/// Lines that are looked at: enough to tell.
const LINES: usize = 2000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::ProcessEnvironment;
    use crate::load::load_str;

    /// Surroundings in which a directive of ours may stand.
    const PLACES: [&str; 7] = [
        "listen \":81\"\nsite { respond 200 }\n{}\n",
        "{}\nsite \"example.com\" { respond 200 }\n",
        "listen \":81\"\n{}\n",
        "listen \":81\"\nsite { root \".\"; {} }\n",
        "listen \":81\"\nsite { {} }\n",
        "listen \":81\"\nsite { route \"/x/*\" { {} }; respond 200 }\n",
        "listen \":81\"\nsite { route \"/x/*\" { {}; respond 204 }; respond 200 }\n",
    ];
    /// Names that examples refer to.
    const NAMES: &str = "users \"staff\" { htpasswd \"staff\" }\nupstream \"app\" { member \"127.0.0.1:1\" }\n\
        rules \"secure\" { header \"A\" \"b\" }\ncache \"main\" { memory \"1MiB\" }\n";

    /// Whatever names a file or a folder is given one that is there.
    fn here(folder: &std::path::Path, code: &str) -> String {
        // Programs need not be installed here.
        let mut text = code.replace("\"app.fcgi\"", "\"true\"").replace("\"php-cgi\"", "\"true\"");
        for (place, name) in [
            ("/etc/tidegate/staff", "staff"),
            ("/etc/tidegate/groups", "staff"),
            ("/var/log/tidegate/access.log", "access.log"),
            ("/var/log/tidegate/error.log", "error.log"),
            ("/run/tidegate/tidegate.pid", "tidegate.pid"),
            ("/var/tmp/tidegate", "."),
            ("/usr/lib/cgi-bin", "."),
            ("/srv/www", "."),
            ("/srv/files", "."),
            ("/srv/people", "."),
        ] {
            text = text.replace(&format!("\"{place}\""), &format!("\"{}\"", folder.join(name).display()));
        }
        text
    }

    #[test]
    fn what_the_pages_say_it_is_here_is_accepted() {
        let folder = std::env::temp_dir().join(format!("tidegate-foreign-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("staff"), "staff: anna\n").unwrap();
        let mut wrong = Vec::new();
        for row in Server::ALL.into_iter().flat_map(Server::rows) {
            assert!(
                !row.here.is_empty() || !row.differs.is_empty(),
                "{} of {} says nothing",
                row.word,
                row.server.name()
            );
            assert!(!row.differs.contains("]("), "{}: a link is none in a hint", row.word);
            for code in row.here.split('`').skip(1).step_by(2) {
                let code = here(&folder, code);
                let complaints: Vec<String> = PLACES
                    .iter()
                    .map(|place| {
                        let first = code.split(' ').next().unwrap_or_default();
                        let defines = matches!(first, "users" | "upstream" | "rules" | "pool")
                            || code.starts_with("cache") && code.contains("memory");
                        let names = if defines { "" } else { NAMES };
                        let text = format!("{}{names}", place.replace("{}", &code));
                        // Files of keys are not part of the test; what is said of them comes after the words are understood.
                        let loaded = load_str("row", &text, &folder, &ProcessEnvironment);
                        let errors = loaded.diagnostics.iter().filter(|diagnostic| diagnostic.is_error());
                        errors.map(|error| error.in_a_line()).collect::<Vec<_>>().join("\n")
                    })
                    .collect();
                if complaints.iter().all(|complaint| !complaint.is_empty()) {
                    let least = complaints.join("\n    ");
                    wrong.push(format!("{} of {}: {code}\n    {least}", row.word, row.server.name()));
                }
            }
        }
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn words_that_people_will_try_are_explained() {
        for word in [
            "server_tokens",
            "real_ip_header",
            "client_max_body_size",
            "reverse_proxy",
            "AllowOverride",
            "proxy_pass",
            "location",
            "RewriteRule",
            "ServerName",
            "use_backend",
            "encode",
            "try_files",
            "ssl_certificate",
            "auth_basic",
            "<VirtualHost",
            "<Directory",
            "example.com",
            ":8080",
            "$HTTP[",
            "server.document-root",
            "Require",
        ] {
            let hint = hint(word).unwrap_or_else(|| panic!("nothing is said of {word}"));
            assert!(hint.contains("`tidegate docs from-"), "{word}: {hint}");
        }
        for word in ["zebra", "", "index.html2", "<"] {
            let hint = hint(word);
            assert!(hint.is_none() || word == "<" || word.contains('.'), "{word}: {hint:?}");
        }
    }

    /// Lines as they stand in files of others, each pasted into a site of ours.
    const PASTED: &str = r#"
        location ~ \.php$ { }
        try_files $uri $uri/ /index.php?$query_string;
        rewrite ^/(.*)$ /index.php?q=$1 last;
        proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
        proxy_set_header Upgrade $http_upgrade;
        gzip_types text/plain text/css application/json;
        add_header X-Frame-Options "SAMEORIGIN" always;
        return 301 https://$host$request_uri;
        ssl_protocols TLSv1.2 TLSv1.3;
        ssl_session_cache shared:SSL:10m;
        limit_req zone=one burst=5 nodelay;
        fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
        fastcgi_pass unix:/var/run/php/php8.2-fpm.sock;
        if ($request_method = POST) { }
        map $http_upgrade $connection_upgrade { }
        log_format main '$remote_addr - $remote_user [$time_local] "$request" ';
        auth_basic_user_file /etc/nginx/.htpasswd;
        server_name example.com www.example.com;
        error_page 500 502 503 504 /50x.html;
        access_log off;
        client_max_body_size 100M;
        sendfile on;
        proxy_pass http://backend/;
        valid_referers none blocked server_names;
        proxy_cache_bypass $http_upgrade;
        http2_max_concurrent_streams 128;
        error_log /var/log/nginx/error.log warn;
        <VirtualHost *:80>
        <Directory "/var/www/html">
        <IfModule mod_rewrite.c>
        <FilesMatch "\.(php|phtml)$">
        </Directory>
        ServerName www.example.com
        DocumentRoot /var/www/html
        AllowOverride All
        Require all granted
        Options -Indexes +FollowSymLinks
        RewriteCond %{REQUEST_FILENAME} !-f
        RewriteRule ^(.*)$ index.php?q=$1 [L,QSA]
        Header always set X-Frame-Options "SAMEORIGIN"
        ExpiresByType image/png "access plus 1 month"
        ErrorDocument 404 /404.html
        ErrorLog ${APACHE_LOG_DIR}/error.log
        CustomLog ${APACHE_LOG_DIR}/access.log combined
        ProxyPass / http://127.0.0.1:8080/
        SSLCertificateFile /etc/ssl/certs/a.pem
        AuthName "Restricted"
        SetEnvIf X-Forwarded-Proto https HTTPS=on
        php_value upload_max_filesize 64M
        Redirect permanent / https://www.example.com/
        LogFormat "%h %l %u %t \"%r\" %>s %b" common
        reverse_proxy /api/* 10.0.0.1:80 10.0.0.2:80 { }
        file_server browse
        encode gzip zstd
        php_fastcgi unix//run/php/php-fpm.sock
        handle_path /api/* { }
        @static path *.css *.js
        redir https://example.com{uri} permanent
        basic_auth { }
        import security
        try_files {path} /index.html
        header_up Host {upstream_hostport}
        bind *:443 ssl crt /etc/haproxy/certs/
        acl is_static path_end -i .jpg .png
        use_backend static if is_static
        http-request redirect scheme https unless { ssl_fc }
        option httpchk GET /health
        timeout client 30s
        balance roundrobin
        server web1 10.0.0.1:80 check inter 2s
        stick-table type ip size 100k expire 30s store http_req_rate(10s)
        stats uri /stats
        cookie SERVERID insert indirect nocache
        errorfile 503 /etc/haproxy/errors/503.http
        server.document-root = "/var/www/html"
        $HTTP["host"] == "example.com" { }
        $SERVER["socket"] == ":443" { }
        fastcgi.server = ( ".php" => (( "socket" => "/run/php.sock" )) )
        url.rewrite-once = ( "^/(.*)$" => "/index.php/$1" )
        setenv.add-response-header = ( "X-Frame-Options" => "DENY" )
        include_shell "/usr/share/lighttpd/create-mime.conf.pl"
    "#;

    #[test]
    fn lines_that_people_paste_are_explained() {
        for line in PASTED.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let text = format!("listen \":81\"\nsite \"a.test\" {{\n    respond 200\n    {line}\n}}\n");
            let loaded = load_str("pasted", &text, std::path::Path::new("."), &ProcessEnvironment);
            let said = loaded.render(false);
            assert!(said.contains("`tidegate docs from-"), "{line}:\n{said}");
        }
    }

    #[test]
    fn files_of_others_are_recognised_and_ours_are_not() {
        for (expected, text) in [
            (
                Some(Server::Nginx),
                "# a site\nserver {\n    listen 80;\n    server_name a.test;\n    location / {\n        proxy_pass http://127.0.0.1:3000;\n    }\n}\n",
            ),
            (
                Some(Server::Nginx),
                "location ~ \\.php$ {\n  fastcgi_pass unix:/run/php.sock;\n  include fastcgi_params;\n}\n",
            ),
            (
                Some(Server::Nginx),
                "error_log /var/log/e.log info; pid /run/ng.pid;\nevents { worker_connections 512; }\nhttp { access_log off;\n\
                 server { listen 80 default_server; return 200 \"default\"; }\n\
                 server { listen 80; server_name a.test; return 200 \"a\"; }\n}\n",
            ),
            (
                Some(Server::Apache),
                "<VirtualHost *:80>\n  ServerName a.test\n  DocumentRoot /srv/www\n</VirtualHost>\n",
            ),
            (
                Some(Server::Apache),
                "RewriteEngine On\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule ^ index.php [L]\n",
            ),
            (
                Some(Server::Lighttpd),
                "server.modules = ( \"mod_access\" )\nserver.port = 80\n$HTTP[\"host\"] == \"a\" {\n}\n",
            ),
            (Some(Server::Caddy), "example.com {\n\treverse_proxy localhost:3000\n\tencode gzip\n}\n"),
            (Some(Server::Caddy), "{\n\temail a@b.c\n}\n:80 {\n\tfile_server\n\troot * /srv\n}\n"),
            (
                Some(Server::Haproxy),
                "global\n    maxconn 100\nfrontend web\n    bind :80\n    default_backend app\nbackend app\n    balance roundrobin\n    server a 127.0.0.1:3000 check\n",
            ),
            (None, "listen \":80\"\nsite { root \"/srv\" }\n"),
            (
                None,
                "listen \":80\"\nsite {\n  root \"/srv\"\n  server_tokens off;\n  gzip on;\n  proxy_pass http://x;\n}\n",
            ),
            (None, "lissten \":80\"\nsitte { root \"/srv\" }\n"),
            (None, "zebra\n"),
            (None, ""),
        ] {
            let source = Source::new("a", text);
            let found = recognise(&source, &crate::syntax::parse(&source)).map(|(server, _)| server);
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn no_row_hides_a_directive_of_ours() {
        // A word that is ours too is never refused as unknown; its row is for those who read.
        for row in Server::ALL.into_iter().flat_map(Server::rows) {
            if directives::all().any(|directive| directive.name == row.word) {
                assert!(!row.here.is_empty() || !row.differs.is_empty(), "{}", row.word);
            }
        }
    }
}
