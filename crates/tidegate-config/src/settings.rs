//! The typed settings: what a configuration means once it has been read, checked and defaulted.
//!
//! Everything here is plain data, immutable after loading; the server shares one snapshot per revision.
//! A route carries *effective* values: what a site or the top level set for it has been inherited already,
//! so that no consumer ever has to look upwards. `Origin` says where a thing was written, for `explain`
//! and for messages.
//!
//! All of it travels: the master reads the files and sends what it read to the server processes, as JSON.

mod action;
pub mod gateway;
pub mod limits;
pub mod pool;
pub mod tls;
pub mod upstream;

mod access;
mod admin;
mod ban;
mod bandwidth;
pub(crate) mod cache;
mod country;
mod directory;
mod directory_filter;
mod dns;
mod limit_store;
mod load;
mod login;
mod logs;
pub mod network_table;
mod networks;
mod openid;
mod otlp;
mod rates;
mod route_index;
pub mod rules;
mod sampling;
mod secrets;
mod service;
mod shared;
mod signed;
mod time_window;
mod tokens;
mod values;

pub use access::{Access, AccessRule, AccessRules, ClientFacts, Whom};
pub use admin::{Admin, AdminListener, TOKEN_LEAST, read_token};
pub use ban::Ban;
pub use bandwidth::Bandwidth;
pub use cache::{CacheBypass, CacheDisk, CacheQuery, CacheStore, DefaultLifetime, RouteCache};
pub use country::Country;
pub use directory::{
    Directory, DirectoryBind, DirectoryGroups, DirectorySecurity, DirectoryServer, GroupsBy,
};
pub use directory_filter::{Comparison, Filter, FilterSyntax, FilterValue};
pub use dns::Dns;
pub use limit_store::LimitStore;
pub use limits::{LimitOrigins, Limits, RequestLimits};
pub use load::LoadOf;
pub use login::{
    Account, AccountFiles, CertificateName, CertificateRequirement, DistinguishedPattern, Forward, How,
    Identification, Login, Remembering, Required, Requirement, UserCache, UserSource,
};
pub use logs::{
    AccessFormat, AccessLog, Collector, CollectorAddress, ErrorLog, Level, LogPart, LogTarget, SiteLog,
    TimeUnit, UpstreamStage,
};
pub use network_table::NetworkTable;
pub(crate) use networks::first_address;
pub use networks::{Network, NetworkSet};
pub use openid::OpenId;
pub use otlp::Otlp;
pub use rates::{Bound, Limit, RequestRate};
pub use route_index::RouteIndex;
pub use rules::{Clause, Condition, Cors, FieldMode, MoreField, Regex, TextPattern};
pub use sampling::Sampling;
pub use secrets::SecretKind;
pub use service::ServiceAddress;
pub use shared::{Shared, once};
pub use signed::{Signed, UrlKey, UrlKeys};
pub use time_window::{TimeWindow, read_instant};
pub use tls::{
    Acme, AcmeAuthority, AcmeChallenge, CertificateFiles, ClientCertificates, DnsHook, DnsUpdate, ListenTls,
    SiteTls,
};
pub use tokens::{KeySource, TokenKey, Tokens};
pub use values::{Cases, ValueMap, Values};

use pool::{Hook, Pool};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How deep what settings are made of may stand in each other: blocks, `rules`, `match`. They travel as JSON, of which 128
/// levels are read; a `match` is five.
pub(crate) const NESTING: usize = 16;

