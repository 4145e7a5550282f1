//! A site at run time: its routes in source order, and the path by which everything is decided.

use crate::access_data::AccessView;
use crate::answer;
use crate::client_head::ClientHead;
use crate::condition::{Facts, tells_apart};
use crate::decoration::Decoration;
use crate::depending::Depending;
use crate::exchange::Exchange;
use crate::filter::Filter;
use crate::gate::Gate;
use crate::handler::Handler;
use crate::log::Sink;
use crate::rate::BanGate;
use crate::remote::Remote;
use crate::response::Response;
use crate::series::SiteSeries;
use crate::state::{EncodedSlash, Refused, RequestState};
use crate::trace::Traced;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::rc::Rc;
use std::sync::Arc;
use tidegate_config::settings::{
    self, AccessLog, Action, Clause, Condition, Network, PathPattern, RequestLimits, RouteIndex, Try,
};
use tidegate_http::path::{PathError, both_readings, has_encoded_slash, normalise};
use tidegate_http::{Fields, Status, Target};
use tidegate_io::socket::Peer;

/// A site at run time.
pub struct Site {
    pub(crate) config: Arc<settings::Site>,
    pub(crate) routes: Vec<Route>,
    has_programs: bool,
    /// On whose account its requests wait: the same on all workers, and after a reload.
    account: u64,
    /// Some route is served however busy the server is.
    has_status: bool,
    /// The routes that have a name and no path.
    named: HashMap<String, usize>,
    /// Some route is only for clients on this machine.
    is_partly_for_this_machine: bool,
    /// Nothing that a request says of its client is looked at.
    is_asked_directly: bool,
    /// Some route trusts other proxies than the site does.
    pub(crate) trusts_by_route: bool,
    /// Where its access lines go.
    pub access_log: Option<Sink>,
    /// What is told of its requests beside their heads, once somebody wants to know.
    traced: OnceCell<Rc<Traced>>,
    /// It is told of all of them: in its log, or since they have ids.
    pub(crate) traces_all: bool,
    /// For each route, its limits where they are not those of the server; empty where no route has any.
    limits: Vec<Option<Rc<RequestLimits>>>,
    /// Some route has limits of what is under way: requests have something to give back.
    pub(crate) has_holds: bool,
    /// `None`: no route has conditions.
    facts: Option<Facts>,
    depending: Depending,
    /// What access rules and conditions ask of files.
    pub(crate) access_view: AccessView,
    /// `None`: there are few routes.
    index: Option<RouteIndex>,
    /// The bans of its routes, each once.
    bans: Vec<BanGate>,
    /// Paths to which browsers come back from a login with a code in their query.
    callbacks: Vec<String>,
    /// What its requests count for.
    pub(crate) series: SiteSeries,
}

/// The route of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) index: usize,
    /// Other requests for the path may have another route.
    pub(crate) is_conditional: bool,
    /// The path names the source of a program whose route is not for this request.
    pub(crate) is_source: bool,
}

/// The path of a request, as everything is decided by it.
pub(crate) struct ReadPath<'a> {
    /// As it was sent, where it has a fault.
    pub path: &'a [u8],
    pub encoded_slash: EncodedSlash,
    /// Why no route may be chosen by it: the site itself refuses it.
    pub fault: Option<PathError>,
}

impl<'a> ReadPath<'a> {
    /// One that is used as it was sent.
    #[inline]
    pub(crate) fn plain(path: &'a str) -> ReadPath<'a> {
        ReadPath { path: path.as_bytes(), encoded_slash: EncodedSlash::Nowhere, fault: None }
    }
}

/// A path by which a request is decided, and where it leads.
pub(crate) struct Place<'a> {
    pub read: ReadPath<'a>,
    /// `None` where no route fits.
    pub route: Option<usize>,
}

/// A route at run time: what a module has made of it.
pub struct Route {
    pub(crate) handler: Rc<dyn Handler>,
    pub(crate) filters: Vec<Rc<dyn Filter>>,
    pub(crate) decoration: Rc<Decoration>,
    pub(crate) gates: Vec<Rc<dyn Gate>>,
    /// How many of these are asked before the access rules.
    pub(crate) early: usize,
    /// No gate can refuse anybody.
    pub(crate) is_open: bool,
    /// Some filter is for finished messages, too: they do not skip the Filter phase.
    pub(crate) filters_finished: bool,
    /// Whatever the handler answers goes out as it is: nothing of the route is for the Filter phase.
    pub(crate) is_plain: bool,
}

