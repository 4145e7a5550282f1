//! `listen`: the addresses that are listened on, each once however it is written.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

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
            written: address.clone(),
            backlog: backlog.map_or(0, |item| small(&item)),
            send_buffer: item.child("send-buffer").map(small),
            receive_buffer: item.child("receive-buffer").map(small),
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
        // The kernel gives a port to one who takes it on every address, or to those who take it on single ones: `[::]` is
        // every IPv4 address too.
        let port = address.port();
        let ip = address.ip().to_canonical();
        let around = [IpAddr::from(Ipv6Addr::UNSPECIFIED), IpAddr::from(Ipv4Addr::UNSPECIFIED)];
        let around = around.into_iter().filter(|all| *all != ip && (all.is_ipv6() || ip.is_ipv4()));
        let other = around
            .filter(|_| port != 0)
            .find_map(|all| Some((all, known.get(&ListenAddress::Tcp((all, port).into()))?)));
        if let Some((all, same)) = other {
            let all = SocketAddr::new(all, port);
            let message = format!("`{all}` takes the clients of this address already");
            let help = format!(
                "it is listened on in {same}, and both cannot be had; take one of the two out, or name single addresses \
                 there"
            );
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
