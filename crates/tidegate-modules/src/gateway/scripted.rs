//! `fastcgi`, `scgi` and `cgi`: requests answered by an application with scripts.

use super::about::About;
use super::call::{Call, Dialect};
use super::environment::{self, ServerSide};
use super::fields::Present;
use super::link::{Link, Shared, encoded_slash};
use super::script::{NoScript, Rule, Script, Scripts};
use super::script_fault::{ScriptFault, fault_of};
use super::spill::Spilled;
use super::upload::{Framing, REQUEST, Upload};
use super::upstream::RoutingState;
use crate::files::open_root;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use tidegate_config::settings::gateway::{self, Application};
use tidegate_config::settings::{self, Route};
use tidegate_core::body::RequestBody;
use tidegate_core::explain::Foreseen;
use tidegate_core::memory::{self, Weight};
use tidegate_core::{Exchange, Handler, Need, Pass, Reply, Response, answer, buffer_pool, log};
use tidegate_http::{Method, Status};
use tidegate_io::blocking;
use tidegate_io::descriptors;
use tidegate_io::file::Patience;
use tidegate_wire::fastcgi::{self, Params, Prefix, Role};
use tidegate_wire::scgi::{self, Variables};

/// Bytes of content that are about to be read, as far as room for them is asked for.
const PIECE: usize = 16 << 10;

/// Which of the two protocols is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// FastCGI 1.0.
    FastCgi,
    /// SCGI.
    Scgi,
    /// CGI, by way of a stub: SCGI to it, and its connection is the script's standard input and output.
    Cgi,
}

/// Answers the requests of a route by an application with scripts.
#[derive(Clone)]
pub struct Scripted {
    inner: Rc<Inner>,
}

struct Inner {
    protocol: Protocol,
    link: Rc<Link>,
    scripts: Scripts,
    params: Vec<(String, String)>,
    fixed: Fixed,
    /// Those that are the same for most.
    server: RefCell<ServerSide>,
    /// What a TRACE is told to use instead.
    allow: String,
}

/// What is the same for all requests of a route, as it is sent.
enum Fixed {
    /// All up to the first variables that differ.
    FastCgi(Prefix),
    /// Variables.
    Scgi(Vec<u8>),
}

impl Scripted {
    /// For a route.
    ///
    /// # Errors
    /// A folder of the settings cannot be opened.
    pub fn new(
        protocol: Protocol,
        shared: &Rc<Shared>,
        application: &Application,
        site: &settings::Site,
        route: &Route,
    ) -> io::Result<Scripted> {
        let rule = match &application.script {
            gateway::Script::Suffixes(suffixes) => {
                Rule::Suffixes(suffixes.iter().map(|suffix| suffix.clone().into_bytes()).collect())
            }
            gateway::Script::FirstFile { .. } => Rule::FirstFile,
            gateway::Script::File(file) => Rule::File(file.clone()),
            gateway::Script::Mounted(prefix) => Rule::Mounted(prefix.clone().into_bytes()),
        };
        let strip_prefix = match &application.script {
            gateway::Script::FirstFile { strip_prefix } => strip_prefix.as_str(),
            _ => "",
        };
        let root = match application.root.as_path() {
            root if root == Path::new("") => None,
            root => {
                let opened = open_root(root, application.symlinks).map_err(|error| {
                    let (root, origin) = (root.display(), &route.origin);
                    io::Error::new(error.kind(), format!("cannot open the root {root} ({origin}): {error}"))
                })?;
                Some(opened)
            }
        };
        let scripts = Scripts::new(root, rule, application.serves_hidden, strip_prefix);
        let params = application.params.clone();
        let link = Link::new(shared, &application.gateway, site, None)?;
        let document_root = scripts.finder().document_root();
        let fixed = match protocol {
            Protocol::FastCgi => {
                let mut prefix = Prefix::new(REQUEST, Role::Responder, link.keeps());
                environment::write_fixed(document_root, &params, &mut prefix);
                Fixed::FastCgi(prefix)
            }
            Protocol::Scgi | Protocol::Cgi => {
                let mut fixed = Vec::new();
                environment::write_fixed(document_root, &params, &mut |name: &[u8], value: &[u8]| {
                    let _ = scgi::append_variable(&mut fixed, name, value);
                });
                Fixed::Scgi(fixed)
            }
        };
        let (server, allow) = (RefCell::default(), answer::allow_without("TRACE", route));
        let inner = Inner { protocol, link, scripts, params, fixed, server, allow };
        Ok(Scripted { inner: Rc::new(inner) })
    }
}