impl Route {
    /// A route with what answers it.
    pub fn new(handler: Rc<dyn Handler>, filters: Vec<Rc<dyn Filter>>, decoration: Rc<Decoration>) -> Route {
        let filters_finished = filters.iter().any(|filter| filter.sees_finished());
        let (is_open, is_plain) = (false, false); // until its site knows its settings
        Route {
            handler,
            filters,
            decoration,
            gates: Vec::new(),
            early: 0,
            is_open,
            filters_finished,
            is_plain,
        }
    }

    /// The same behind gates, which are asked in this order: those that precede access, its access rules, the others.
    pub fn behind(self, mut gates: Vec<Rc<dyn Gate>>) -> Route {
        gates.sort_by_key(|gate| !gate.precedes_access());
        let early = gates.iter().take_while(|gate| gate.precedes_access()).count();
        Route { gates, early, ..self }
    }
}

/// On whose account the requests of a site wait, wherever they do: the same on all workers, and after a reload.
pub fn account_of(site: &settings::Site) -> u64 {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    hasher.hash_one(site.names.iter().map(ToString::to_string).collect::<Vec<_>>())
}

impl Site {
    /// A site; `routes` are in the order of its settings.
    pub fn new(config: Arc<settings::Site>, mut routes: Vec<Route>, access_log: Option<Sink>) -> Site {
        debug_assert_eq!(config.routes.len(), routes.len());
        for (route, config) in routes.iter_mut().zip(&config.routes) {
            route.is_open = config.access.is_open() && route.gates.is_empty();
            route.is_plain = !route.has_filter_phase(config);
        }
        let has_programs = config.routes.iter().any(|route| route.action.is_program());
        let account = account_of(&config);
        let has_status = config.routes.iter().any(|route| route.action.always_answers());
        let mut named = HashMap::new();
        for (index, route) in config.routes.iter().enumerate() {
            if let PathPattern::Exact(name) = &route.pattern
                && name.starts_with('@')
            {
                named.entry(name.clone()).or_insert(index);
            }
        }
        let trusts_by_route = config.routes.iter().any(|route| route.trusted_proxies.is_some());
        let mut levels = config.routes.iter().flat_map(|route| &route.access.levels);
        let clauses = || config.routes.iter().flat_map(|route| &route.conditions);
        let is_partly_for_this_machine =
            levels.any(|rules| rules.has_any_for_this_machine()) || clauses().any(is_for_this_machine);
        let facts = clauses().next().is_some().then(|| Facts::of(&config.routes));
        let is_asked_directly = config.trusted_proxies.is_empty() && !is_partly_for_this_machine;
        let limits: Vec<_> = config.routes.iter().map(|route| route.limits.clone().map(Rc::new)).collect();
        let has_limits = limits.iter().any(Option::is_some);
        Site {
            limits: if has_limits { limits } else { Vec::new() },
            index: RouteIndex::of(config.routes.iter().map(|route| &route.pattern)),
            depending: Depending::of(&config.routes),
            has_holds: config.routes.iter().any(settings::Route::is_held),
            traced: OnceCell::new(),
            traces_all: config.has_request_id || config.sampling.is_some(),
            config,
            routes,
            access_log,
            has_programs,
            account,
            has_status,
            named,
            is_partly_for_this_machine,
            is_asked_directly,
            trusts_by_route,
            facts,
            access_view: AccessView::default(),
            bans: Vec::new(),
            callbacks: Vec::new(),
            series: SiteSeries::default(),
        }
    }

    /// Whose requests count for these.
    pub fn numbered(self, series: SiteSeries) -> Site {
        Site { series, ..self }
    }

    /// With what its access rules and conditions ask of files.
    pub fn knowing(self, access_view: AccessView) -> Site {
        Site { access_view, ..self }
    }

    /// With the bans that requests count for which come to none of its routes, since they cannot be read or are not for it.
    pub fn counting(self, bans: Vec<BanGate>) -> Site {
        Site { bans, ..self }
    }

    /// With paths whose queries are nothing for a log: a code that somebody can log in with stands there.
    pub fn concealing(self, callbacks: Vec<String>) -> Site {
        Site { callbacks, ..self }
    }

