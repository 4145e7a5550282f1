//! What the operator wants done: bans lifted, requests ended or watched, file caches shown and switched.

use super::{Facts, StatusRegistry};
use crate::link::ToServer;
use std::net::IpAddr;
use tidegate_core::log;
use tidegate_core::rate::Client;
use tidegate_core::selection::Selection;
use tidegate_modules::status::{self, Format, SiteState};
use tidegate_stats::series::NO_SITE;

/// Requests that were cancelled, noted in one line of the error log.
const NOTED: usize = 100;

impl Facts {
    /// Which site or route there is not under the settings in force. Sites and routes go by their
    /// names in the settings, and by those in reports.
    fn nothing_called(&self, selection: &Selection) -> Option<String> {
        let (site, route) = (selection.site.as_deref(), selection.route.as_deref());
        if site == Some(NO_SITE) && route.is_none() {
            return None;
        }
        let is_meant = |state: &&SiteState| {
            site.is_none_or(|name| state.series.site == name || state.names.iter().any(|own| own == name))
        };
        let mut sites = self.sites_in_force.iter().filter(|state| state.left_out.is_none()).filter(is_meant);
        let Some(first) = sites.next() else {
            return Some(format!(
                "no site is called {:?}: `tidegate status` shows those that there are",
                site.unwrap_or_default()
            ));
        };
        let has = |name: &str| {
            [first]
                .into_iter()
                .chain(sites)
                .any(|state| state.series.routes.iter().any(|route| route == name))
        };
        let of = site.map(|name| format!(" of the site {name:?}")).unwrap_or_default();
        route.filter(|name| !has(name)).map(|name| {
            format!("no route{of} is called {name:?}: write its pattern as the settings have it, such as \"/app/*\"")
        })
    }
}

impl StatusRegistry {
    /// Lets a client in again that is banned, here and on the servers that share bans: whether it was banned here, and what is
    /// said of it.
    pub fn lift(&self, address: IpAddr) -> (bool, String) {
        let lifted = self.rates().lift(address);
        self.tell_lifted(Client::at(address).as_slice());
        lifted
    }

    /// The same for everybody who is banned here: how many that were.
    pub fn lift_all(&self) -> String {
        let clients = self.rates().lift_all();
        self.tell_lifted(&clients);
        match clients.len() {
            0 => "Nobody is banned.\n".to_owned(),
            1 => "1 client is banned no longer\n".to_owned(),
            many => format!("{many} clients are banned no longer\n"),
        }
    }

    /// Tells the servers that share bans of it.
    fn tell_lifted(&self, clients: &[Client]) {
        let (facts, at) = (self.facts(), tidegate_io::clock::monotonic_ns());
        // Each tells of it: one of them may just be going.
        for link in facts.members.iter().filter_map(|member| member.link.as_ref()) {
            for client in clients {
                link.send(&ToServer::Lifted { client: client.to_string(), at }, Vec::new());
            }
        }
    }

    /// Ends a request by its id, or says whether it is there. Whether it was, and what to say.
    pub fn cancel(&self, id: &str, is_rehearsal: bool) -> (bool, String) {
        let (question, done) = if is_rehearsal { ("cancel-dry", "there") } else { ("cancel", "cancelled") };
        let answers = self.ask_all(&format!("{question} {id}"));
        match answers.iter().any(|answer| answer == done) {
            true if is_rehearsal => (true, format!("request {id} would be cancelled\n")),
            true => {
                log::info(format_args!("request {id} was cancelled by an operator"));
                (true, format!("request {id} is cancelled\n"))
            }
            false => (
                false,
                format!("no request {id} is under way; `tidegate status requests` shows those that are\n"),
            ),
        }
    }

    /// Ends the requests of a selection, or says which they are. Whether it was done, and what to say.
    pub fn cancel_all(&self, selection: &Selection, is_rehearsal: bool) -> (bool, String) {
        let how = if is_rehearsal { "dry" } else { "now" };
        let report = match status::cancel_report(&self.ask_all(&format!("cancel-all {how} {selection}"))) {
            Ok(report) => report,
            Err(error) => return (false, error + "\n"),
        };
        let (count, ids) = (report.count, &report.ids);
        // Requests under the settings before may still be under way: only where there are none nobody is meant.
        if count == 0
            && let Some(why) = self.nothing_called(selection)
        {
            return (false, why + "\n");
        }
        let requests = if count == 1 { "1 request".to_owned() } else { format!("{count} requests") };
        let silent = match report.silent {
            0 => String::new(),
            silent => format!("{silent} workers do not answer; they may have more\n"),
        };
        if is_rehearsal {
            let ids: String = ids.iter().map(|id| format!("{id}\n")).collect();
            return (report.silent == 0, format!("{ids}{requests} would be cancelled\n{silent}"));
        }
        let said = selection.to_string().replace('\t', " ");
        for ids in ids.chunks(NOTED) {
            log::info(format_args!("cancelled by an operator ({said}): {}", ids.join(" ")));
        }
        (report.silent == 0, format!("{requests} cancelled\n{silent}"))
    }

    /// Which site or route of a selection there is not, as a sentence.
    pub fn nothing_called(&self, selection: &Selection) -> Option<String> {
        self.facts().nothing_called(selection)
    }

    /// What is new to one who watches requests end, as JSON; without a selection it watches no longer. Whether it may, else why
    /// not.
    pub fn tail(&self, name: &str, selection: Option<&Selection>) -> (bool, String) {
        let Some(selection) = selection else {
            self.ask_all(&format!("tail-end {name}"));
            return (true, String::new());
        };
        if let Some(why) = self.nothing_called(selection) {
            return (false, why);
        }
        match status::tail_report(&self.ask_all(&format!("tail {name} {selection}"))) {
            Ok(report) => match serde_json::to_string(&report) {
                Ok(json) => (true, json),
                Err(error) => (false, format!("requests cannot be told: {error}")),
            },
            Err(error) => (false, error),
        }
    }

    /// Carries out what is asked of the file caches: `report`, `list`, `start`, `stop` or `restart`.
    /// Whether it was done, and what to show.
    pub fn cache(&self, question: &str, format: Format) -> (bool, String) {
        if !matches!(question, "" | "report" | "list") {
            let answers = self.ask(&format!("cache {question}"));
            let refusal = answers.into_iter().find(|answer| answer != "ok");
            return refusal.map_or((true, "ok\n".into()), |refusal| (false, refusal + "\n"));
        }
        let reports = self.ask("cache report");
        let lists = (question == "list").then(|| self.ask("cache list"));
        (true, status::cache_report(&reports, lists.as_deref(), format, std::process::id()))
    }
}
