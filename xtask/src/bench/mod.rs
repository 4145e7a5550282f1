//! `cargo xtask bench`: what is measured, and the files that measure it.
//!
//! Figures that count are CPU time of a whole server and exact counts; wall time appears only beside a peer
//! of the same run. `static_files`, `idle` and `cold` start servers (`server`, `peers`); `instructions` needs none.

mod applications;
pub mod bare;
mod burst;
mod cache;
mod cache_peers;
pub mod canned;
mod cgi;
mod cold;
mod cpu;
mod crowd;
mod downloads;
mod events;
mod fairness;
mod gateway;
mod gateway_peers;
mod generator;
mod generators;
mod h2;
mod host;
mod idle;
mod instructions;
mod kills;
pub mod mix;
mod newest;
mod origin;
mod overload;
mod peers;
pub mod profile;
mod qos;
mod queue;
mod readers;
pub mod relay;
mod reload;
mod report;
pub mod responder;
mod rounds;
mod rows;
pub mod scripted;
mod server;
mod share;
mod slow;
mod slow_disk;
mod soak;
mod static_files;
mod tier;
mod tier_picture;
mod tls;
mod tls_peers;

use anyhow::Result;

#[derive(clap::Subcommand)]
pub enum Bench {
    /// Every figure that has a goal: measures it, says what is kept and missed, writes the documents
    Rows(rows::Arguments),
    /// Builds the newest versions of the peers that can be had, and says which there are
    Peers(newest::Arguments),
    /// Takes the profile by which the compiler builds what packages carry
    Profile(profile::Arguments),
    /// CPU per request and requests per second of static files, beside other servers
    Static(static_files::Arguments),
    /// Resident bytes of an idle keep-alive connection, beside other servers
    Idle(idle::Arguments),
    /// Latency of small requests while others pull a cold file from a slow disk, beside other servers
    Cold(cold::Arguments),
    /// CPU per request to an application, beside other servers
    Gateway(gateway::Arguments),
    /// What a stored answer costs, and what a crowd before one miss gets, beside other caches
    Cache(cache::Arguments),
    /// Requests per second of a CGI script, beside other servers
    Cgi(cgi::Arguments),
    /// CPU per TLS handshake and per file over TLS, and bytes of an idle connection, beside other servers
    Tls(tls::Arguments),
    /// CPU per file over HTTP/2 with TLS, beside other servers
    H2(h2::Arguments),
    /// A thousand clients before eight workers of an application, beside other servers
    Queue(queue::Arguments),
    /// Our load generator: CPU per request beside others, its schedule, its memory, its truth
    Generator(generators::Arguments),
    /// Ten thousand downloads beside nginx, thirty thousand that are all complete
    Downloads(downloads::Arguments),
    /// Downloads that are slow and steady, over every protocol: none may be cut
    Slow(slow::Arguments),
    /// What clients get at multiples of the peak, beside other servers
    Overload(overload::Arguments),
    /// Alternating bursts of many and few clients, beside other servers
    Burst(burst::Arguments),
    /// Reloads, upgrades and killed processes under load
    Reload(reload::Arguments),
    /// Processes of a pool that are killed under load
    Kills(kills::Arguments),
    /// A healthy site beside one whose application hangs
    Fairness(fairness::Arguments),
    /// Bandwidth and limits: how exact and fair they are, and what they cost, beside other servers
    Qos(qos::Arguments),
    /// Four front ends before a slow application: without a cache, with one each, with a tier behind them
    Tier(tier::Arguments),
    /// Half an hour of everything, in which nothing may grow
    Soak(soak::Arguments),
    /// Instructions per operation, compared with the stored baseline
    Instructions(instructions::Arguments),
}

/// Runs one bench.
pub fn run(bench: &Bench) -> Result<()> {
    match bench {
        Bench::Rows(arguments) => rows::run(arguments),
        Bench::Peers(arguments) => newest::run(arguments),
        Bench::Profile(arguments) => profile::run(arguments),
        Bench::Static(arguments) => static_files::run(arguments),
        Bench::Idle(arguments) => idle::run(arguments),
        Bench::Cold(arguments) => cold::run(arguments),
        Bench::Gateway(arguments) => gateway::run(arguments),
        Bench::Cache(arguments) => cache::run(arguments),
        Bench::Cgi(arguments) => cgi::run(arguments),
        Bench::Tls(arguments) => tls::run(arguments),
        Bench::H2(arguments) => h2::run(arguments),
        Bench::Queue(arguments) => queue::run(arguments),
        Bench::Generator(arguments) => generators::run(arguments),
        Bench::Downloads(arguments) => downloads::run(arguments),
        Bench::Slow(arguments) => slow::run(arguments),
        Bench::Overload(arguments) => overload::run(arguments),
        Bench::Burst(arguments) => burst::run(arguments),
        Bench::Reload(arguments) => reload::run(arguments),
        Bench::Kills(arguments) => kills::run(arguments),
        Bench::Fairness(arguments) => fairness::run(arguments),
        Bench::Qos(arguments) => qos::run(arguments),
        Bench::Tier(arguments) => tier::run(arguments),
        Bench::Soak(arguments) => soak::run(arguments),
        Bench::Instructions(arguments) => instructions::run(arguments),
    }
}