/// A whole configuration, checked and complete.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Worker threads; `None` is one for each processor this process may run on.
    pub workers: Option<u16>,
    /// Server processes, at least 1; each has `workers` workers.
    pub processes: u16,
    /// Whom the server processes become when the server is started as root; `None` lets them stay it.
    pub user: Option<User>,
    /// Whether the server processes are confined to what the settings name, where the kernel can.
    pub sandbox: bool,
    /// Every address that is listened on; no two are the same but for port 0.
    pub listeners: Vec<Listener>,
    /// In source order.
    pub sites: Vec<Arc<Site>>,
    /// Automatic certificates.
    pub acme: Acme,
    /// Applications behind the server, in source order.
    pub pools: Vec<Pool>,
    /// What tells the countries of clients.
    pub country_database: Option<CountryDatabase>,
    /// Who is asked for the names of clients and the addresses of applications.
    pub dns: Dns,
    /// Where users are known, in source order.
    pub users: Vec<UserSource>,
    /// Where limits are counted together with other servers.
    pub limit_store: Option<LimitStore>,
    /// What signed URLs are signed with, in source order.
    pub url_keys: Vec<UrlKeys>,
    /// Groups of servers elsewhere, in source order.
    pub upstreams: Vec<upstream::Upstream>,
    /// Bounds on what a client may do.
    pub limits: Limits,
    /// What those get who are turned away.
    pub busy: Busy,
    /// The file cache of each worker.
    pub file_cache: FileCache,
    /// Where responses are stored, in source order; no two have the same name.
    pub caches: Vec<CacheStore>,
    /// What is counted beside the figures of the whole server.
    pub statistics: Statistics,
    /// Where access lines go unless a site says otherwise; `None` when off.
    pub access_log: Option<AccessLog>,
    /// Where the server's own messages go.
    pub error_log: ErrorLog,
    /// Value of the `Server` field; `None` leaves the field out.
    pub server_field: Option<String>,
    /// The file that holds the process number; absolute.
    #[serde(with = "crate::path_encoding::optional_path")]
    pub pid_file: Option<PathBuf>,
    /// Where a server that stops leaves who is banned.
    #[serde(with = "crate::path_encoding::optional_path")]
    pub bans_file: Option<PathBuf>,
    /// Path of the control socket; `None` lets the command choose (beside the pid file).
    #[serde(with = "crate::path_encoding::optional_path")]
    pub control: Option<PathBuf>,
    /// The admin API; `None`: there is none.
    pub admin: Option<Admin>,
    /// Where request bodies wait that have to be complete.
    pub spill: gateway::Spill,
    /// Where that is written which is judged by the machine alone.
    pub written: Written,
    /// How long a draining server waits for requests in flight.
    pub drain_timeout: Duration,
    /// What is done when the load of the server crosses a threshold.
    pub hooks: Vec<Hook>,
}

/// A file in the format of MaxMind (`GeoLite2-Country.mmdb`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountryDatabase {
    /// Absolute.
    #[serde(with = "crate::path_encoding::path")]
    pub path: PathBuf,
    /// Where it was written.
    pub origin: Origin,
}

/// Whom the server processes become, by name or number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The user.
    pub name: String,
    /// The group; `None` takes the user's own, and its further groups with it.
    pub group: Option<String>,
    /// Where it was written.
    pub origin: Origin,
}

/// Who may connect to a unix socket: what its file is given.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SocketAccess {
    /// Permission bits; `None` leaves them to the umask.
    pub mode: Option<u32>,
    /// By name or number; `None` is who started the server.
    pub owner: Option<String>,
    /// By name or number; `None` is that of who started the server.
    pub group: Option<String>,
}

/// Where folders and files of the server are named; line 0 where they are not.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Written {
    /// `spill`.
    pub spill: Origin,
    /// `acme { storage }`.
    pub storage: Origin,
    /// `acme { dns-hook }`.
    pub dns_hook: Origin,
    /// `error-log`.
    pub error_log: Origin,
    /// `access-log`.
    pub access_log: Origin,
}

/// Where something was written.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Origin {
    /// The file as the operator named it; `<command line>` for what came from arguments.
    pub file: Arc<str>,
    /// From 1; 0 where there is none.
    pub line: u32,
    /// From 1, in characters; 0 where there is none.
    pub column: u32,
}

impl Origin {
    /// Whether it stands in a file of the operator's, and is no default.
    pub fn is_written(&self) -> bool {
        self.line > 0 && &*self.file != crate::source::DEFAULT
    }
}

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Listener {
    /// What to bind.
    pub address: ListenAddress,
    /// The same as it was written: what sites name it by, whatever port it takes in the end.
    pub written: ListenAddress,
    /// Length of the accept queue asked of the kernel.
    pub backlog: u32,
    /// What the kernel may hold of what was sent on each connection (`SO_SNDBUF`), bytes; `None` leaves it to the kernel.
    pub send_buffer: Option<u32>,
    /// What the kernel may hold of what was received and not read (`SO_RCVBUF`), bytes; `None` leaves it to the kernel.
    pub receive_buffer: Option<u32>,
    /// The name of the site that answers what no site claims; `None` takes the site without a name,
    /// else the first site.
    pub default_site: Option<String>,
    /// `None`: plain.
    pub tls: Option<ListenTls>,
    /// Who may say with the PROXY protocol who the client is; empty for nobody.
    pub proxies: NetworkSet,
    /// Every request is sent to `https` on this port.
    pub redirects_to_https: Option<u16>,
    /// Who may connect, on a unix socket.
    pub access: SocketAccess,
    /// HTTP/2 is spoken with clients that begin with it.
    pub h2c: bool,
    /// Where it was written.
    pub origin: Origin,
}

