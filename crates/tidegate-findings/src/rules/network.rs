//! The network: what is lost on the way, and links that are full.

use super::{Concern, Seen, bytes, of, of_server, percent};
use crate::window::{Sample, Window, all, over, share};
use tidegate_modules::status::Change;

/// Of the segments sent, those that had to be sent again.
const RESENT: f64 = 0.02;
/// Segments in the window without which that means nothing.
const SEGMENTS: f64 = 10_000.0;
/// Of what a link can send, what it does.
const FULL: f64 = 0.9;

pub(super) fn retransmits(window: &Window<'_>) -> Vec<Seen> {
    let sent = window.risen(|sample| sample.host.tcp.sent);
    let lost = share(window.risen(|sample| sample.host.tcp.resent), sent);
    let ratio = all([over(lost, RESENT), over(sent as f64, SEGMENTS)]);
    let sentence = || {
        format!(
            "{:.1} % of what is sent gets lost on the way and is sent again: that is the network, not this server",
            lost * 100.0
        )
    };
    of_server(window, ratio, sentence, || {
        Change::told(
            "look at the links between here and the clients (`ip -s link`, `ethtool -S`, the provider); until then `sysctl -w \
             net.ipv4.tcp_congestion_control=bbr` loses less speed by it than cubic",
        )
    })
}

pub(super) fn link_full(window: &Window<'_>) -> Vec<Seen> {
    let link = |link: &crate::NetworkLink| {
        let sent = |sample: &Sample| {
            sample.host.links.iter().find(|known| known.name == link.name).map_or(0, |known| known.sent)
        };
        let speed = window.step(sent) as f64 / window.step_seconds();
        let used = speed / link.speed.max(1) as f64;
        let sentence = || {
            format!(
                "the network interface {} sends {} a second, {} of what it can: answers wait for the link",
                link.name,
                bytes(speed as u64),
                percent(used)
            )
        };
        let seen = of(window, link.name.as_str(), over(used, FULL), sentence, || {
            Change::told(
                "send less (`compress`, `precompressed`, smaller pictures), share it out (`bandwidth`), or get a faster link",
            )
        });
        seen.map(|seen| seen.concerning([Concern::Machine]))
    };
    window.now().host.links.iter().filter_map(link).collect()
}
