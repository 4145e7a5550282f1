//! `openid`: an identity provider.

use super::directory::password;
use super::{Checker, Item, service};
use crate::check::duration;
use crate::directive::Context;
use crate::disk::Disk;
use crate::settings::{OpenId, ServiceAddress};
use crate::url_keys;
use crate::value::Value;
use std::time::Duration;

/// Where a provider says what it has (OpenID Connect Discovery 1.0 section 4).
const DISCOVERY: &str = "/.well-known/openid-configuration";

/// The provider of some users; `None` where what is wrong with it has been said.
pub(super) fn openid(checker: &mut Checker<'_>, disk: &dyn Disk, item: &Item) -> Option<OpenId> {
    let Some(Value::Service(url)) = item.first() else { return None };
    if url.path.contains('?') {
        let message = format!("`{}` is no issuer: it has a query", url.url);
        checker.diagnostics.push(item.error_at(0, message).help("write it as the provider calls itself"));
        return None;
    }
    for (name, help) in [
        (
            "client",
            "say what the provider calls this server: `client \"tidegate\" secret-file=\"openid-secret\"`",
        ),
        (
            "session-keys",
            "name the file that sessions are sealed with: `openssl rand -base64 32 > session-keys`",
        ),
    ] {
        if item.child(name).is_none() && !item.misspells(Context::Openid, &[name]) {
            checker.diagnostics.push(item.error(format!("this provider has no `{name}`")).help(help));
        }
    }
    let mut discovery = url.clone();
    discovery.path = format!("{}{DISCOVERY}", url.path.trim_end_matches('/'));
    let discovery = service::address(checker, item, &discovery);
    let elsewhere = |checker: &mut Checker<'_>, name: &str| -> Option<ServiceAddress> {
        let child = item.child(name)?;
        let Some(Value::Service(url)) = child.first() else { return None };
        let mut found = service::address(checker, child, url);
        // What is said of TLS holds for all of the provider.
        if let (Some(tls), Some(own)) = (&mut found.gateway.tls, &discovery.gateway.tls) {
            tls.trust = own.trust.clone();
        }
        Some(found)
    };
    let (keys, token) = (elsewhere(checker, "keys"), elsewhere(checker, "token-endpoint"));
    let find = |name: &str| super::written_or_default(&item.children, Context::Openid, name);
    let text = |name: &str| find(name).and_then(|child| child.texts().into_iter().next());
    let client = item.child("client")?;
    let secret_file = match client.property("secret-file") {
        Some(Value::Path(path)) => Some(path),
        _ => None,
    };
    let secret = match &secret_file {
        Some(path) => match password(disk, path) {
            Ok(secret) => Some(secret),
            Err(why) => {
                let help = "put the secret into its first line, readable for the user that starts the server";
                let why = why.replace("no password", "no secret");
                checker.diagnostics.push(client.error(format!("{} {why}", path.display())).help(help));
                None
            }
        },
        _ => None,
    };
    let sealed = item.child("session-keys")?;
    let Some(Value::Path(file)) = sealed.first() else { return None };
    let session_keys = url_keys::read(disk, file).unwrap_or_else(|why| {
        let help = "a key is a line, such as `openssl rand -base64 32` writes it; the file is for the user alone that starts \
                    the server";
        checker.diagnostics.push(sealed.error_at(0, why).help(help));
        Vec::new()
    });
    let logout = find("logout");
    let openid = OpenId {
        issuer: url.url.clone(),
        discovery,
        keys,
        token,
        client: client.texts().into_iter().next()?,
        secret_file,
        secret,
        session_keys_file: file.clone(),
        session_keys: session_keys.into(),
        scopes: item.child("scopes").map(Item::texts).unwrap_or_default(),
        user: text("user")?,
        groups: text("groups"),
        session: find("session").map_or(Duration::from_secs(8 * 3600), |item| duration(&item)),
        refresh: find("refresh").map(|item| duration(&item)),
        leeway: find("leeway").map_or(Duration::ZERO, |item| duration(&item)),
        callback: text("callback")?,
        logout: text("logout")?,
        after_logout: logout.and_then(|logout| match logout.property("to") {
            Some(Value::Text(to)) => Some(to),
            _ => None,
        }),
    };
    if let Some(refresh) = openid.refresh.filter(|refresh| *refresh >= openid.session) {
        let (refresh, session) = (refresh.as_secs(), openid.session.as_secs());
        let message =
            format!("`refresh` asks again after {refresh} s, and the session is over after {session} s");
        let place = item.child("refresh").unwrap_or(item);
        checker.diagnostics.push(place.error(message).help("make `refresh` shorter, or `session` longer"));
    }
    if openid.callback == openid.logout {
        let message = format!("`callback` and `logout` are both `{}`", openid.callback);
        checker.diagnostics.push(item.error(message).help("give one of the two another path"));
    }
    Some(openid)
}