/// What a listener binds.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ListenAddress {
    /// An address and a port; `[::]` takes IPv4 clients too. Port 0 is the kernel's choice.
    Tcp(SocketAddr),
    /// A unix socket; absolute, at most 107 bytes.
    Unix(#[serde(with = "crate::path_encoding::path")] PathBuf),
}

impl Site {
    /// Whether it answers on a listener.
    pub fn is_on(&self, listener: &Listener) -> bool {
        self.bound.is_empty() || self.bound.contains(&listener.written)
    }
}

/// The performance bucket of routes that name none.
pub const DEFAULT_BUCKET: &str = "default-bucket";

impl Route {
    /// What its requests are counted in.
    pub fn bucket(&self) -> &str {
        self.bucket.as_deref().unwrap_or(DEFAULT_BUCKET)
    }

    /// Whether its requests hold something of a limit as long as they are under way.
    pub fn is_held(&self) -> bool {
        self.rates.iter().any(|limit| !matches!(limit.bound, Bound::Requests(_) | Bound::Nothing))
            || !self.bandwidths.is_empty()
            || !self.bans.is_empty()
            || self.action == Action::Close
    }
}

impl Settings {
    /// Each `ban` that some route has; one of a name several times.
    pub fn bans(&self) -> impl Iterator<Item = &Ban> {
        let routes = self.sites.iter().flat_map(|site| &site.routes);
        routes.flat_map(|route| &route.bans).map(|ban| &**ban)
    }

    /// Each `bandwidth` that some route has; one of a name several times.
    pub fn bandwidths(&self) -> impl Iterator<Item = &Bandwidth> {
        let routes = self.sites.iter().flat_map(|site| &site.routes);
        routes.flat_map(|route| &route.bandwidths).map(|bandwidth| &**bandwidth)
    }

    /// Each `limit` that some route has; one of a name several times.
    pub fn rates(&self) -> impl Iterator<Item = &Limit> {
        let routes = self.sites.iter().flat_map(|site| &site.routes);
        routes.flat_map(|route| &route.rates).map(|rate| &**rate)
    }
}

/// A virtual server: the host names it answers to, and its routes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Site {
    /// Empty for the site without a name.
    pub names: Vec<HostPattern>,
    /// In source order; the last one is always the site itself, with the pattern `/*`.
    pub routes: Vec<Route>,
    /// Whose word about clients is believed: proxies of one's own.
    pub trusted_proxies: Shared<NetworkSet>,
    /// Each of its requests has an id.
    pub has_request_id: bool,
    /// Each belongs to a trace (W3C Trace Context), of which so many are sampled; `None`: what clients send is passed on.
    pub sampling: Option<Sampling>,
    /// Where its requests are logged.
    pub access_log: SiteLog,
    /// The listeners that it answers on, as they are written; none for all.
    pub bound: Vec<ListenAddress>,
    /// What it wants of TLS.
    pub tls: SiteTls,
    /// Plain requests are sent to `https`, since `hsts` is in force.
    pub is_https_only: bool,
    /// What is done when its load crosses a threshold.
    pub hooks: Vec<Hook>,
    /// Why the site is left out, where this one only stands for it and answers 503; `None` where it is served.
    pub left_out: Option<String>,
    /// Where it was written.
    pub origin: Origin,
}

impl Site {
    /// What it is called in a message: its first name.
    pub fn label(&self) -> String {
        self.names.first().map_or_else(|| "(any)".to_owned(), HostPattern::to_string)
    }
}

/// `example.com`, or `*.example.com` (any number of labels below it, not the name itself). Lower case.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum HostPattern {
    /// A whole name.
    Exact(String),
    /// The part behind `*`, with its leading dot: `.example.com`.
    Suffix(String),
}

impl HostPattern {
    /// Whether a host, in lower case and without a port, is one of these.
    pub fn matches(&self, host: &str) -> bool {
        match self {
            HostPattern::Exact(name) => host == name,
            HostPattern::Suffix(suffix) => {
                host.strip_suffix(suffix.as_str()).is_some_and(|front| !front.is_empty())
            }
        }
    }
}

