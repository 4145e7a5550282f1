//! Who asks name servers: those of the settings (`dns`), else those of the machine.
//!
//! Used by the master for members of upstream groups, and by server processes for the names of clients.

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use std::net::SocketAddr;
use tidegate_config::settings::Dns;

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
    set(builder.options_mut());
    builder.build()
}
