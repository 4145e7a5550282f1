//! `admin`: where the admin API is reached.

use super::check_folder;
use crate::check::{Checker, Item};
use crate::disk::Disk;
use crate::settings::{Admin, AdminListener, ListenAddress, TOKEN_LEAST, User, read_token};
use crate::value::Value;

/// What an `admin` says.
pub(super) fn admin(checker: &mut Checker<'_>, disk: &dyn Disk, item: &Item) -> Admin {
    let socket = item.child("socket").and_then(|item| {
        let Some(Value::Path(path)) = item.first() else { return None };
        check_folder(checker, disk, item, path, "the socket of the admin API");
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
        listeners.push(listener);
    }
    Admin { socket, user, listeners, origin: item.origin() }
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