/// What to do with the requests whose path matches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Route {
    /// Which requests; compared in the order of the routes.
    pub pattern: PathPattern,
    /// What else a request has to be: all of them.
    pub conditions: Vec<Clause>,
    /// What `{value.NAME}` may name.
    pub values: Values,
    /// What is answered.
    pub action: Action,
    /// The path, and query perhaps, that what answers is asked for in place of the request's own, placeholders not yet
    /// filled in.
    pub rewrite: Option<String>,
    /// Where the folder is named that its files or scripts lie in; `None` where there is none.
    pub root_origin: Option<Origin>,
    /// It names a folder itself (`root`, `alias`), and what the site answers by itself does not count for files there.
    pub has_own_root: bool,
    /// Who is let in.
    pub access: Access,
    /// Who has to prove to be whom.
    pub identification: Identification,
    /// How often it may be asked for, in order; each name once.
    pub rates: Vec<Shared<Limit>>,
    /// Who is not let in for how it was answered.
    pub bans: Vec<Shared<Ban>>,
    /// How fast its answers are sent, all of them at once.
    pub bandwidths: Vec<Shared<Bandwidth>>,
    /// `None`: those of the site.
    pub trusted_proxies: Option<Shared<NetworkSet>>,
    /// Fields set on every response of the route, in order: name and value, checked and safe to send, placeholders
    /// not yet filled in.
    pub fields: Vec<(String, String)>,
    /// Fields that stand beside those of their name, or where there is none.
    pub more_fields: Vec<MoreField>,
    /// Fields taken away from every response of the route.
    pub removed_fields: Vec<String>,
    /// Which pages of other sites may have its answers.
    pub cors: Option<Shared<Cors>>,
    /// The languages that it has, its own first: of them `{language}` is what a client prefers.
    pub languages: Shared<Vec<String>>,
    /// `Cache-Control` of successful responses (from `expires` or `cache-control`).
    pub cache_control: Option<String>,
    /// What is kept of its responses; `None`: nothing.
    pub cache: Option<Shared<RouteCache>>,
    /// Values of `Link` fields that browsers are told of before an answer that has to be waited for.
    pub early_hints: Vec<String>,
    /// Status to path within the site, from `error-page`.
    pub error_pages: Vec<(u16, String)>,
    /// They also take the place of what applications answer.
    pub intercepts: bool,
    /// What its requests are counted in; `None`: [`DEFAULT_BUCKET`].
    pub bucket: Option<String>,
    /// What takes longer is slow; `None`: as the route itself has shown.
    pub slow_after: Option<Duration>,
    /// Who is told how long an answer has taken to make.
    pub server_timing: Shared<NetworkSet>,
    /// `None`: bodies are sent as they are.
    pub compress: Option<Compress>,
    /// `None`: those of the server.
    pub limits: Option<RequestLimits>,
    /// Where it was written.
    pub origin: Origin,
}

/// A pattern over the decoded, normalised path. `*` stands for any bytes, `/` included.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PathPattern {
    /// `/.perf`; or the name of a route that only `try` leads to, `@app`.
    Exact(String),
    /// `/static/*`, kept without the star.
    Prefix(String),
    /// `*.php`, kept without the star.
    Suffix(String),
    /// Stars elsewhere: the literal pieces between them (the first may be empty, and so may the last).
    Pieces(Vec<String>),
    /// `regex=`: found anywhere in the path.
    Regex(Regex),
}

/// What a route answers with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "made once at load, and most routes are files")]
pub enum Action {
    /// Static files.
    Files(Files),
    /// `redirect "/new/{path}" status=301`; `{path}`, `{query}`, `{host}`, `{uri}`, `{scheme}` are filled in.
    Redirect {
        /// A path of the site or a URL, placeholders not yet filled in.
        to: String,
        /// The status code.
        status: u16,
    },
    /// `respond 200 "text"`: a fixed answer.
    Respond {
        /// The status code.
        status: u16,
        /// The text, which may be empty; `None`: the server's short page where it is an error, else nothing.
        body: Option<String>,
        /// Of the text; `None`: `text/html` where it begins with `<`, else `text/plain`.
        media_type: Option<String>,
    },
    /// `respond close`: the connection is closed without an answer.
    Close,
    /// `hand-to`: the route of another path answers.
    HandTo {
        /// That path, and query perhaps, placeholders not yet filled in.
        to: String,
    },
    /// `cgi`: CGI scripts.
    Cgi(Box<gateway::Application>),
    /// The status page with statistics and cache control (R4, R5).
    Status,
    /// The console: the same figures live, in a browser (R5, R6).
    Console {
        /// What the paths of its pages begin with; ends in a slash.
        prefix: String,
        /// Who is let in may change things by the admin API.
        may_change: bool,
    },
    /// `fastcgi`
    Fastcgi(Box<gateway::Application>),
    /// `scgi`
    Scgi(Box<gateway::Application>),
    /// `proxy`
    Proxy(Box<gateway::Proxy>),
}

