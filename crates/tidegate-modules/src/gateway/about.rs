//! Which request a message is about, put into words only when there is a message.

use super::link::Link;
use std::fmt;
use std::rc::Rc;
use tidegate_core::log;
use tidegate_stats::GatewayFailure;
use tidegate_stats::series::SeriesId;

/// A request in messages: `example.com /a.php`.
#[derive(Clone)]
pub(super) struct About {
    link: Rc<Link>,
    target: Rc<str>,
    /// What a broken answer counts for; `None`: for no route.
    series: Option<SeriesId>,
}

impl About {
    pub(super) fn new(link: &Rc<Link>, target: &str) -> About {
        About { link: link.clone(), target: target.into(), series: None }
    }

    /// The same of a request that counts for a route.
    pub(super) fn counted_as(self, series: Option<SeriesId>) -> About {
        About { series, ..self }
    }

    /// The application has failed in the middle of an answer. The client is told by nothing but the end.
    #[cold]
    pub(super) fn broke_off(&self, why: GatewayFailure, how: &dyn fmt::Display) {
        let stats = &self.link.shared.stats;
        stats.gateway_failures.add(why, 1);
        stats.gateway_errors.add(why, 1);
        if let Some(series) = self.series {
            stats.series.failed(series, why);
        }
        log::error(format_args!("{self}: {}: its answer broke off: {how}", self.link.name));
    }

    /// An answer has ended while the client owed content to the application: no failure of that.
    #[cold]
    pub(super) fn was_given_up(&self, how: &dyn fmt::Display) {
        let name = &self.link.name;
        log::info(format_args!(
            "{self}: {name}: its answer was given up: {how}, while content of the client was still to come"
        ));
    }

    /// The name of the application: its pool, or where it is.
    pub(super) fn application(&self) -> &str {
        &self.link.name
    }
}

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let site = if self.link.site.is_empty() { "-" } else { &self.link.site };
        write!(f, "{site} {}", self.target)
    }
}
