//! `limits`: those of the server, and those that a site or a route sets for the requests to it.

use std::time::Duration;

use super::{networks, written_or_default};
use crate::check::{Checker, Item, duration, number};
use crate::diagnostic::Diagnostic;
use crate::directive::Context;
use crate::settings::{LimitOrigins, Limits, RequestLimits};
use crate::value::Value;

/// The limits of the server, and of requests whose site says nothing else.
pub(super) fn server(checker: &mut Checker<'_>, items: &[Item]) -> Limits {
    let block = items.iter().find(|item| item.directive.name == "limits");
    let children = block.map_or(&[][..], |item| &item.children);
    let find = |name: &str| written_or_default(children, Context::Limits, name);
    let amount = |name: &str| find(name).map_or(0, |item| number(&item));
    let count = |name: &str| find(name).map_or(0, |item| small(&item));
    let time = |name: &str| find(name).map(|item| duration(&item)).unwrap_or_default();
    let unless = |name: &str, word: &str| find(name).filter(|item| !item.is_word(word));
    let queue = find("queue");
    let mut request = RequestLimits::default();
    for directive in crate::directives::in_context(Context::RequestLimits) {
        if let Some(item) = find(directive.name) {
            directive.inheritance.apply_to_limits(&mut request, &item);
        }
    }
    let limits = Limits {
        request,
        connections: count("connections"),
        connections_per_address: unless("connections-per-address", "unlimited").map(|item| small(&item)),
        exempt_addresses: find("exempt-addresses").map(|item| networks(&item)).unwrap_or_default(),
        in_flight: count("in-flight"),
        incoming_bodies: count("incoming-bodies"),
        queue_length: match queue.as_ref().and_then(|item| item.property("length")) {
            Some(Value::Number(length)) => u32::try_from(length).unwrap_or(u32::MAX),
            _ => 0,
        },
        queue_age: match queue.as_ref().and_then(|item| item.property("age")) {
            Some(Value::Duration(age)) => age,
            _ => Duration::ZERO,
        },
        memory: unless("memory", "auto").map(|item| number(&item)),
        overload_delay: unless("overload-delay", "off").map(|item| duration(&item)),
        fields: u16::try_from(amount("fields")).unwrap_or(u16::MAX),
        head_timeout: time("head-timeout"),
        handshake_timeout: time("handshake-timeout"),
        streams: count("streams"),
        keep_alive_connections: count("keep-alive-connections"),
        unsent_size: count("unsent-size"),
        origins: LimitOrigins(
            children.iter().map(|item| (item.directive.name.to_owned(), item.origin())).collect(),
        ),
    };
    check_sizes(checker, children, &limits.request);
    limits
}

/// Says what is wrong with the limits of a site or a route. `of_server` are those that hold before the site is known.
pub(super) fn check(
    checker: &mut Checker<'_>,
    block: &Item,
    limits: &mut RequestLimits,
    of_server: &RequestLimits,
) {
    for item in &block.children {
        let (own, most) = match item.directive.name {
            "head-size" => (limits.head_size, of_server.head_size),
            "target-size" => (limits.target_size, of_server.target_size),
            _ => continue,
        };
        if own > most {
            let name = item.directive.name;
            let message = format!("`{name}` of a site or a route cannot be larger than that of the server");
            let help = format!(
                "the server reads a head before it knows whom it is for: raise `{name}` in `limits` at the top level, and \
                 lower it here where less is enough"
            );
            checker.diagnostics.push(item.error_at(0, message).help(help));
        }
    }
    // A head that is smaller holds no larger target.
    if !block.children.iter().any(|item| item.directive.name == "target-size") {
        limits.target_size = limits.target_size.min(limits.head_size);
    }
    check_sizes(checker, &block.children, limits);
}

fn check_sizes(checker: &mut Checker<'_>, children: &[Item], limits: &RequestLimits) {
    let written = ["target-size", "head-size"]
        .iter()
        .find_map(|name| children.iter().find(|item| item.directive.name == *name && item.first().is_some()));
    if limits.target_size > limits.head_size
        && let Some(item) = written
    {
        let message = "`target-size` is larger than `head-size`, which the target is part of";
        let help = "raise `head-size` above it, or lower `target-size`";
        checker.diagnostics.push(item.error(message).help(help));
    }
}

/// Says so where the limits of a route are never looked at, since no path leads to it.
pub(super) fn unreachable(block: &Item, name: &str) -> Diagnostic {
    let message =
        format!("`limits` cannot stand in the route `{name}`: no path leads to it, only `try` does");
    let help = "limits are those of the route that the path of a request leads to: write them in the site, or in the route \
                whose `try` leads here";
    block.error(message).help(help)
}

/// A number that the table bounds below 2^32.
pub(crate) fn small(item: &Item) -> u32 {
    u32::try_from(number(item)).unwrap_or(u32::MAX)
}
