//! Static files: `root`, `alias`, `index`, `try`, listings, conditions, ranges, codings, behind the cache.
//!
//! The hot path is a look-up in [`FileCache`] and a finished message. What is not cached is looked up on
//! the worker as long as that cannot wait for a disk, and on the blocking pool otherwise.

mod cache;
mod entry;
mod form;
mod locate;
mod serve;
mod watch;

pub use cache::FileCache;
pub use locate::open_root;

use crate::compress;
use crate::index::{self, Text};
use crate::redirect;
use cache::{Cached, Instance};
use entry::{Contents, FileEntry, Maker};
use locate::{Found, FoundFile, FoundText, Located, Lookup, Why};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use tidegate_config::settings;
use tidegate_core::decoration::Decoration;
use tidegate_core::explain::Foreseen;
use tidegate_core::{Exchange, Handler, MayStore, Need, Pass, Reply, Response, answer, log};
use tidegate_http::path::encode_path;
use tidegate_http::{Method, Status};
use tidegate_io::blocking::{self, Overloaded, Pending, QueueKey};
use tidegate_io::clock::monotonic_ns;
use tidegate_io::file::{Opened, Patience, Root};
use tidegate_io::notify::Notifier;
use tidegate_io::{Runtime, descriptors, timer};
use tidegate_stats::Worker as Stats;

/// What the file handlers of one worker share.
pub struct Shared {
    cache: RefCell<FileCache>,
    next_instance: Cell<Instance>,
}

impl Shared {
    /// A cache, and a task that keeps it true.
    pub fn new(limits: settings::FileCache, stats: Arc<Stats>, runtime: &Runtime) -> Rc<Shared> {
        let notifier = match Notifier::new() {
            Ok(notifier) => Some(Rc::new(notifier)),
            Err(error) => {
                log::warn(format_args!(
                    "file changes cannot be watched ({error}; see fs.inotify.max_user_instances); changed \
                     files are noticed by age only"
                ));
                None
            }
        };
        let watcher = notifier.clone().map(watch::Watcher::new);
        let cache = RefCell::new(FileCache::new(limits, stats, watcher));
        let shared = Rc::new(Shared { cache, next_instance: Cell::new(0) });
        let unused = Rc::downgrade(&shared);
        runtime.spawn(async move {
            loop {
                timer::after(cache::UNUSED).await;
                let Some(shared) = unused.upgrade() else { return };
                shared.cache.borrow_mut().drop_unused();
            }
        });
        if let Some(notifier) = notifier {
            let shared = shared.clone();
            runtime.spawn(async move {
                let mut changes = Vec::new();
                loop {
                    let result = std::future::poll_fn(|cx| notifier.poll_changes(cx, &mut changes)).await;
                    shared.cache.borrow_mut().invalidate(&changes);
                    changes.clear();
                    if let Err(error) = result {
                        return log::warn(format_args!("watching file changes has ended: {error}"));
                    }
                }
            });
        }
        shared
    }

    /// Takes up the cache settings of a new revision.
    pub fn adopt(&self, limits: settings::FileCache) {
        self.cache.borrow_mut().adopt(limits);
    }

    /// Gives up descriptors that are kept in case somebody asks. Returns how many.
    pub fn spare_descriptors(&self) -> usize {
        self.cache.borrow_mut().spare_descriptors()
    }

    /// Carries out what the operator asks of the cache.
    pub fn command(&self, command: &str) -> String {
        self.cache.borrow_mut().command(command, monotonic_ns())
    }
}

/// Serves the files of one route.
#[derive(Clone)]
pub struct Files {
    inner: Rc<Inner>,
}

struct Inner {
    shared: Rc<Shared>,
    instance: Instance,
    lookup: Arc<Lookup>,
    maker: Maker,
    ranges: u16,
    stream_filter: Option<compress::CompressFilter>,
    /// The fields of the route depend on the request.
    is_dressed_later: bool,
}

