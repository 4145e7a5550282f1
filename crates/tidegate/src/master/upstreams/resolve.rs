//! Where a name leads, looked up again as its records say.
//!
//! Through the name servers of `dns`, else through `/etc/hosts` and those of `/etc/resolv.conf`, read anew after a failure: the machine
//! may have moved to another network meanwhile.

use crate::resolver;
use hickory_resolver::TokioResolver;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::Name;
use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;
use tidegate_core::log::{self, Trouble};
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
    /// Of the settings; those of the machine where there are none.
    servers: Vec<SocketAddr>,
    inner: RefCell<Option<TokioResolver>>,
}

impl Resolver {
    /// Asks these name servers, or those of the machine where there are none.
    pub fn new(servers: Vec<SocketAddr>) -> Resolver {
        Resolver { servers, inner: RefCell::default() }
    }

    /// Whom it asks, as far as the settings say.
    pub fn servers(&self) -> &[SocketAddr] {
        &self.servers
    }

    /// Follows a name: `changed` is told its addresses, sorted, when they are known and whenever others are.
    /// A failure leaves the addresses as they were; when it is the first thing that happens there are none.
    pub async fn follow(&self, host: &str, mut changed: impl FnMut(&[IpAddr])) {
        let mut known: Vec<IpAddr> = Vec::new();
        let (mut failures, mut trouble) = (0, Trouble::default());
        loop {
            let pause = match self.look_up(host).await {
                Ok((addresses, valid)) => {
                    if trouble.is_over() {
                        log::info(format_args!("{host} can be looked up again"));
                    }
                    failures = 0;
                    if addresses != known {
                        changed(&addresses);
                        known = addresses;
                    }
                    valid.clamp(LEAST, MOST)
                }
                Err(error) => {
                    if trouble.is_news(&error) {
                        let state = if known.is_empty() {
                            "it gets no requests until it can, and where a group has no other member they are refused \
                             with 503"
                        } else {
                            "its addresses stay"
                        };
                        let what = format_args!(
                            "the upstream member {host} cannot be looked up (A, AAAA): {error}; {state}"
                        );
                        log::warn(what);
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
        let whole = Name::from_utf8(format!("{host}.")).map_err(|error| format!("it is no name: {error}"))?;
        let answer = resolver.lookup_ip(whole.clone()).await.map_err(|error| sentence(&error))?;
        let about = resolver::about(&whole, answer.as_lookup().answers());
        let mut addresses: Vec<IpAddr> = about.filter_map(|record| record.data.ip_addr()).collect();
        addresses.sort_unstable();
        addresses.dedup();
        if addresses.is_empty() {
            return Err(NO_RECORD.to_owned());
        }
        Ok((addresses, answer.valid_until().saturating_duration_since(Instant::now())))
    }

    fn resolver(&self) -> Result<TokioResolver, String> {
        let known = self.inner.borrow().clone();
        if let Some(resolver) = known {
            return Ok(resolver);
        }
        let resolver = resolver::of_servers(&self.servers).map_err(|error| error.to_string())?;
        *self.inner.borrow_mut() = Some(resolver.clone());
        Ok(resolver)
    }
}

const NO_RECORD: &str = "there is such a name, and it has no record of these types";

/// What the name servers have said, in words.
fn sentence(error: &NetError) -> String {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none)) => match none.response_code {
            ResponseCode::NXDomain => "the name server says that there is no such name (NXDOMAIN)".to_owned(),
            ResponseCode::NoError => NO_RECORD.to_owned(),
            code => answered(code),
        },
        NetError::Dns(DnsError::ResponseCode(code)) => answered(*code),
        NetError::Timeout => "no name server (`dns`, else /etc/resolv.conf) has answered in time".to_owned(),
        NetError::NoConnections => "no name server (`dns`, else /etc/resolv.conf) can be reached".to_owned(),
        NetError::Io(error) => {
            format!("the name servers (`dns`, else /etc/resolv.conf) cannot be reached: {error}")
        }
        other => format!("the answer of the name server is of no use: {other}"),
    }
}

fn answered(code: ResponseCode) -> String {
    let code = match code {
        ResponseCode::ServFail => "SERVFAIL".to_owned(),
        ResponseCode::Refused => "REFUSED".to_owned(),
        code => code.to_string(),
    };
    format!("the name server answers {code}")
}

/// One second, then twice as long each time.
fn pause_after(failures: u32) -> Duration {
    LEAST.saturating_mul(1 << (failures - 1).min(16)).min(MOST_AFTER_FAILURE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_name_servers_say_is_a_sentence() {
        use hickory_resolver::net::NoRecords;
        use hickory_resolver::proto::op::Query;
        let none = |code| NetError::from(NoRecords::new(Query::default(), code));
        for (error, expected) in [
            (none(ResponseCode::NXDomain), "there is no such name (NXDOMAIN)"),
            (none(ResponseCode::NoError), "has no record of these types"),
            (none(ResponseCode::ServFail), "answers SERVFAIL"),
            (NetError::Dns(DnsError::ResponseCode(ResponseCode::Refused)), "answers REFUSED"),
            (NetError::Timeout, "answered in time"),
            (NetError::NoConnections, "can be reached"),
        ] {
            let said = sentence(&error);
            assert!(said.contains(expected), "{said}");
            assert!(!said.contains(['{', '[', '"']), "no text for programmers: {said}");
        }
    }

    #[test]
    fn failures_are_not_repeated_at_once() {
        let seconds = |failures| pause_after(failures).as_secs();
        assert_eq!([1, 2, 3, 7, 100].map(seconds), [1, 2, 4, 60, 60]);
    }
}
