//! `admin`: where the admin API is reached.

use super::check_folder;
use crate::check::{Checker, Item};
use crate::disk::{Disk, What};
use crate::settings::{Admin, AdminListener, ListenAddress, Listener, TOKEN_LEAST, User, read_token};
use crate::value::Value;
use std::net::SocketAddr;

/// What an `admin` says.
pub(super) fn admin(checker: &mut Checker<'_>, disk: &dyn Disk, item: &Item, of_sites: &[Listener]) -> Admin {
    let socket = item.child("socket").and_then(|item| {
        let Some(Value::Path(path)) = item.first() else { return None };
        check_folder(checker, disk, item, path, "the socket of the admin API");
        if disk.what(path) == What::Folder {
            let message = format!("{} is a folder: no socket can be made in its place", path.display());
            let help = format!("name a file in it, such as \"{}/admin.sock\"", path.display());
            checker.diagnostics.push(item.error_at(0, message).help(help));
        }
        Some(path.clone())
    });
    let user = item.child("user").and_then(|item| {
        let name = item.texts().pop().filter(|name| !name.is_empty());
        if name.is_none() {
            let help = "name one, such as \"tidegate-admin\", or take the line out";
            checker.diagnostics.push(item.error("a user without a name").help(help));
        }
        Some(User { name: name?, group: None, origin: item.origin() })
    });
    let mut listeners: Vec<AdminListener> = Vec::new();
    for item in item.children.iter().filter(|item| item.directive.name == "listen") {
        let Some(listener) = listener(checker, disk, item) else { continue };
        if listeners.iter().any(|other| other.address == listener.address) {
            let problem = item.error_at(0, "this address is given twice");
            checker.diagnostics.push(problem.help("take one of the two out"));
            continue;
        }
        if let Some(taken) = of_sites.iter().find(|other| takes(other, listener.address)) {
            let message =
                format!("clients of the sites are listened to at this address: `listen` in {}", taken.origin);
            let help = "give the admin API an address of its own, such as another port";
            checker.diagnostics.push(item.error_at(0, message).help(help));
            continue;
        }
        listeners.push(listener);
    }
    Admin { socket, user, listeners, origin: item.origin() }
}

/// Whether a listener of the sites has an address, alone or with all others: the kernel gives it to one of the two.
fn takes(of_sites: &Listener, address: SocketAddr) -> bool {
    let ListenAddress::Tcp(other) = &of_sites.address else { return false };
    let (ip, other_ip) = (address.ip().to_canonical(), other.ip().to_canonical());
    let is_around = other_ip.is_unspecified() && (other_ip.is_ipv6() || ip.is_ipv4());
    address.port() != 0 && address.port() == other.port() && (ip == other_ip || is_around)
}

fn listener(checker: &mut Checker<'_>, disk: &dyn Disk, item: &Item) -> Option<AdminListener> {
    let address = match item.first()? {
        Value::Address(ListenAddress::Tcp(address)) => *address,
        _ => {
            let problem = item.error_at(0, "the admin API listens on an address and a port here");
            checker.diagnostics.push(problem.help("write `socket \"/path\"` for a unix socket"));
            return None;
        }
    };
    if !address.ip().to_canonical().is_loopback() {
        let message = format!("`{address}` is reached from other machines, and the admin API speaks no TLS");
        let help = "listen on `127.0.0.1`; for others, write a route with `console { change }` behind TLS and a `login`";
        checker.diagnostics.push(item.error_at(0, message).help(help));
        return None;
    }
    let Some(Value::Path(token_file)) = item.property("token-file") else {
        let problem = item.error("nothing says who may use the admin API at this address");
        let help = "add `token-file=\"/etc/tidegate/admin.token\"`; make it with `openssl rand -hex 32`";
        checker.diagnostics.push(problem.help(help));
        return None;
    };
    let wrong = match disk.read(&token_file) {
        Ok(bytes) if read_token(&bytes).is_some() => None,
        Ok(_) => Some(format!(
            "the first line of {} is no token of {TOKEN_LEAST} characters or more",
            token_file.display()
        )),
        Err(error) => Some(format!("the token {} cannot be read: {error}", token_file.display())),
    };
    if let Some(message) = wrong {
        let help = "make it with `openssl rand -hex 32`, readable for the user that starts the server alone";
        checker.diagnostics.push(item.error(message).help(help));
        return None;
    }
    Some(AdminListener { address, token_file })
}