impl Files {
    /// A handler for a route with static files.
    pub fn new(
        shared: &Rc<Shared>,
        root: Arc<Root>,
        files: &settings::Files,
        route: &settings::Route,
        server: &settings::Settings,
    ) -> Files {
        let instance = shared.next_instance.get();
        shared.next_instance.set(instance.wrapping_add(1));
        let decoration = Decoration::of(route);
        let maker = Maker {
            server: server.server_field.clone(),
            decoration: decoration.clone(),
            compress: route.compress.clone().filter(|_| !decoration.forbids_transforming()),
            memory_file_size: u64::from(server.file_cache.memory_file_size),
        };
        let inner = Inner {
            shared: shared.clone(),
            instance,
            lookup: Arc::new(Lookup { root, settings: files.clone(), pattern: route.pattern.clone() }),
            ranges: route.limits.as_ref().unwrap_or(&server.limits.request).ranges,
            is_dressed_later: decoration.has_placeholders(),
            stream_filter: maker
                .compress
                .as_ref()
                .map(|settings| compress::CompressFilter::new(settings, shared.cache.borrow().stats())),
            maker,
        };
        Files { inner: Rc::new(inner) }
    }
}

impl Handler for Files {
    fn handle(&self, exchange: &mut Exchange<'_>, _: Pass) -> Reply {
        match exchange.method {
            Method::Get | Method::Head => self.inner.serve(exchange),
            _ if exchange.has_programs() || self.inner.lookup.hands_on() => {
                self.inner.serve_program(exchange)
            }
            Method::Options => {
                Reply::Ready(Response::empty(Status::NO_CONTENT).with("Allow", "GET, HEAD, OPTIONS"))
            }
            _ => Reply::Ready(answer::error(Status::METHOD_NOT_ALLOWED).with("Allow", "GET, HEAD, OPTIONS")),
        }
    }

    fn explain(&self, exchange: &Exchange<'_>, say: &mut dyn FnMut(String)) -> Foreseen {
        let lookup = &self.inner.lookup;
        let root = lookup.root.path().display();
        if exchange.has_ambiguous_path() {
            say("a path with an encoded slash names no file".into());
        }
        let hands_on = exchange.has_programs() || lookup.hands_on();
        if !matches!(exchange.method, Method::Get | Method::Head) && !hands_on {
            say(format!("files below {root}: answers GET, HEAD and OPTIONS only"));
            return Foreseen::Handler;
        }
        let mut located = match lookup.locate(name(exchange), Patience::Wait) {
            Ok(located) => located,
            Err(error) => {
                say(format!("files below {root}: {error}"));
                return Foreseen::Handler;
            }
        };
        for path in &located.depends {
            say(format!("looked at {root}/{}", String::from_utf8_lossy(path)));
        }
        lookup.leave_out_programs(&mut located.found, exchange).into_iter().for_each(&mut *say);
        match &located.found {
            Found::File(file) => {
                let relative = String::from_utf8_lossy(&file.relative);
                say(format!("file {root}/{relative}, {} bytes", file.file.meta.len));
                if lookup.is_of_program(&located.found, exchange) {
                    say("a symbolic link to what a program answers: never sent as a file".into());
                }
                for sibling in &file.siblings {
                    say(format!("precompressed sibling for {}", compress::token(sibling.coding)));
                }
            }
            Found::Folder { relative, .. } => {
                say(format!("listing of {root}/{}", String::from_utf8_lossy(relative)));
            }
            Found::NeedsSlash => {
                let status = if matches!(exchange.method, Method::Get | Method::Head) { 301 } else { 308 };
                say(format!("a folder: redirected with {status} to the same path with a slash"));
            }
            Found::Route(name) => say(format!("no file: handed on to route {name}")),
            Found::Status(_) => {} // the refusal says why
        }
        Foreseen::Handler
    }
}

/// The path by which a file is looked up and kept. It is empty where it names none, since no file name can hold a slash: what is
/// found then, by entries of `try` that stand for themselves, is the same for all such paths.
#[inline]
fn name<'e>(exchange: &Exchange<'e>) -> &'e [u8] {
    if exchange.has_ambiguous_path() { b"" } else { exchange.path }
}