impl Handler for Scripted {
    fn handle(&self, exchange: &mut Exchange<'_>, _: Pass) -> Reply {
        if exchange.method == Method::Trace {
            return Reply::Ready(answer::never_passed_on(&self.inner.allow)); // RFC 9110 section 9.3.8: it tells too much
        }
        if self.inner.refuses_encoded_slash(exchange) {
            return Reply::Ready(encoded_slash(exchange));
        }
        exchange.ends_with_client();
        exchange.waits_for(self.inner.link.account);
        match self.inner.scripts.resolve(path_of(exchange)) {
            Ok(Ok(script)) => self.inner.call(&script, exchange),
            Ok(Err(none)) => Reply::Ready(no_script(exchange, &none)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.inner.call_later(exchange),
            Err(error) => Reply::Ready(self.inner.failed(exchange.path, &error)),
        }
    }

    fn explain(&self, exchange: &Exchange<'_>, say: &mut dyn FnMut(String)) -> Foreseen {
        let name = match self.inner.protocol {
            Protocol::FastCgi => "fastcgi",
            Protocol::Scgi => "scgi",
            Protocol::Cgi => "cgi",
        };
        let to = &self.inner.link.name;
        if exchange.method == Method::Trace {
            say(format!("{name} {to}: TRACE is not passed on"));
            return Foreseen::Handler;
        }
        if self.inner.refuses_encoded_slash(exchange) {
            return Foreseen::Handler; // the refusal says why
        }
        let found = self.inner.scripts.finder().resolve(path_of(exchange), Patience::Wait, &mut |_| false);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match found {
            Ok(Ok(script)) if script.file.is_empty() => {
                say(format!(
                    "{name} {to}: mounted at {:?}, PATH_INFO {:?}",
                    text(&script.name),
                    text(&script.path_info)
                ));
                Foreseen::Application
            }
            Ok(Ok(script)) => {
                say(format!(
                    "{name} {to}: script {}, PATH_INFO {:?}",
                    text(&script.file),
                    text(&script.path_info)
                ));
                let file = Path::new(OsStr::from_bytes(&script.file));
                match fault_of(file).filter(|_| self.inner.protocol == Protocol::Cgi) {
                    Some(ScriptFault { status, why }) => {
                        say(format!("{} cannot be started: {why}", file.display()));
                        Foreseen::Status(status)
                    }
                    None => Foreseen::Application,
                }
            }
            Ok(Err(none)) => {
                say(format!("{name} {to}: no script for this path"));
                say(format!("{}: {}", none.status.0, none.why));
                Foreseen::Status(none.status)
            }
            Err(error) => {
                say(format!("{name} {to}: the script cannot be looked up: {error}"));
                Foreseen::Status(Status::INTERNAL_SERVER_ERROR)
            }
        }
    }
}

/// The path that leads to a script, and is its PATH_INFO. That is decoded and cannot tell a `%2F` from a slash (RFC 3875 section
/// 4.1.5), so such a path is told by REQUEST_URI alone.
fn path_of<'e>(exchange: &Exchange<'e>) -> &'e [u8] {
    if exchange.has_ambiguous_path() { b"" } else { exchange.path }
}

/// The answer where a path leads to no script that may be run.
fn no_script(exchange: &Exchange<'_>, none: &NoScript) -> Response {
    answer::refused(exchange, none.status, &none.why)
}

/// Content of which the length was not known.
enum Collected {
    Whole(Vec<u8>, Weight),
    /// Memory is short, or it is much.
    Spilled(Spilled),
}

/// Collects content; the answer where it cannot be had.
async fn collect(inner: Rc<Inner>, mut body: RequestBody, about: About) -> Result<Collected, Response> {
    let (mut content, mut weight) = (Vec::new(), Weight::default());
    loop {
        let read = body.read(&mut content).await;
        weight.set(content.capacity());
        match read {
            Err(_) => return Err(answer::error(Status::BAD_REQUEST)),
            Ok(0) => return Ok(Collected::Whole(content, weight)),
            // Where memory is short the rest is kept in a file.
            Ok(_) if content.len() <= inner.link.request_buffer && memory::take(PIECE) => {}
            Ok(_) => {
                let spilled = inner.link.shared.spill().take(content, &mut body).await;
                return spilled.map(Collected::Spilled).map_err(|error| {
                    log::error(format_args!("{about}: {error}"));
                    match error.status() {
                        Status::SERVICE_UNAVAILABLE => answer::busy(None),
                        status => answer::error(status),
                    }
                });
            }
        }
    }
}

impl Inner {
    /// Whether the path has a `%2F` and is not for the script: only one that the path has not named itself takes it.
    fn refuses_encoded_slash(&self, exchange: &Exchange<'_>) -> bool {
        let takes = || !exchange.has_ambiguous_path() || self.scripts.finder().is_one_file();
        exchange.has_encoded_slash() && !(self.link.passes_encoded_slashes && takes())
    }

