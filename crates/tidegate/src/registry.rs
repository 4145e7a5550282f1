//! Settings to handlers: which module answers a route. The only place that knows all modules.
//!
//! Each worker makes its own registry on its own thread; `explain` uses the same construction without one.

use crate::status_source::StatusSource;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use tidegate_config::Settings;
use tidegate_config::settings::{AccessLog, Action, Route, Site};
use tidegate_core::log::Sink;
use tidegate_core::phase::{self, Decoration, Engine};
use tidegate_core::worker::{self, LogSet, MakeRegistry};
use tidegate_core::{Exchange, Filter, Handler, Reply, Response};
use tidegate_http::Status;
use tidegate_stats::Worker as Stats;

/// What the handlers of one worker share.
pub struct Registry {
    #[expect(dead_code, reason = "the file cache counts in it")]
    stats: Arc<Stats>,
    #[expect(dead_code, reason = "the status page reads it")]
    source: Arc<StatusSource>,
}

/// Opens an access log, or says that none is to be written.
type OpenLog<'a> = dyn FnMut(&AccessLog) -> io::Result<Option<Sink>> + 'a;

impl Registry {
    /// For one worker, or for `explain`.
    pub fn new(stats: Arc<Stats>, source: Arc<StatusSource>) -> Registry {
        Registry { stats, source }
    }

    /// What makes a registry on a worker's thread.
    pub fn maker(source: Arc<StatusSource>) -> MakeRegistry {
        Arc::new(move |stats| Box::new(Registry::new(stats, source.clone())))
    }

    /// The engine for a revision. Runs on a thread that has a [`tidegate_io::Runtime`].
    pub fn build(&mut self, settings: &Arc<Settings>, open_log: &mut OpenLog<'_>) -> io::Result<Engine> {
        let mut sites = Vec::with_capacity(settings.sites.len());
        for site in &settings.sites {
            let mut routes = Vec::with_capacity(site.routes.len());
            for route in &site.routes {
                let decoration = Decoration::of(route);
                let handler = self.handler_for(settings, site, route, &decoration)?;
                routes.push(phase::Route::new(handler, self.filters_for(route), decoration));
            }
            let log = site.access_log.as_ref().unwrap_or(&settings.access_log);
            let sink = log.as_ref().map(&mut *open_log).transpose()?.flatten();
            sites.push(phase::Site::new(site.clone(), routes, sink));
        }
        Ok(Engine::new(settings.clone(), sites))
    }

    /// What answers a route.
    fn handler_for(
        &mut self,
        _settings: &Settings,
        _site: &Site,
        route: &Route,
        _decoration: &Rc<Decoration>,
    ) -> io::Result<Rc<dyn Handler>> {
        Ok(match &route.action {
            Action::Files(_) => Rc::new(Stub { status: 503, body: "files".into() }),
            Action::Redirect { status, .. } => Rc::new(Stub { status: *status, body: String::new() }),
            Action::Respond { status, body } => Rc::new(Stub { status: *status, body: body.clone() }),
            Action::Status => Rc::new(Stub { status: 503, body: "status".into() }),
        })
    }

    /// What changes the responses of a route, in order.
    fn filters_for(&mut self, _route: &Route) -> Vec<Rc<dyn Filter>> {
        Vec::new()
    }
}

impl worker::Registry for Registry {
    fn engine(&mut self, settings: &Arc<Settings>, logs: &mut LogSet) -> io::Result<Engine> {
        self.build(settings, &mut |log| logs.open(log).map(Some))
    }

    fn ask(&mut self, question: &str) -> String {
        format!("`{question}` is not known here")
    }
}

/// Stands in for a module that is not there yet.
struct Stub {
    status: u16,
    body: String,
}

impl Handler for Stub {
    fn handle(&self, _: &mut Exchange<'_>) -> Reply {
        Reply::Ready(Response::content(Status(self.status), "text/plain; charset=utf-8", self.body.clone()))
    }

    fn explain(&self, _: &Exchange<'_>, say: &mut dyn FnMut(String)) {
        say(format!("answers {}", self.status));
    }
}