impl Lookup {
    /// Whether symbolic links have led to a file whose own path a program answers: its source is not to be had under
    /// another name.
    fn is_of_program(&self, found: &Found, exchange: &Exchange<'_>) -> bool {
        let Found::File(FoundFile { real: Some(real), .. }) = found else { return false };
        exchange.is_of_program(&self.path_of(real))
    }

    /// The same of precompressed siblings and of what is shown on a listing, which are as if they were not there: for every
    /// look-up whose outcome is served, or compared with what was. A sentence on each of those.
    fn leave_out_programs(&self, found: &mut Found, exchange: &Exchange<'_>) -> Vec<String> {
        let is_program = |real: &Vec<u8>| exchange.is_of_program(&self.path_of(real));
        let leads_to_program = |real: &Option<Vec<u8>>| real.as_ref().is_some_and(is_program);
        match found {
            Found::File(file) => {
                let left_out = file.siblings.extract_if(.., |sibling| leads_to_program(&sibling.real));
                let said = left_out.map(|sibling| {
                    let token = compress::token(sibling.coding);
                    format!("the sibling for {token} is a symbolic link to what a program answers: left out")
                });
                said.collect()
            }
            Found::Folder { texts, .. } => {
                let is_left_out =
                    |found: &mut FoundText| is_program(&found.text.relative) || leads_to_program(&found.real);
                let said = texts.extract_if(.., is_left_out).map(|found| {
                    let name = String::from_utf8_lossy(&found.text.relative).into_owned();
                    format!("{name} is what a program answers, or a symbolic link to it: not shown")
                });
                said.collect()
            }
            _ => Vec::new(),
        }
    }
}

impl Inner {
    fn serve(self: &Rc<Self>, exchange: &mut Exchange<'_>) -> Reply {
        let mut old = None;
        if self.lookup.settings.uses_cache {
            let root = &self.lookup.root;
            let is_followed = root.follow(exchange.started, Patience::Cached).is_ok();
            let path = name(exchange);
            let cached = self.shared.cache.borrow().look_up(self.instance, path, exchange.started);
            match cached {
                Cached::Fresh(entry) if is_followed && entry.generation == root.generation() => {
                    return self.answer(&entry, exchange);
                }
                Cached::Fresh(entry) | Cached::Old(entry) => old = Some(entry),
                Cached::Nothing => {}
            }
        }
        let mut located = self.lookup.locate(name(exchange), Patience::Cached);
        if located.as_ref().is_err_and(descriptors::is_exhaustion) {
            descriptors::are_lacking();
            if self.shared.spare_descriptors() > 0 {
                located = self.lookup.locate(name(exchange), Patience::Cached);
            }
        }
        match located {
            Ok(located) => self.proceed(located, old, exchange, false),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.locate_later(old, exchange),
            Err(error) => Reply::Ready(self.failed(name(exchange), &error)),
        }
    }

    /// The path of the site that leads to a file or a folder which `index` or `try` have found; `None` where it is that of the
    /// request.
    fn other_path(&self, found: &Found, path: &[u8]) -> Option<Vec<u8>> {
        let real = match found {
            Found::File(file) => self.lookup.path_of(&file.relative),
            Found::Folder { relative, .. } => self.lookup.path_of(&index::beneath(relative, b"")),
            _ => return None,
        };
        (real != path).then_some(real)
    }

