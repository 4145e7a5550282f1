//! Sites that a mistake costs, as far as clients see them: under their names 503 is answered. Without this another site
//! would answer for them, with content or a redirect that is not theirs.
//!
//! Called by whoever puts settings into force or says what they do, after what stays served has its names back.

use std::collections::HashSet;
use std::sync::Arc;

use crate::check::Checker;
use crate::environment::ProcessEnvironment;
use crate::load::{Loaded, RejectedSite};
use crate::lower;
use crate::settings::{Action, CertificateFiles, HostPattern, PathPattern, Shared, Site, SiteLog, SiteTls};
use crate::value;

/// What a left-out site answers.
const UNAVAILABLE: u16 = 503;

impl Loaded {
    /// Adds a site that answers 503 for each that is left out and whose names no other site has. `is_readable` says which
    /// certificates can be shown: without one of its own such a site shows what its listener has.
    pub fn answer_for_rejected(&mut self, is_readable: impl Fn(&CertificateFiles) -> bool) {
        let Some(settings) = &mut self.settings else { return };
        let mut taken: HashSet<Option<HostPattern>> =
            settings.sites.iter().flat_map(|site| names_of(&site.names)).collect();
        let mut stand_ins = Vec::new();
        for (at, rejected) in self.rejected.iter().enumerate() {
            let names: Vec<Option<HostPattern>> =
                names_in(rejected).into_iter().filter(|name| taken.insert(name.clone())).collect();
            if names.is_empty() {
                continue;
            }
            let read = self.unserved.iter().find(|(of, _)| *of == at).map(|(_, site)| &**site);
            let cause = self.diagnostics.iter().find(|found| found.costs == Some(at));
            let why = cause.map_or_else(|| "a mistake in it".to_owned(), |found| found.message.clone());
            let mut site = stand_in(rejected, read, why);
            site.names = names.into_iter().flatten().collect();
            site.tls.certificates.retain(&is_readable);
            stand_ins.push((rejected.before, Arc::new(site)));
        }
        // Where it stood: the first site is also that of strangers.
        stand_ins.sort_by_key(|(before, _)| *before);
        for (already, (before, site)) in stand_ins.into_iter().enumerate() {
            let at = before.saturating_add(already).min(settings.sites.len());
            settings.sites.insert(at, site);
        }
    }
}

/// `None` is the site without a name.
fn names_of(names: &[HostPattern]) -> Vec<Option<HostPattern>> {
    match names {
        [] => vec![None],
        names => names.iter().cloned().map(Some).collect(),
    }
}

fn names_in(rejected: &RejectedSite) -> Vec<Option<HostPattern>> {
    if rejected.names.is_empty() && !rejected.has_unread_names {
        return vec![None];
    }
    rejected.names.iter().filter_map(|name| value::host(name)).map(Some).collect()
}

/// Nothing of what the site asks or says stands: that was not all read. What tells who asks does, and who is shown.
fn stand_in(rejected: &RejectedSite, read: Option<&Site>, why: String) -> Site {
    let mut checker = Checker::new(&ProcessEnvironment);
    let inherited = lower::server(&mut checker, &crate::disk::RealDisk, &[]).inherited;
    let mut route =
        lower::plain_route(inherited, PathPattern::Prefix("/".to_owned()), rejected.origin.clone());
    route.action = Action::Respond { status: UNAVAILABLE, body: None, media_type: None };
    let certificates = read.map(|site| site.tls.certificates.clone()).unwrap_or_default();
    Site {
        names: Vec::new(),
        routes: vec![route],
        trusted_proxies: read.map_or_else(Shared::default, |site| site.trusted_proxies.clone()),
        has_request_id: false,
        sampling: None,
        access_log: SiteLog::Inherited,
        bound: read.map(|site| site.bound.clone()).unwrap_or_default(),
        tls: SiteTls { certificates, ..SiteTls::default() },
        is_https_only: false,
        hooks: Vec::new(),
        left_out: Some(why),
        origin: rejected.origin.clone(),
    }
}

#[cfg(test)]
mod tests {
    use crate::load::Loaded;
    use crate::settings::Action;
    use std::collections::BTreeMap;
    use std::path::Path;

    fn stand_ins(text: &str) -> Vec<(String, String)> {
        let environment: BTreeMap<String, String> = BTreeMap::new();
        let mut loaded: Loaded =
            crate::load_str("a.kdl", &format!("listen \":1\"\n{text}"), Path::new("/"), &environment);
        loaded.answer_for_rejected(|_| true);
        let sites = loaded.settings.expect("a site is served").sites;
        let left_out = sites.iter().filter_map(|site| Some((site, site.left_out.as_ref()?)));
        let shown = left_out.map(|(site, why)| {
            let names: Vec<String> = site.names.iter().map(ToString::to_string).collect();
            assert!(matches!(site.routes[0].action, Action::Respond { status: 503, .. }));
            (names.join(" "), why.clone())
        });
        shown.collect()
    }

    #[test]
    fn a_site_that_is_left_out_answers_under_the_names_that_nobody_else_has() {
        let good = "site \"a.x\" { respond 200 }\n";
        for (what, text, names) in [
            ("none", "", vec![]),
            ("a mistake in its block", "site \"b.x\" \"*.c.x\" { respnd 200 }", vec!["b.x *.c.x"]),
            ("a name that another has", "site \"b.x\" \"a.x\" { respond 200 }", vec!["b.x"]),
            ("without a name", "site { respnd 200 }", vec![""]),
            ("a name that is none", "site \"b..x\" { respond 200 }", vec![]),
            ("the same name twice", "site \"b.x\" { respnd 200 }\nsite \"b.x\" { respnd 200 }", vec!["b.x"]),
        ] {
            let found: Vec<String> =
                stand_ins(&format!("{good}{text}")).into_iter().map(|(names, _)| names).collect();
            assert_eq!(found, names, "{what}");
        }
    }

    #[test]
    fn it_stands_where_it_stood() {
        let text = "listen \":1\"\nsite \"a.x\" { respnd 200 }\nsite \"b.x\" { respond 200 }\n\
            site \"c.x\" { root \"/not/there\" }\nsite \"d.x\" { respond 200 }\nsite \"e.x\" { respnd 200 }\n";
        let mut loaded = crate::load_str("a.kdl", text, Path::new("/"), &BTreeMap::new());
        loaded.answer_for_rejected(|_| true);
        let sites = loaded.settings.unwrap().sites;
        let names: Vec<String> = sites.iter().map(|site| crate::lower::host_text(&site.names[0])).collect();
        assert_eq!(names, ["a.x", "b.x", "c.x", "d.x", "e.x"]);
    }

    #[test]
    fn it_says_why() {
        let found = stand_ins("site \"a.x\" { respond 200 }\nsite \"b.x\" { root \"/not/there\" }");
        assert_eq!(found.len(), 1);
        assert!(found[0].1.contains("/not/there does not exist"), "{found:?}");
    }
}
