//! `forward`: an application that decides who gets in.

use super::gateway::backend_tls;
use super::{Checker, Item};
use crate::check::{duration, number};
use crate::directive::Context;
use crate::settings::gateway::{Connections, Destination, Gateway};
use crate::settings::{Forward, Remembering};
use crate::value::{Value, asks_for_user, is_constant};
use std::collections::BTreeSet;
use std::time::Duration;

/// Idle connections that each worker keeps to it, and for how long.
const KEEP: (u32, Duration) = (32, Duration::from_secs(30));
/// Requests that wait where more are under way than it should be asked at once.
const QUEUE: u32 = 1024;

/// The application of some users; `upstreams` may be named.
pub(super) fn forward(
    checker: &mut Checker<'_>,
    item: &Item,
    upstreams: &BTreeSet<String>,
) -> Option<Forward> {
    let Some(Value::Url(to, base, tls_name, is_http2)) = item.first() else { return None };
    if *is_http2 {
        let message = "who gets in is asked over HTTP/1.1";
        let help = "write the address with `http` or `https`";
        checker.diagnostics.push(item.error_at(0, message).help(help));
    }
    if let Destination::Named(name) = to
        && !upstreams.contains(name)
        && !name.contains(':')
    {
        let message = format!("no upstream is named `{name}`");
        let help = format!(
            "add `upstream \"{name}\" {{ member \"{name}:80\" }}`, or write an address: `\"http://127.0.0.1:9091/verify\"`"
        );
        checker.diagnostics.push(item.error_at(0, message).help(help));
    }
    let find = |name: &str| super::written_or_default(&item.children, Context::Forward, name);
    let text = |name: &str| item.child(name).and_then(|child| child.texts().into_iter().next());
    let copies = item.children.iter().filter(|child| child.directive.name == "copy");
    let mut copy: Vec<String> = copies.flat_map(Item::texts).map(|name| name.to_ascii_lowercase()).collect();
    copy.sort_unstable();
    copy.dedup();
    let cache = item.child("cache").and_then(|child| {
        let Some(Value::Text(by)) = child.property("by") else {
            let message = "`cache` does not say what a decision depends on";
            let help = "name what tells one user from another: `cache \"10s\" by=\"{cookie.session}\"`";
            checker.diagnostics.push(child.error(message).help(help));
            return None;
        };
        if asks_for_user(&by) || is_constant(&by) {
            let message = "with this all clients would share one decision";
            let help = "name what tells one user from another: `by=\"{cookie.session}\"`";
            checker.diagnostics.push(child.error(message).help(help));
        }
        Some(Remembering { lifetime: duration(child), by })
    });
    let timeout = find("timeout").map_or(Duration::from_secs(5), |item| duration(&item));
    let base = text("path").map_or_else(|| base.clone(), |path| format!("{base}{path}"));
    Some(Forward {
        gateway: Gateway {
            to: to.clone(),
            tls: backend_tls(checker, item, tls_name.clone()),
            connect_timeout: timeout,
            timeout,
            keep: KEEP.0,
            keep_timeout: KEEP.1,
            connections: Connections::Auto,
            queue_length: QUEUE,
            queue_age: timeout,
            buffer: 0,
            request_buffer: 0,
            sendfile: Vec::new(),
            passed_fields: Vec::new(),
            passes_encoded_slashes: false,
        },
        path: if base.is_empty() { "/".to_owned() } else { base },
        host: text("host"),
        copy,
        user: text("user"),
        groups: text("groups"),
        timeout,
        content: find("content").map_or(0, |item| number(&item)),
        cache,
    })
}