    /// What logs show of a target.
    #[inline]
    pub(crate) fn shown_target<'t>(&self, target: &'t str) -> &'t str {
        if self.callbacks.is_empty() { target } else { self.without_code(target) }
    }

    #[cold]
    fn without_code<'t>(&self, target: &'t str) -> &'t str {
        let Some((shown, _)) = target.split_once('?') else { return target };
        let raw_path = match shown.split_once("://") {
            Some((_, rest)) if !shown.starts_with('/') => rest.find('/').map_or("/", |at| &rest[at..]),
            _ => shown,
        };
        let mut scratch = Vec::new();
        let path = self.read_path(raw_path, &mut scratch).path;
        let is_callback = self.callbacks.iter().any(|back| back.as_bytes() == path);
        if is_callback { shown } else { target }
    }

    /// Has the answer to a request count for all bans of the site where it came to no route by its path: those that have been
    /// asked about it see to that themselves.
    #[cold]
    pub(crate) fn watch_unrouted(&self, exchange: &mut Exchange<'_>) {
        if exchange.state.refused.as_ref().is_some_and(|refused| refused.is_unrouted) {
            self.bans.iter().for_each(|ban| ban.watch(exchange));
        }
    }

    /// Such a request was answered. What a trusted proxy asks on somebody's behalf counts for nobody.
    #[cold]
    pub(crate) fn count_unrouted(&self, remote: &Remote, status: Status) {
        if !remote.is_proxy {
            self.bans.iter().for_each(|ban| ban.count_unrouted(remote.client, status));
        }
    }

    /// The same for a request of which nothing is known but who has sent it.
    #[cold]
    pub(crate) fn count_unread(&self, peer: Peer, status: Status) {
        if !self.bans.is_empty() {
            let none = Fields::default();
            self.count_unrouted(&Remote::behind(&self.config.trusted_proxies, peer, &none), status);
        }
    }

    /// With what the lines of its log want to know.
    pub fn logging(self, log: Option<&AccessLog>) -> Site {
        Site { traces_all: self.traces_all || log.is_some_and(AccessLog::shows_trace), ..self }
    }

    /// How it and its routes are called in what is told of requests.
    pub(crate) fn traced(&self) -> &Rc<Traced> {
        self.traced.get_or_init(|| Traced::of(&self.config))
    }

    /// Reads the path of a request.
    ///
    /// One with a `%2F` names no file. What passes the target on gives it to an application as it was sent, which may take the
    /// `%2F` for a slash or for a part of a name. The route has to be the same either way: then whatever holds for it has been
    /// asked, however the application reads it.
    #[inline]
    pub(crate) fn read_path<'a>(&self, raw_path: &'a str, scratch: &'a mut Vec<u8>) -> ReadPath<'a> {
        let (encoded_slash, read) = match has_encoded_slash(raw_path) {
            true => (EncodedSlash::InPath, self.ambiguous_path(raw_path, scratch)),
            false => (EncodedSlash::Nowhere, normalise(raw_path, scratch)),
        };
        match read {
            Ok(path) => ReadPath { path, encoded_slash, fault: None },
            Err(fault) => ReadPath { path: raw_path.as_bytes(), encoded_slash, fault: Some(fault) },
        }
    }

    #[cold]
    fn ambiguous_path<'a>(&self, raw_path: &str, scratch: &'a mut Vec<u8>) -> Result<&'a [u8], PathError> {
        let (as_separator, as_data) = both_readings(raw_path)?;
        *scratch = as_separator;
        // Whatever the conditions say: both readings meet the same routes on the way to one that is for every request.
        for route in &self.config.routes {
            let fits = route.pattern.matches(scratch);
            if fits != route.pattern.matches(&as_data)
                || fits && tells_apart(&route.conditions, scratch, &as_data)
            {
                break;
            }
            if fits && route.conditions.is_empty() {
                return Ok(scratch);
            }
        }
        Err(PathError::EncodedSlash)
    }

    /// The route of what the site answers by itself, which has the requests too whose path leads to no other: the last one.
    pub(crate) fn own_route(&self) -> usize {
        self.routes.len().saturating_sub(1)
    }

    /// Why no handler of this site may have a request with such a path.
    #[cold]
    pub(crate) fn refuses_path(&self, fault: PathError) -> Option<Box<Refused>> {
        // What stands in for a site with a mistake says so whatever is asked for.
        let is_served = self.config.left_out.is_none();
        let (status, why) = (fault.status(), fault.to_string().into());
        is_served.then(|| Box::new(Refused { status, why, is_unrouted: true }))
    }

    /// Whether the limits of a request depend on its route.
    #[inline]
    pub(crate) fn has_limits(&self) -> bool {
        !self.limits.is_empty()
    }

    /// Path and route of a request, which say its limits.
    #[cold]
    pub(crate) fn place<'a>(
        &self,
        head: Exchange<'_>,
        target: &'a str,
        scratch: &'a mut Vec<u8>,
    ) -> Place<'a> {
        let parsed = Target::parse(head.method, target).ok();
        let Some(raw_path) = parsed.as_ref().and_then(Target::path) else {
            // Answered before anybody asks for a path.
            return Place { read: ReadPath::plain(target), route: None };
        };
        let read = self.read_path(raw_path, scratch);
        if read.fault.is_some() {
            return Place { read, route: Some(self.own_route()) };
        }
        let query = parsed.as_ref().and_then(Target::query);
        let choice = self.choice(&Exchange { path: read.path, query, ..head }, read.path);
        // What has none is refused once it is asked.
        let route = choice.filter(|choice| !(choice.is_source && self.is_files(choice.index)));
        Place { read, route: route.map(|choice| choice.index) }
    }

    /// The limits of a route, where they are other ones than the server's. What has no path has those of the site.
    pub(crate) fn limits_at(&self, route: Option<usize>) -> Option<Rc<RequestLimits>> {
        self.limits.get(route.unwrap_or(self.limits.len().checked_sub(1)?))?.clone()
    }

    /// Its settings.
    pub(crate) fn config(&self) -> &settings::Site {
        &self.config
    }

    /// See [`Account`](crate::admission::Account).
    #[inline]
    pub(crate) fn account(&self) -> u64 {
        self.account
    }

    /// Who asks, as this site sees it.
    #[inline]
    pub(crate) fn remote(&self, peer: &Peer, fields: &Fields<'_>) -> Remote {
        if self.is_asked_directly { Remote::direct(*peer) } else { self.remote_behind(peer, fields) }
    }

    #[inline(never)]
    fn remote_behind(&self, peer: &Peer, fields: &Fields<'_>) -> Remote {
        let mut remote = Remote::behind(&self.config.trusted_proxies, *peer, fields);
        if self.is_partly_for_this_machine {
            remote.look_for_proxy(fields);
        }
        remote
    }

    /// The same as a route of this site sees it.
    pub(crate) fn remote_at(&self, index: usize, remote: Remote, fields: &Fields<'_>) -> Remote {
        if !self.trusts_by_route {
            return remote;
        }
        let own = self.route(index).trusted_proxies.as_ref();
        remote.seen_behind(own.unwrap_or(&self.config.trusted_proxies), fields)
    }

    /// Whether a route has gates beside its access rules that let each client in by itself.
    pub(crate) fn tells_clients_apart(&self, index: usize) -> bool {
        self.routes[index].gates.iter().any(|gate| gate.tells_clients_apart())
    }

    /// The fields of requests that the answer of a route to one for `path` depends on, by the settings: who asks with
    /// others may get another answer.
    #[inline]
    pub(crate) fn varying(&self, index: usize, path: &[u8]) -> Option<Vec<Rc<str>>> {
        if !self.depending.may_vary(index) {
            return None;
        }
        self.depending.fields(index, |passed| self.config.routes[passed].pattern.matches(path))
    }

    /// Whether the answer of a route to a request for `path` is not for everybody.
    pub(crate) fn is_for_some(&self, index: usize, path: &[u8]) -> bool {
        self.depending.is_for_some(index, |passed| self.config.routes[passed].pattern.matches(path))
    }

    /// Whether any route has a program answer.
    pub(crate) fn has_programs(&self) -> bool {
        self.has_programs
    }

    /// A route's settings. The index is one of [`Site::route_for`].
    pub(crate) fn route(&self, index: usize) -> &settings::Route {
        &self.config.routes[index]
    }

    /// The route that has this name and no path.
    pub(crate) fn named(&self, name: &str) -> Option<usize> {
        self.named.get(name).copied()
    }

    /// The first route whose pattern fits and whose conditions hold, or the answer to a request that has none.
    #[inline]
    pub(crate) fn route_for(&self, exchange: &Exchange<'_>) -> Result<usize, Response> {
        let chosen = match &self.facts {
            None => self.first_match(exchange.path),
            Some(_) => return self.conditional_route(exchange),
        };
        chosen.ok_or_else(|| no_route(exchange))
    }

    #[inline]
    fn first_match(&self, path: &[u8]) -> Option<usize> {
        match &self.index {
            None => self.config.routes.iter().position(|route| route.pattern.matches(path)),
            Some(index) => self.first_of(index, path),
        }
    }

    #[inline(never)]
    fn first_of(&self, index: &RouteIndex, path: &[u8]) -> Option<usize> {
        index.candidates(path).find(|index| self.config.routes[*index].pattern.matches(path))
    }

    #[inline(never)]
    fn conditional_route(&self, exchange: &Exchange<'_>) -> Result<usize, Response> {
        let choice = self.choice(exchange, exchange.path).ok_or_else(|| no_route(exchange))?;
        match choice.is_source && self.is_files(choice.index) {
            false => Ok(choice.index),
            true => Err(source(exchange)),
        }
    }

    /// Whether a route sends files as they are.
    pub(crate) fn is_files(&self, index: usize) -> bool {
        matches!(self.config.routes[index].action, Action::Files(_))
    }

    /// Whether a route sends the file that lies on a path where the route `here` finds it.
    pub(crate) fn sends_same_file(&self, index: usize, here: usize) -> bool {
        let files = |index: usize| match &self.config.routes[index].action {
            Action::Files(files) => Some(files),
            _ => None,
        };
        let (Some(there), Some(here)) = (files(index), files(here)) else { return false };
        let begins_with_path = match there.try_list.first() {
            None => true,
            Some(first) => matches!(first, Try::Path(path) if path.trim_start_matches('/') == "{path}"),
        };
        begins_with_path
            && there.root == here.root
            && there.strip_prefix == here.strip_prefix
            && there.symlinks == here.symlinks
            && there.serves_hidden == here.serves_hidden
    }

    /// Whether a route is what the site answers by itself, where none that is written fits.
    pub(crate) fn is_its_own(&self, index: usize) -> bool {
        index == self.own_route()
    }

    /// The first route whose pattern fits a path and whose conditions hold for a request.
    pub(crate) fn choice(&self, exchange: &Exchange<'_>, path: &[u8]) -> Option<Choice> {
        let Some(facts) = &self.facts else {
            let index = self.first_match(path)?;
            return Some(Choice { index, is_conditional: false, is_source: false });
        };
        self.as_asked(exchange, path, |exchange| {
            let mut passed = Choice { index: 0, is_conditional: false, is_source: false };
            let indexed = self.index.iter().flat_map(|index| index.candidates(path));
            let all = 0..if self.index.is_none() { self.config.routes.len() } else { 0 };
            for index in indexed.chain(all) {
                let route = &self.config.routes[index];
                if !route.pattern.matches(path) {
                    continue;
                }
                let is_conditional = passed.is_conditional || !route.conditions.is_empty();
                if facts.first_unmet(&route.conditions, &self.access_view, exchange).is_none() {
                    return Some(Choice { index, is_conditional, ..passed });
                }
                let is_source = passed.is_source || route.action.owns_source(path);
                passed = Choice { index, is_conditional, is_source };
            }
            None
        })
    }

    /// The first clause that keeps a request from a route whose pattern fits, for `explain`.
    pub(crate) fn first_unmet<'s>(&'s self, index: usize, exchange: &Exchange<'_>) -> Option<&'s Clause> {
        let conditions = &self.config.routes[index].conditions;
        let facts = self.facts.as_ref()?;
        self.as_asked(exchange, exchange.path, |exchange| {
            facts.first_unmet(conditions, &self.access_view, exchange)
        })
    }

    /// Whether some route of this path is served however busy the server is, whatever the conditions say.
    pub(crate) fn may_always_answer(&self, path: &[u8]) -> bool {
        if !self.has_status {
            return false; // as nearly all: nothing is asked of any route
        }
        let decides = |index: &usize| {
            let route = &self.config.routes[*index];
            route.pattern.matches(path) && (route.action.always_answers() || route.conditions.is_empty())
        };
        let first = match &self.index {
            Some(index) => index.candidates(path).find(decides),
            None => (0..self.config.routes.len()).find(decides),
        };
        first.is_some_and(|index| self.config.routes[index].action.always_answers())
    }

    /// The request that conditions go by, however it has come to a path: the client's, as the site sees it.
    fn as_asked<R>(&self, exchange: &Exchange<'_>, path: &[u8], f: impl FnOnce(&Exchange<'_>) -> R) -> R {
        let state = &exchange.state;
        let is_its_own = std::ptr::eq(path, exchange.path) && state.matched.is_none();
        if is_its_own && state.asked.is_none() && !self.trusts_by_route {
            return f(exchange);
        }
        let asked = state.asked.as_ref();
        let kept = asked.map(ClientHead::fields).unwrap_or_default();
        let (authority, fields) = match asked {
            Some(asked) => (asked.authority(), Fields::new(&kept)),
            None => (exchange.authority, exchange.fields),
        };
        let (mut remote, mut scheme) = (state.remote, exchange.scheme);
        if self.trusts_by_route {
            // The route that has it so far may trust others than the site does.
            remote = remote.seen_behind(&self.config.trusted_proxies, &fields);
            scheme = remote.scheme(state.is_tls());
        }
        let state = RequestState { site: state.site.clone(), ..RequestState::of(remote) };
        f(&Exchange { path, scheme, authority, fields, state, ..*exchange })
    }
}

