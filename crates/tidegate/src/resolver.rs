//! Who asks name servers: those of the settings (`dns`), else those of the machine.
//!
//! Used by the master for members of upstream groups, and by server processes for the names of clients.

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{Name, RData, Record};
use std::net::SocketAddr;
use tidegate_config::settings::Dns;

/// Aliases of aliases that are followed.
const ALIASES: usize = 16;
/// Tries of one question.
const TRIES: u32 = 2;

/// For the addresses of names.
///
/// # Errors
/// The machine's name servers are not known.
pub fn of_servers(servers: &[SocketAddr]) -> Result<TokioResolver, NetError> {
    build(servers, |_| {})
}

/// For the names of clients, which are remembered by who asks.
///
/// # Errors
/// The machine's name servers are not known.
pub fn of_clients(dns: &Dns) -> Result<TokioResolver, NetError> {
    build(&dns.servers, |options| {
        // A name is two questions, each of which may be lost once.
        options.timeout = dns.timeout / (TRIES + 1);
        options.attempts = TRIES as usize;
        options.max_active_requests = dns.queries.saturating_mul(2);
        options.cache_size = 0;
    })
}

/// The records of an answer that are about the name that was asked for, or about the one that it is an alias of. An answer
/// may bring others beside them, and these say nothing of the name.
pub fn about<'a>(asked: &'a Name, answers: &'a [Record]) -> impl Iterator<Item = &'a Record> {
    let mut name = asked;
    for _ in 0..ALIASES {
        let alias = answers.iter().find_map(|record| match &record.data {
            RData::CNAME(alias) if record.name.eq_ignore_root(name) => Some(&alias.0),
            _ => None,
        });
        match alias {
            Some(alias) => name = alias,
            None => break,
        }
    }
    answers.iter().filter(move |record| record.name.eq_ignore_root(name))
}

fn build(servers: &[SocketAddr], set: impl FnOnce(&mut ResolverOpts)) -> Result<TokioResolver, NetError> {
    let mut builder = if servers.is_empty() {
        TokioResolver::builder_tokio()?
    } else {
        let servers = servers.iter().map(|server| {
            let ways = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut way| {
                way.port = server.port();
                way
            });
            NameServerConfig::new(server.ip(), true, ways.into())
        });
        let config = ResolverConfig::from_parts(None, Vec::new(), servers.collect());
        let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        builder.options_mut().use_hosts_file = ResolveHosts::Never;
        builder
    };
    builder.options_mut().preserve_intermediates = true; // for `about`
    set(builder.options_mut());
    builder.build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_resolver::proto::rr::rdata::{A, CNAME};
    use std::str::FromStr;

    #[test]
    fn records_of_other_names_say_nothing() {
        let name = |text: &str| Name::from_str(text).unwrap();
        let a = |of: &str, last| Record::from_rdata(name(of), 60, RData::A(A::new(192, 0, 2, last)));
        let alias = |of: &str, to: &str| Record::from_rdata(name(of), 60, RData::CNAME(CNAME(name(to))));
        let asked = name("a.test.");
        let last = |answers: &[Record]| -> Vec<u8> {
            let addresses = about(&asked, answers).filter_map(|record| record.data.ip_addr());
            addresses
                .map(|address| address.to_string().rsplit('.').next().unwrap().parse().unwrap())
                .collect()
        };
        assert_eq!(last(&[a("A.test.", 1), a("b.test.", 2), a("a.test.", 3)]), [1, 3]);
        assert!(last(&[a("b.test.", 2)]).is_empty());
        assert_eq!(
            last(&[
                alias("b.test.", "c.test."),
                alias("a.test.", "b.test."),
                a("c.test.", 1),
                a("d.test.", 2)
            ]),
            [1],
            "in any order"
        );
        assert_eq!(last(&[alias("d.test.", "c.test."), a("c.test.", 2), a("a.test.", 1)]), [1]);
        let ring = [alias("a.test.", "b.test."), alias("b.test.", "a.test."), a("c.test.", 1)];
        assert!(last(&ring).is_empty());
    }
}
