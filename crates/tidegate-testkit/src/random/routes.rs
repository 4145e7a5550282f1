//! Random routes and rules of a site, and what the clients must know of them: who may log in, what is limited.

use super::answer::RequestLimit;
use super::generator::Generator;

/// Users of the settings, in the format of htpasswd: `anna` with `right` and `carl` with `open`.
pub(super) const PASSWORDS: &str =
    "anna:$apr1$abcdefgh$tPMe7lknrFZeX55XJF00t0\ncarl:$apr1$abcdefgh$M6iygawm05mFb0y4lNi270\n";

/// Directives of the top level that routes refer to.
pub(super) const TOP: [&str; 3] = [
    "users \"staff\" { htpasswd \"passwords\" }",
    "match \"marked\" { header \"X-A\" \"1\" }",
    "value \"who\" from=\"{cookie.c:-none}\" { \"y*\" \"one\"; \"*\" \"two\" }",
];

/// Who asks for what is behind a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Login {
    /// Nobody says who he is.
    None,
    /// One of those who are required.
    Right,
    /// Known, and not required.
    Other,
    /// One whom nobody knows.
    Unknown,
}

impl Login {
    pub(super) const ALL: [Login; 4] = [Login::None, Login::Right, Login::Other, Login::Unknown];

    /// The field of the request: `anna:right`, `carl:open`, `mallory:guess` in base64.
    pub(super) fn field(self) -> Option<(String, String)> {
        let value = match self {
            Login::None => return None,
            Login::Right => "Basic YW5uYTpyaWdodA==",
            Login::Other => "Basic Y2FybDpvcGVu",
            Login::Unknown => "Basic bWFsbG9yeTpndWVzcw==",
        };
        Some(("Authorization".to_owned(), value.to_owned()))
    }
}

/// Routes of a site.
#[derive(Debug, Clone, Default)]
pub(super) struct Routes {
    pub(super) directives: Vec<String>,
    /// Asks for a login; left out where `explain` is asked what there is behind it.
    pub(super) login: Option<String>,
    pub(super) limit: Option<RequestLimit>,
    /// Paths that they are about.
    pub(super) paths: Vec<String>,
}

impl Routes {
    /// Of the site with this index.
    pub(super) fn generate(random: &mut Generator, site: usize) -> Routes {
        let mut routes = Routes::default();
        let mut add = |directive: &str, paths: &[&str]| {
            routes.directives.push(directive.to_owned());
            routes.paths.extend(paths.iter().map(|path| (*path).to_owned()));
        };
        if random.chance(40) {
            add("route \"/moved/*\" { redirect \"/new/{path}\" status=307 }", &["/moved/a", "/moved/b/c"]);
        }
        if random.chance(40) {
            add("route \"/said\" { respond 203 \"what was to be said\" }", &["/said"]);
        }
        if random.chance(40) {
            let word = random.pick(&[
                "deny \"all\"",
                "allow \"127.0.0.1\"",
                "deny \"127.0.0.0/8\"; allow \"unix\"",
                "allow \"192.0.2.0/24\" \"unix\"",
                "deny \"198.51.100.1\" \"unix\"",
            ]);
            add(&format!("route \"/d1/*\" {{ {word} }}"), &[]);
        }
        if random.chance(40) {
            let end = random.pick(&["\"=410\"", "\"=404\"", "\"/f0.txt\""]);
            add(
                &format!("route \"/d2/*\" {{ try \"{{path}}\" \"{{path}}.html\" {end} }}"),
                &["/d2/nothing", "/d2/page"],
            );
        }
        if random.chance(40) {
            // Tried in order, the conditions of each decide.
            for _ in 0..random.between(1, 3) {
                let condition = random.pick(&[
                    "when header \"X-A\" \"1\"",
                    "when match \"marked\"",
                    "unless match \"marked\"",
                    "when header \"X-A\" \"2*\"",
                    "when cookie \"c\" \"y*\"",
                    "when value \"who\" \"two\"",
                    "when client \"192.0.2.0/24\"",
                    "when query \"q\" \"1\"",
                ]);
                let answer = random.pick(&[
                    "rewrite \"/d2/{1}\"",
                    "rewrite \"/{1}\"; header \"X-Star\" \"{1} {query.q:-none}\"",
                    "redirect \"/to/{1}?c={cookie.c}&v={value.who}\" status=308",
                    "respond 410",
                    "hand-to \"/d2/{1}?from=rules\"",
                ]);
                add(&format!("route \"/r/*\" {{ {condition}; {answer} }}"), &[]);
            }
            add("header \"X-Who\" \"{value.who}\"", &["/r/f0.txt", "/r/page.html?q=1", "/r/nothing"]);
        }
        if random.chance(30) {
            add(
                "route regex=\"^/x/(f[0-9]+)$\" { try \"/{1}.txt\" \"/{1}.html\" \"=404\" }",
                &["/x/f0", "/x/f1", "/x/d0"],
            );
        }
        if random.chance(40) {
            let paths = ["/h/f0.txt", "/h/f1.txt", "/h/d1/page.html", "/h/d0/page.html", "/h/nothing"];
            add("route \"/h/*\" { hand-to \"/{1}\" }", &paths);
        }
        if random.chance(30) {
            let (per_second, burst) = (random.between(1, 50), random.between(1, 60));
            add(
                &format!(
                    "route \"/f1*\" {{ limit \"often-{site}\" requests=\"{per_second}/s\" burst={burst} }}"
                ),
                &["/f1.txt", "/f1.html", "/f1-is-not-there"],
            );
            routes.limit = Some(RequestLimit { site, per_second, burst });
        }
        let mut add = |directive: &str| routes.directives.push(directive.to_owned());
        if random.chance(30) {
            // Counts, and refuses nobody.
            add(&format!("limit \"watched-{site}\" track requests=\"2/s\" burst=3"));
        }
        if random.chance(60) {
            add("index \"index.html\" \"home.htm\"");
        }
        if random.chance(30) {
            add("listing");
        }
        if random.chance(25) {
            add("nocache");
        }
        if random.chance(25) {
            add("hidden");
        }
        if random.chance(40) {
            add("error-page 404 \"/f0.txt\"");
        }
        if random.chance(50) {
            let least = random.pick(&[0, 1, 64]);
            add(&format!("compress \"gzip\" min=\"{least}KiB\""));
        }
        if random.chance(40) {
            let words = "login basic \"staff\"; require user \"anna\" \"ben\"";
            routes.login = Some(format!("route \"/d0/*\" {{ {words} }}"));
        }
        routes
    }

    /// Who the client is, or where, may matter for this path.
    pub(super) fn has_access_rules(&self, path: &str) -> bool {
        let is_named = |directive: &String, words: &[&str]| words.iter().any(|word| directive.contains(word));
        (path.contains("/d1/") && self.directives.iter().any(|line| is_named(line, &["deny", "allow"])))
            || (path.starts_with("/r/")
                && self.directives.iter().any(|line| is_named(line, &["when client"])))
    }

    /// Whether it is behind the login.
    pub(super) fn asks_for_login(&self, path: &str) -> bool {
        let is_below = path.contains("/d0/") && !path.contains("..") && !path.contains("%2e");
        self.login.is_some() && is_below
    }
}
