//! `limit-store`: where several servers count together.

use std::net::{IpAddr, SocketAddr};

use super::directory::{is_here, password, path_of};
use crate::check::{Checker, Item};
use crate::diagnostic::{Diagnostic, Severity};
use crate::disk::Disk;
use crate::settings::LimitStore;
use crate::value::Value;

/// The port of Redis and of Valkey.
const PORT: u16 = 6379;

/// What a `limit-store` says; `None` where what is wrong with it has been said.
pub(super) fn limit_store(checker: &mut Checker<'_>, disk: &dyn Disk, item: &Item) -> Option<LimitStore> {
    let url = item.texts().into_iter().next()?;
    let Some((address, database)) = address(&url) else {
        let message = format!("`{url}` is no address of a store");
        let help = "write `\"redis://192.0.2.1:6379\"`, with `/2` behind it where its database is another one than 0; \
                    names are not looked up";
        checker.diagnostics.push(item.error_at(0, message).help(help));
        return None;
    };
    let text = |name| match item.property(name) {
        Some(Value::Text(text)) => Some(text),
        _ => None,
    };
    let password_file = path_of(item, "password-file");
    let password = match password_file.as_ref().map(|path| (password(disk, path), path)) {
        None => None,
        Some((Ok(password), _)) => Some(password),
        Some((Err(why), path)) => {
            let help = "put the password into its first line, readable for the user that starts the server";
            checker.diagnostics.push(item.error(format!("{} {why}", path.display())).help(help));
            return None;
        }
    };
    if text("user").is_some() && password.is_none() {
        let help = "name the file that holds it: `password-file=\"/etc/tidegate/store-password\"`";
        checker.diagnostics.push(item.error("a user of the store without a password").help(help));
        return None;
    }
    if password.is_some() && !is_here(&address.ip().to_string()) {
        let message = format!("the password crosses the network as it is on the way to `{url}`");
        let help = "keep the store in a network of your own, or reach it through a tunnel";
        let warning = Diagnostic { severity: Severity::Warning, ..item.error_at(0, message) };
        checker.diagnostics.push(warning.help(help));
    }
    let nodes = match item.property("nodes") {
        Some(Value::Number(nodes)) => u32::try_from(nodes).unwrap_or(1).max(1),
        _ => 1,
    };
    Some(LimitStore {
        address,
        database,
        user: text("user"),
        password,
        password_file,
        prefix: text("prefix")?,
        nodes,
        origin: item.origin(),
    })
}

/// Address and database of `redis://address:port/database`.
fn address(url: &str) -> Option<(SocketAddr, u32)> {
    let rest = url.strip_prefix("redis://").or_else(|| url.strip_prefix("valkey://"))?;
    let (host, database) = rest.split_once('/').unwrap_or((rest, ""));
    let database = if database.is_empty() { 0 } else { database.parse().ok()? };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let address = host.parse::<SocketAddr>().or_else(|_| {
        let ip = if bare == "localhost" { Ok(IpAddr::from([127, 0, 0, 1])) } else { bare.parse::<IpAddr>() };
        ip.map(|ip| SocketAddr::new(ip, PORT))
    });
    Some((address.ok().filter(|address| address.port() > 0)?, database))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (url, expected) in [
            ("redis://192.0.2.1", Some(("192.0.2.1:6379", 0))),
            ("valkey://192.0.2.1:7000/3", Some(("192.0.2.1:7000", 3))),
            ("redis://[2001:db8::1]", Some(("[2001:db8::1]:6379", 0))),
            ("redis://[2001:db8::1]:7000/", Some(("[2001:db8::1]:7000", 0))),
            ("redis://localhost", Some(("127.0.0.1:6379", 0))),
            ("redis://store.example", None),
            ("rediss://192.0.2.1", None),
            ("redis://192.0.2.1:0", None),
            ("redis://192.0.2.1/x", None),
            ("192.0.2.1:6379", None),
            ("redis://user:password@192.0.2.1", None),
        ] {
            let expected = expected.map(|(address, database)| (address.parse().unwrap(), database));
            assert_eq!(address(url), expected, "{url}");
        }
    }
}