/// Whether a clause asks for clients of this machine.
fn is_for_this_machine(clause: &Clause) -> bool {
    clause.condition.parts().into_iter().any(|part| match part {
        Condition::Client(networks) => networks.contains(&Network::Local),
        _ => false,
    })
}

#[cold]
fn no_route(exchange: &Exchange<'_>) -> Response {
    answer::refused(exchange, Status::NOT_FOUND, "no route fits")
}

/// The answer to who would get the source of a program, since the conditions of its route do not hold.
#[cold]
pub(crate) fn source(exchange: &Exchange<'_>) -> Response {
    let why =
        "a program owns the file, the conditions of its route do not hold, and its source is sent to nobody";
    answer::refused(exchange, Status::NOT_FOUND, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::Pass;
    use crate::handler::Foreseen;
    use crate::reply::Reply;
    use proptest::prelude::*;

    struct Nothing;

    impl Handler for Nothing {
        fn handle(&self, exchange: &mut Exchange<'_>, _: Pass) -> Reply {
            Reply::Ready(no_route(exchange))
        }

        fn explain(&self, _: &Exchange<'_>, _: &mut dyn FnMut(String)) -> Foreseen {
            unreachable!("nobody asks")
        }
    }

    fn site(routes: &str) -> Site {
        let text = format!("listen \"127.0.0.1:1\"\nsite {{ {routes} respond 200 }}\n");
        let environment = tidegate_config::ProcessEnvironment;
        let loaded = tidegate_config::load_str("a", &text, std::path::Path::new("/"), &environment);
        let settings = loaded.settings.unwrap_or_else(|| panic!("{text}"));
        let config = settings.sites[0].clone();
        let route = |route| Route::new(Rc::new(Nothing), Vec::new(), Decoration::of(route));
        let routes = config.routes.iter().map(route).collect();
        Site::new(config, routes, None)
    }

    proptest! {
        /// The index and a look at each route agree on what the status page is.
        #[test]
        fn which_paths_are_always_answered(
            routes in prop::collection::vec("(/a|/b|/\\*|/a/\\*|\\*b) (when method \"GET\";|) (respond 200|status|respond 404)", 0..30),
            paths in prop::collection::vec("/[ab]?(/[ab]{0,2})?", 1..9)
        ) {
            let text = routes.iter().map(|route| {
                let (pattern, rest) = route.split_once(' ').unwrap_or_default();
                format!("route \"{pattern}\" {{ {rest} }}\n")
            });
            let site = site(&text.collect::<String>());
            for path in paths {
                let path = path.as_bytes();
                let mut fitting = site.config.routes.iter().filter(|route| route.pattern.matches(path));
                let first = fitting.find(|route| route.action.always_answers() || route.conditions.is_empty());
                let slow = first.is_some_and(|route| route.action.always_answers());
                prop_assert_eq!(site.may_always_answer(path), slow, "{:?} {:?}", routes, path);
            }
        }
    }

    /// A request that waits asks for this: without a status page in its site it looks at no route.
    #[test]
    fn a_site_without_a_status_page_is_not_looked_through() {
        assert!(!site("route \"/a\" { respond 200 };").has_status);
        let many: String = (0..100).map(|n| format!("route \"/{n}/*\" {{ respond 200 }};")).collect();
        let site = site(&format!("{many} route \"/status\" {{ status }};"));
        assert!(site.has_status && site.may_always_answer(b"/status") && !site.may_always_answer(b"/7/x"));
        let index = site.index.as_ref().expect("there are many routes");
        assert!(index.candidates(b"/status").count() < 3);
    }
}