    /// A request with a method that files do not answer, but a script that stands for the path may.
    fn serve_program(self: &Rc<Self>, exchange: &mut Exchange<'_>) -> Reply {
        match self.lookup.locate(name(exchange), Patience::Cached) {
            Ok(located) => self.program(&located.found, exchange),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let inner = self.clone();
                exchange.prepare_after(
                    Need::Decision,
                    self.locate_in_pool(name(exchange)),
                    move |located, exchange| match located {
                        Some(Ok(located)) => inner.program(&located.found, exchange),
                        Some(Err(error)) => Reply::Ready(inner.failed(name(exchange), &error)),
                        None => Reply::Ready(overloaded()),
                    },
                )
            }
            Err(error) => Reply::Ready(self.failed(name(exchange), &error)),
        }
    }

    fn program(&self, found: &Found, exchange: &mut Exchange<'_>) -> Reply {
        if let Found::Route(name) = found {
            return exchange.hand_on_to(name);
        }
        if let Some(path) = self.other_path(found, name(exchange)) {
            return exchange.hand_on(&path, |_, exchange| Reply::Ready(not_allowed(exchange)));
        }
        if matches!(found, Found::NeedsSlash) && exchange.method != Method::Options {
            return Reply::Ready(with_slash(exchange, Status(308))); // keeps method and content
        }
        Reply::Ready(not_allowed(exchange))
    }

    /// A look-up that waits for the disk; `None` where too many do.
    fn locate_in_pool(&self, path: &[u8]) -> impl Future<Output = Option<io::Result<Located>>> + use<> {
        let (lookup, path) = (self.lookup.clone(), path.to_vec());
        done(blocking::run_in(self.lookup.root.queue_key(), move || lookup.locate(&path, Patience::Wait)))
    }

    /// An answer for which the disk is waited for.
    fn locate_later(self: &Rc<Self>, old: Option<Rc<FileEntry>>, exchange: &mut Exchange<'_>) -> Reply {
        let inner = self.clone();
        exchange.answer_after(self.locate_in_pool(name(exchange)), move |located, exchange| match located {
            Some(Ok(located)) => inner.proceed(located, old, exchange, true),
            Some(Err(error)) => Reply::Ready(inner.failed(name(exchange), &error)),
            None => Reply::Ready(overloaded()),
        })
    }

    /// `has_waited`: other things may have happened on this worker since the request came.
    fn proceed(
        self: &Rc<Self>,
        located: Located,
        old: Option<Rc<FileEntry>>,
        exchange: &mut Exchange<'_>,
        has_waited: bool,
    ) -> Reply {
        let Located { mut found, depends, why, generation } = located;
        self.lookup.leave_out_programs(&mut found, exchange);
        if let (Some(old), Found::File(file)) = (&old, &found)
            && old.metas == entry::metas_of(file)
            && old.generation == generation
        {
            old.checked.set(exchange.started);
            if has_waited {
                // What had to be waited for to be opened may be waited for in closing, too.
                let _ = blocking::run_in(self.lookup.root.queue_key(), move || drop(found));
            }
            return self.answer(old, exchange);
        }
        if old.is_some() {
            self.shared.cache.borrow_mut().remove(self.instance, name(exchange));
        }
        if let Some(path) = self.other_path(&found, name(exchange)) {
            let inner = self.clone();
            return exchange.hand_on(&path, move |MayStore(may_store), exchange| {
                inner.send(Located { found, depends, why, generation }, may_store, has_waited, exchange)
            });
        }
        self.send(Located { found, depends, why, generation }, true, has_waited, exchange)
    }

    /// Answers with what was found, which the client may have.
    fn send(
        self: &Rc<Self>,
        located: Located,
        may_store: bool,
        has_waited: bool,
        exchange: &mut Exchange<'_>,
    ) -> Reply {
        let Located { found, depends, why, generation } = located;
        if self.lookup.is_of_program(&found, exchange) {
            return Reply::Ready(self.refused(exchange, Status::NOT_FOUND, &Why::Program, &depends));
        }
        match found {
            Found::File(file) => {
                // What nobody tells the changes of is looked at anew for every request.
                let may_store = may_store && self.lookup.settings.uses_cache && !file.is_outside;
                let relative = file.relative.clone();
                let reading = Reading { relative, generation, depends, has_waited, may_store };
                self.read(file, reading, exchange)
            }
            Found::Folder { relative, folder, texts } => {
                let request = index::Request::of(exchange, self.lookup.settings.serves_hidden);
                let texts = if request.shows_texts() { texts } else { Vec::new() };
                let candidates = texts.into_iter().map(|found| found.text).collect();
                let listed = Listed { relative, folder, request, texts: Vec::new() };
                self.list(listed, candidates, exchange)
            }
            Found::NeedsSlash => Reply::Ready(with_slash(exchange, Status::MOVED_PERMANENTLY)),
            Found::Route(name) => exchange.hand_on_to(&name),
            Found::Status(status) => Reply::Ready(self.refused(exchange, status, &why, &depends)),
        }
    }

    /// Lists a folder, with the first of the candidates for each place that the client would be sent by its own path.
    fn list(
        self: &Rc<Self>,
        mut listed: Listed,
        mut candidates: VecDeque<Text>,
        exchange: &mut Exchange<'_>,
    ) -> Reply {
        let is_wanted = |text: &Text| listed.texts.iter().all(|shown| shown.place != text.place);
        candidates.retain(is_wanted);
        let Some(text) = candidates.pop_front() else {
            let Listed { relative, folder, request, texts } = listed;
            let page_size = self.lookup.settings.listing.as_ref().map_or(0, |listing| listing.page);
            return index::list(self.lookup.root.clone(), relative, folder.fd, texts, page_size, request);
        };
        let (inner, path) = (self.clone(), self.lookup.path_of(&text.relative));
        exchange.may_have_file(&path.clone(), move |may_have, exchange| {
            let what = if may_have { "shown on the listing" } else { "not shown on the listing" };
            answer::found(|| format!("{}: {what}", path.escape_ascii()));
            listed.texts.extend(may_have.then_some(text));
            inner.list(listed, candidates, exchange)
        })
    }

    fn read(self: &Rc<Self>, file: FoundFile, reading: Reading, exchange: &mut Exchange<'_>) -> Reply {
        let limit = self.maker.memory_file_size;
        match Contents::read(file, limit, Patience::Cached) {
            Ok(contents) => self.store(contents, &reading, exchange),
            Err((file, error)) if error.kind() == io::ErrorKind::WouldBlock => {
                let inner = self.clone();
                let queue_key = QueueKey::of_file(file.file.meta.identity);
                let job = blocking::run_in(queue_key, move || Contents::read(*file, limit, Patience::Wait));
                let reading = Reading { has_waited: true, ..reading };
                exchange.answer_after(done(job), move |contents, exchange| match contents {
                    Some(Ok(contents)) => inner.store(contents, &reading, exchange),
                    Some(Err((_, error))) => Reply::Ready(inner.failed(name(exchange), &error)),
                    None => Reply::Ready(overloaded()),
                })
            }
            Err((_, error)) => Reply::Ready(self.failed(name(exchange), &error)),
        }
    }

    fn store(self: &Rc<Self>, contents: Contents, reading: &Reading, exchange: &mut Exchange<'_>) -> Reply {
        let Reading { relative, generation, depends, has_waited, may_store } = reading;
        let place = (&**relative, *generation);
        let entry = Rc::new(self.maker.entry(&self.lookup, place, contents, exchange.started));
        if *may_store {
            let (cache, root) = (&self.shared.cache, &self.lookup.root);
            let is_new_watch =
                cache.borrow_mut().insert(self.instance, name(exchange), &entry, root, depends);
            // What changed between reading and watching nobody has told, or nobody was there yet to be told:
            // look once more.
            if (is_new_watch || *has_waited) && !self.is_still(&entry, exchange) {
                cache.borrow_mut().remove(self.instance, name(exchange));
            }
        }
        self.answer(&entry, exchange)
    }

    fn is_still(&self, entry: &FileEntry, exchange: &Exchange<'_>) -> bool {
        match self.lookup.locate(name(exchange), Patience::Cached) {
            Ok(Located { mut found, .. }) => {
                self.lookup.leave_out_programs(&mut found, exchange);
                matches!(&found, Found::File(file) if entry::metas_of(file) == entry.metas)
            }
            // Where looking has to wait, the age of the entry decides: without `openat2` it always has to.
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        }
    }

    /// The answer where nothing is found that may be sent; the reason goes to the error log.
    #[cold]
    fn refused(
        &self,
        exchange: &Exchange<'_>,
        status: Status,
        why: &Why,
        looked_at: &[Box<[u8]>],
    ) -> Response {
        if !matches!(status, Status::NOT_FOUND | Status::FORBIDDEN) {
            return answer::error(status);
        }
        let root = self.lookup.root.path().display();
        // What was looked at last decided.
        let last = looked_at.last().map(|path| String::from_utf8_lossy(path)).unwrap_or_default();
        match why {
            Why::Nameless => {
                answer::refused(exchange, status, "the path holds an encoded slash, which no file name does")
            }
            Why::Missing => answer::refused(exchange, status, format_args!("{root}/{last} does not exist")),
            Why::Try => {
                answer::refused(exchange, status, format_args!("nothing that `try` names is below {root}"))
            }
            Why::Hidden => {
                let response =
                    answer::refused(exchange, status, "a name in it begins with a dot, and `hidden` is off");
                answer::remedy(|| "to serve it, write `hidden` in a route for its path".to_owned());
                response
            }
            Why::Outside => answer::refused(exchange, status, "the path lies outside of the alias"),
            Why::LeadsOut => {
                let why = format_args!("the symbolic link {root}/{last} leads out of the root");
                let response = answer::refused(exchange, status, why);
                answer::remedy(|| "to follow it, write `symlinks any` in the site or the route".to_owned());
                response
            }
            Why::NoPermission => answer::refused(
                exchange,
                status,
                format_args!("{root}/{last} may not be read by the server's user"),
            ),
            Why::Program => answer::refused(
                exchange,
                status,
                format_args!(
                    "{root}/{last} is what a symbolic link leads to, and a program's, never sent as a file"
                ),
            ),
            Why::NoFile => {
                answer::refused(exchange, status, format_args!("{root}/{last} is no file that is served"))
            }
            Why::NoIndex => answer::refused(
                exchange,
                status,
                format_args!(
                    "the folder {root}/{} has no index file, and `listing` is off",
                    folder_of(&last)
                ),
            ),
        }
    }

    fn failed(&self, path: &[u8], error: &io::Error) -> Response {
        let root = self.lookup.root.path().display();
        if descriptors::is_exhaustion(error) {
            descriptors::are_lacking(); // it passes
            log::error(format_args!("503: {root}: {}", descriptors::advice()));
            return overloaded();
        }
        log::error(format_args!("{root}: cannot read {}: {error}", String::from_utf8_lossy(path)));
        answer::error(Status::INTERNAL_SERVER_ERROR)
    }
}

