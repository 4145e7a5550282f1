//! Which request a message is about, put into words only when there is a message.

use super::link::Link;
use std::fmt;
use std::rc::Rc;
use tidegate_core::log;
use tidegate_stats::GatewayFailure;

/// A request in messages: `example.com /a.php`.
#[derive(Clone)]
pub(super) struct About {
    link: Rc<Link>,
    target: Rc<str>,
}

impl About {
    pub(super) fn new(link: &Rc<Link>, target: &str) -> About {
        About { link: link.clone(), target: target.into() }
    }

    /// The application has failed in the middle of an answer. The client is told by nothing but the end.
    #[cold]
    pub(super) fn broke_off(&self, why: GatewayFailure, how: &dyn fmt::Display) {
        self.link.shared.stats.gateway_failures.add(why, 1);
        log::error(format_args!("{self}: {}: its answer broke off: {how}", self.link.name));
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
