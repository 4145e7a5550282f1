//! `listen`: the addresses that are listened on, each once however it is written.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use super::limits::small;
use super::logs::resolved;
use super::{check_folder, written_or_default};
use crate::check::{Checker, Item};
use crate::directive::Context;
use crate::disk::Disk;
use crate::settings::{ListenAddress, Listener, Origin, SocketAccess};
use crate::value::Value;

/// The listeners, and the item of each.
pub(super) fn listeners(
    checker: &mut Checker<'_>,
    disk: &dyn Disk,
    items: &[Item],
) -> (Vec<Listener>, Vec<Item>) {
    let mut listeners: Vec<Listener> = Vec::new();
    let mut written = Vec::new();
    // By what the kernel takes them for.
    let mut known: HashMap<ListenAddress, Origin> = HashMap::new();
    for item in items.iter().filter(|item| item.directive.name == "listen") {
        let Some(Value::Address(address)) = item.first() else { continue };
        let is_chosen_by_kernel = matches!(address, ListenAddress::Tcp(address) if address.port() == 0);
        if !is_chosen_by_kernel {
            let bound = bound(disk, address);
            if let Some(same) = known.get(&bound) {
                let help = format!("it is listened on already in {same}; take one of the two out");
                checker.diagnostics.push(item.error_at(0, "this address is given twice").help(help));
                continue;
            }
            known.insert(bound, item.origin());
        }
        if let ListenAddress::Unix(path) = address {
            check_folder(checker, disk, item, path, "the socket");
        }
        let access = socket_access(checker, item, matches!(address, ListenAddress::Unix(_)));
        let backlog = written_or_default(&item.children, Context::Listen, "backlog");
        super::tls::check_listener(checker, item);
        let default_site = item.child("default-site");
        listeners.push(Listener {
            address: address.clone(),
            backlog: backlog.map_or(0, |item| small(&item)),
            default_site: default_site.and_then(|item| match item.first() {
                Some(Value::Host(host)) => Some(super::host_text(host)),
                _ => None,
            }),
            tls: item.child("tls").map(super::tls::listen),
            proxies: super::tls::proxies(checker, item),
            redirects_to_https: item.child("redirect-to-https").map(super::tls::port),
            access,
            h2c: item.child("h2c").is_some(),
            origin: item.origin(),
        });
        written.push(item.clone());
    }
    for (listener, item) in listeners.iter().zip(&written) {
        let ListenAddress::Tcp(address) = &listener.address else { continue };
        // Every IPv4 address is part of `[::]` already: one of the two would never see a client of IPv4.
        let both = ListenAddress::Tcp((Ipv6Addr::UNSPECIFIED, address.port()).into());
        if address.ip() == Ipv4Addr::UNSPECIFIED
            && address.port() != 0
            && let Some(same) = known.get(&both)
        {
            let message = format!("`[::]:{}` takes the clients of this address already", address.port());
            let help = format!("it is listened on in {same}; take one of the two out");
            checker.diagnostics.push(item.error_at(0, message).help(help));
        }
    }
    (listeners, written)
}

/// An address as the kernel sees it: the same for every way of writing it.
fn bound(disk: &dyn Disk, address: &ListenAddress) -> ListenAddress {
    match address {
        ListenAddress::Tcp(address) => {
            ListenAddress::Tcp(SocketAddr::new(address.ip().to_canonical(), address.port()))
        }
        ListenAddress::Unix(path) => ListenAddress::Unix(resolved(disk, path)),
    }
}

/// `mode`, `owner` and `group` of a unix socket.
fn socket_access(checker: &mut Checker<'_>, item: &Item, is_unix: bool) -> SocketAccess {
    let mut access = SocketAccess::default();
    for name in ["mode", "owner", "group"] {
        let Some(child) = item.child(name) else { continue };
        if !is_unix {
            let message = format!("`{name}` is for unix sockets, and this address is none");
            checker.diagnostics.push(child.error(message).help("take it out, or listen on \"unix:/path\""));
            continue;
        }
        let Some(text) = child.texts().pop() else { continue };
        match name {
            "owner" => access.owner = Some(text),
            "group" => access.group = Some(text),
            _ => match u32::from_str_radix(&text, 8) {
                Ok(mode) if mode <= 0o777 => access.mode = Some(mode),
                _ => {
                    let message = format!("`{text}` is no permission bits");
                    checker
                        .diagnostics
                        .push(child.error_at(0, message).help("write them in octal: \"0660\""));
                }
            },
        }
    }
    access
}
