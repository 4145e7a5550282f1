//! Where a name leads, looked up again as its records say.
//!
//! Through `/etc/hosts` and the name servers of `/etc/resolv.conf`, read anew after a failure: the machine
//! may have moved to another network meanwhile.

use hickory_resolver::TokioResolver;
use std::cell::RefCell;
use std::net::IpAddr;
use std::time::Instant;
use tokio::time::{Duration, sleep};

/// However short its records live, a name is not looked up more often.
const LEAST: Duration = Duration::from_secs(1);
/// However long, not more seldom.
const MOST: Duration = Duration::from_secs(300);
/// The longest wait after failures.
const MOST_AFTER_FAILURE: Duration = Duration::from_secs(60);

/// Looks names up. Shared by all names, so that they share its cache.
#[derive(Default)]
pub struct Resolver {
    inner: RefCell<Option<TokioResolver>>,
}

impl Resolver {
    /// Follows a name: `changed` is told its addresses, sorted, when they are known and whenever others are.
    /// A failure leaves the addresses as they were; when it is the first thing that happens there are none.
    pub async fn follow(&self, host: &str, mut changed: impl FnMut(&[IpAddr])) {
        let mut known: Vec<IpAddr> = Vec::new();
        let mut failures = 0;
        loop {
            let pause = match self.look_up(host).await {
                Ok((addresses, valid)) => {
                    if failures > 0 {
                        tidegate_core::log::info(format_args!("{host} can be looked up again"));
                    }
                    failures = 0;
                    if addresses != known {
                        changed(&addresses);
                        known = addresses;
                    }
                    valid.clamp(LEAST, MOST)
                }
                Err(error) => {
                    if failures == 0 {
                        let state =
                            if known.is_empty() { "it gets no requests" } else { "its addresses stay" };
                        let what =
                            format_args!("the upstream member {host} cannot be looked up: {error}; {state}");
                        tidegate_core::log::warn(what);
                    }
                    if failures == 0 && known.is_empty() {
                        changed(&[]);
                    }
                    failures += 1;
                    *self.inner.borrow_mut() = None;
                    pause_after(failures)
                }
            };
            sleep(pause).await;
        }
    }

    /// Addresses, sorted, and for how long they are valid.
    async fn look_up(&self, host: &str) -> Result<(Vec<IpAddr>, Duration), String> {
        // What needs no server: it works where there is none.
        if host == "localhost" {
            return Ok((vec![IpAddr::from([127, 0, 0, 1])], MOST));
        }
        let resolver = self.resolver()?;
        // With the dot at its end a name is itself, and no search list is tried.
        let answer = resolver.lookup_ip(format!("{host}.")).await.map_err(|error| error.to_string())?;
        let mut addresses: Vec<IpAddr> = answer.iter().collect();
        addresses.sort_unstable();
        addresses.dedup();
        if addresses.is_empty() {
            return Err("it has no address".to_owned());
        }
        Ok((addresses, answer.valid_until().saturating_duration_since(Instant::now())))
    }

    fn resolver(&self) -> Result<TokioResolver, String> {
        let known = self.inner.borrow().clone();
        if let Some(resolver) = known {
            return Ok(resolver);
        }
        let builder = TokioResolver::builder_tokio().map_err(|error| error.to_string())?;
        let resolver = builder.build().map_err(|error| error.to_string())?;
        *self.inner.borrow_mut() = Some(resolver.clone());
        Ok(resolver)
    }
}

/// One second, then twice as long each time.
fn pause_after(failures: u32) -> Duration {
    LEAST.saturating_mul(1 << (failures - 1).min(16)).min(MOST_AFTER_FAILURE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_not_repeated_at_once() {
        let seconds = |failures| pause_after(failures).as_secs();
        assert_eq!([1, 2, 3, 7, 100].map(seconds), [1, 2, 4, 60, 60]);
    }
}
