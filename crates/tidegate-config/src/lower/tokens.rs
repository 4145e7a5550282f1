//! `tokens`: who somebody is by a token.

use super::{Checker, Item, service};
use crate::check::duration;
use crate::directive::Context;
use crate::disk::Disk;
use crate::settings::{KeySource, Tokens};
use crate::token_keys;
use crate::value::Value;
use std::time::Duration;

/// The tokens of some users; `None` where what is wrong with them has been said.
pub(super) fn tokens(checker: &mut Checker<'_>, disk: &dyn Disk, item: &Item) -> Option<Tokens> {
    let (source, keys) = match item.first() {
        Some(Value::Path(file)) => {
            let keys = token_keys::read(disk, file).unwrap_or_else(|why| {
                let help = "an identity provider publishes its keys where `jwks_uri` of /.well-known/openid-configuration \
                            says; that address may stand in place of the file";
                checker.diagnostics.push(item.error_at(0, why).help(help));
                Vec::new()
            });
            (KeySource::File(file.clone()), keys)
        }
        // It is asked by those who need it: starting never depends on it.
        Some(Value::Service(url)) => {
            (KeySource::Service(Box::new(service::address(checker, item, url))), Vec::new())
        }
        _ => return None,
    };
    if let (KeySource::File(_), Some(tls)) = (&source, item.child("tls")) {
        let message = "`tls` is for keys that come from an address";
        checker.diagnostics.push(tls.error(message).help("take it out"));
    }
    for (name, help) in [
        ("issuer", "say who has to have issued a token: `issuer \"https://id.example.com\"`"),
        ("audience", "say for whom a token has to be: `audience \"api\"`"),
    ] {
        if item.child(name).is_none() && !item.misspells(Context::Tokens, &[name]) {
            checker.diagnostics.push(item.error(format!("these tokens have no `{name}`")).help(help));
        }
    }
    let find = |name: &str| super::written_or_default(&item.children, Context::Tokens, name);
    let text = |name: &str| find(name).and_then(|child| child.texts().into_iter().next());
    Some(Tokens {
        source,
        keys: keys.into(),
        issuer: text("issuer")?,
        audience: item.child("audience")?.texts(),
        user: text("user")?,
        groups: text("groups"),
        leeway: find("leeway").map_or(Duration::ZERO, |item| duration(&item)),
    })
}