    fn call(self: &Rc<Self>, script: &Script<'_>, exchange: &mut Exchange<'_>) -> Reply {
        let Some(body) = exchange.state.body.take() else {
            let upload = Upload::whole(self.encode(script, exchange, None, true)).framed(self.framing());
            return self.run(upload, exchange);
        };
        if let Some(len) = body.len {
            let framing = self.framing();
            let upload = Upload::with_body(self.encode(script, exchange, Some(len), false), body, framing);
            return self.run(upload, exchange);
        }
        // The length has to be told first, so all of the content has to be here first.
        let (inner, script) = (self.clone(), script.to_owned());
        let collected = collect(self.clone(), body, About::new(&self.link, exchange.target));
        exchange.prepare_after(Need::Content, collected, move |collected, exchange| {
            let upload = match collected {
                Ok(Collected::Whole(content, _weight)) => {
                    let mut head = inner.encode(&script, exchange, Some(content.len() as u64), false);
                    inner.append_content(&mut head, &content);
                    Upload::whole(head).framed(inner.framing())
                }
                Ok(Collected::Spilled(spilled)) => {
                    let head = inner.encode(&script, exchange, Some(spilled.len()), false);
                    Upload::with_spilled(head, spilled, inner.framing())
                }
                Err(response) => return Reply::Ready(response),
            };
            inner.run(upload, exchange)
        })
    }

    /// A look-up that has to wait for the disk.
    fn call_later(self: &Rc<Self>, exchange: &mut Exchange<'_>) -> Reply {
        let (inner, finder) = (self.clone(), self.scripts.finder().clone());
        let path = path_of(exchange).to_vec();
        let job = blocking::run(move || {
            let found = finder.resolve(&path, Patience::Wait, &mut |_| false)?;
            Ok::<_, io::Error>(found.map(|script| script.to_owned()))
        });
        let found = async move {
            match job {
                Ok(job) => Some(job.await),
                Err(_) => None,
            }
        };
        exchange.prepare_after(Need::Decision, found, move |found, exchange| match found {
            Some(Ok(Ok(script))) => inner.call(&script, exchange),
            Some(Ok(Err(none))) => Reply::Ready(no_script(exchange, &none)),
            Some(Err(error)) => Reply::Ready(inner.failed(exchange.path, &error)),
            None => Reply::Ready(answer::busy(None)),
        })
    }

    fn run(&self, upload: Upload, exchange: &Exchange<'_>) -> Reply {
        // A script that has been started is not started again, whatever came of it.
        let may_repeat = self.protocol != Protocol::Cgi && exchange.method.is_safe();
        let dialect = match self.protocol {
            Protocol::FastCgi => Dialect::FastCgi,
            Protocol::Scgi => Dialect::Scgi,
            Protocol::Cgi => Dialect::Cgi,
        };
        let call = Call {
            link: self.link.clone(),
            routing: RoutingState::of(&self.link, exchange, may_repeat),
            upload,
            dialect,
            may_repeat,
            head_only: exchange.method == Method::Head,
            is_conditional: Present::of(&exchange.fields).condition,
            wants_trailers: false,
            interim: None,
            range: self.link.sendfile.range_of(exchange),
            back: None,
            elsewhere: exchange.elsewhere(),
            upgrade: None,
            target: exchange.target.into(),
        };
        call.run()
    }

    fn framing(&self) -> Framing {
        match self.protocol {
            Protocol::FastCgi => Framing::FastCgi,
            Protocol::Scgi => Framing::Length,
            Protocol::Cgi => Framing::LengthAndEnd,
        }
    }

    /// The request up to its content; `is_whole` ends it, for there is none.
    fn encode(
        &self,
        script: &Script<'_>,
        exchange: &Exchange<'_>,
        content_length: Option<u64>,
        is_whole: bool,
    ) -> Vec<u8> {
        let mut out = buffer_pool::take();
        let mut server = self.server.borrow_mut();
        match &self.fixed {
            Fixed::FastCgi(prefix) => {
                let mut params = Params::begin_with(&mut out, prefix);
                params.push_pairs(server.of(exchange, &self.link, &self.params, fastcgi::append_pair));
                environment::write(exchange, &self.link, script, &self.params, content_length, &mut params);
                params.finish();
                if is_whole {
                    fastcgi::end_stdin(&mut out, REQUEST);
                }
            }
            Fixed::Scgi(fixed) => {
                let mut variables = Variables::begin(&mut out, content_length.unwrap_or(0));
                variables.push_variables(fixed);
                let append = |out: &mut Vec<u8>, name: &[u8], value: &[u8]| {
                    let _ = scgi::append_variable(out, name, value);
                };
                variables.push_variables(server.of(exchange, &self.link, &self.params, append));
                environment::write(exchange, &self.link, script, &self.params, None, &mut variables);
                variables.finish();
            }
        }
        out
    }

    fn append_content(&self, out: &mut Vec<u8>, content: &[u8]) {
        match self.protocol {
            Protocol::FastCgi => {
                fastcgi::append_stdin(out, REQUEST, content);
                fastcgi::end_stdin(out, REQUEST);
            }
            Protocol::Scgi | Protocol::Cgi => out.extend_from_slice(content),
        }
    }

    fn failed(&self, path: &[u8], error: &io::Error) -> Response {
        if descriptors::is_exhaustion(error) {
            descriptors::are_lacking();
            log::error(format_args!("503: {}: {}", self.link.name, descriptors::advice()));
            return answer::busy(None);
        }
        log::error(format_args!(
            "{}: cannot look up {}: {error}",
            self.link.name,
            String::from_utf8_lossy(path)
        ));
        answer::error(Status::INTERNAL_SERVER_ERROR)
    }
}