/// Static files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Files {
    /// Absolute. The path of the request is looked up below it.
    #[serde(with = "crate::path_encoding::path")]
    pub root: PathBuf,
    /// Set by `alias`: this prefix of the path is cut off before the look-up below `root`.
    pub strip_prefix: Option<String>,
    /// File names tried for a folder, in order.
    pub index: Vec<String>,
    /// `try`: what is looked up instead of the path, in order; empty for the path alone.
    pub try_list: Vec<Try>,
    /// `None`: a folder without an index file answers 404.
    pub listing: Option<Listing>,
    /// Precompressed siblings looked for, in the server's order of preference.
    pub precompressed: Vec<Coding>,
    /// Appended to `text/*` and the like as `charset=`; `None` leaves it out.
    pub charset: Option<String>,
    /// Extension (lower case, no dot) to media type, before the built-in table.
    pub types: Vec<(String, String)>,
    /// Media type of unknown extensions.
    pub default_type: String,
    /// Which symbolic links are followed.
    pub symlinks: Symlinks,
    /// Whether names that begin with a dot are served (`/.well-known/` always is).
    pub serves_hidden: bool,
    /// `false` under `nocache`: every request looks at the file system.
    pub uses_cache: bool,
}

/// Which symbolic links below a root are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Symlinks {
    /// Those that lead to something below the root.
    #[default]
    Beneath,
    /// Those that belong to the same user as what they lead to.
    Owner,
    /// All.
    Any,
}

/// An entry of `try`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Try {
    /// A path with `{path}` filled in: `{path}.html`, `/index.html`.
    Path(String),
    /// `@app`: the route of this name answers.
    Route(String),
    /// `=404`: answer this status.
    Status(u16),
}

/// Directory listings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// Files included above and below the table where a folder has them: `HEADER.html`, `README.html`,
    /// `README.md`, `README` (as text).
    pub header: Vec<String>,
    /// Below the table; see `header`.
    pub readme: Vec<String>,
    /// Most entries of one page.
    pub page: u32,
}

/// A content coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Coding {
    /// RFC 1952; `.gz`.
    Gzip,
    /// RFC 7932; `.br`.
    Brotli,
    /// RFC 8878; `.zst`.
    Zstd,
}

/// Compression on the fly.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Compress {
    /// In the server's order of preference, with the level of each.
    pub codings: Vec<(Coding, u8)>,
    /// Smaller bodies are sent as they are, bytes.
    pub min_length: u64,
    /// Extra compressible media types beside the built-in set.
    pub types: Vec<String>,
}

/// What those get who are turned away because the server is busy (the busy function of R2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Busy {
    /// 429 or 503.
    pub status: u16,
    /// Whole seconds, at least 1.
    pub retry_after: Duration,
    /// May be empty.
    pub text: String,
    /// Of the text.
    pub media_type: String,
}

/// What is counted beside the figures of the whole server (`stats-init`, R5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statistics {
    /// Sites and routes are counted apart; `false` under `statistics off`.
    pub of_sites: bool,
    /// What there was is remembered, second by second.
    pub history: bool,
    /// Where the totals of days are kept over a stop; absolute.
    #[serde(with = "crate::path_encoding::optional_path")]
    pub totals: Option<PathBuf>,
    /// Who is told of it.
    pub otlp: Option<Otlp>,
}

/// The file cache of each worker (R4).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileCache {
    /// `false` under `file-cache off`.
    pub enabled: bool,
    /// Most entries (`MaxFiles`).
    pub entries: u32,
    /// Most bytes of file contents held in memory.
    pub memory: u64,
    /// Files up to this are held in memory whole; larger ones as a descriptor (`SmallFileSizeLimit`).
    pub memory_file_size: u32,
    /// Most descriptors of larger files held open.
    pub descriptors: u32,
    /// An entry older than this is compared with the file system before it is used (`MaxAge`).
    pub max_age: Duration,
}