/// A folder that is about to be listed.
struct Listed {
    /// Below the root.
    relative: Vec<u8>,
    folder: Opened,
    request: index::Request,
    /// What is shown above and below the entries, as far as the client may have it.
    texts: Vec<Text>,
}

/// A file that is being read.
struct Reading {
    /// Below the root.
    relative: Vec<u8>,
    /// Of the root: [`Located::generation`].
    generation: u32,
    /// The names that it follows from.
    depends: Vec<Box<[u8]>>,
    /// Other things may have happened on this worker since the request came.
    has_waited: bool,
    /// The cache may hold it under the path of the request.
    may_store: bool,
}

/// The folder that an index file was looked for in.
fn folder_of(index: &str) -> &str {
    index.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// What a job of the blocking pool gives; `None` where that has too many waiting.
async fn done<T>(job: Result<Pending<T>, Overloaded>) -> Option<T> {
    match job {
        Ok(job) => Some(job.await),
        Err(Overloaded) => None,
    }
}

/// The answer to a method that files have no answer to.
fn not_allowed(exchange: &Exchange<'_>) -> Response {
    match exchange.method {
        Method::Options => Response::empty(Status::NO_CONTENT),
        _ => answer::error(Status::METHOD_NOT_ALLOWED),
    }
    .with("Allow", "GET, HEAD, OPTIONS")
}

/// A folder without its slash: the same address with one, query kept (relative links need it).
fn with_slash(exchange: &Exchange<'_>, status: Status) -> Response {
    // What a folder is called by `rewrite` is nothing that the client has asked for.
    let asked = exchange.is_rewritten().then(|| exchange.path_asked_for());
    let asked = asked.filter(|asked| !asked.ends_with('/'));
    let mut to = asked.unwrap_or_else(|| encode_path(exchange.path));
    to.push('/');
    if let Some(query) = exchange.query {
        to.push('?');
        to.push_str(query);
    }
    redirect::moved(status, to)
}

fn overloaded() -> Response {
    answer::busy(None)
}
