//! What an operator should know about a certificate before clients find out: for `check`, status and the log.

use crate::certificate::{Certificate, KeyKind};

const DAY: i64 = 86_400;

/// Less than this left is worth a word, and less than this part of its life.
const SOON: i64 = 21 * DAY;
const PART: i64 = 4;

/// How long before its end a certificate is worth a word, seconds: three weeks, or a quarter of a life that is shorter than
/// twelve. Whoever speaks of it goes by this.
pub fn ends_soon_within(not_before: i64, not_after: i64) -> i64 {
    SOON.min(not_after.saturating_sub(not_before).max(0) / PART)
}

/// Something to know about a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Clients refuse it as it is; otherwise it is a matter of caution.
    pub is_fatal: bool,
    /// What is so, and what to do.
    pub said: String,
}

/// Looks a certificate over. `hosts` are the names that its site answers to, stars included; `now` is in
/// seconds since 1970.
pub fn findings(certificate: &Certificate, hosts: &[String], now: i64) -> Vec<Finding> {
    let about = &certificate.about;
    let mut found = Vec::new();
    let mut say = |is_fatal, said: String| found.push(Finding { is_fatal, said });
    if now >= about.not_after {
        say(true, format!("it has expired {}; renew it", ago(now - about.not_after)));
    } else if now < about.not_before {
        say(
            true,
            format!("it is not good yet, only in {}; is the clock right?", span(about.not_before - now)),
        );
    } else if about.not_after - now < ends_soon_within(about.not_before, about.not_after) {
        say(false, format!("it expires in {}; renew it", span(about.not_after - now)));
    }
    match about.key {
        KeyKind::Rsa(bits) if bits < 2048 => {
            say(
                true,
                format!(
                    "its RSA key has {bits} bits, and clients want 2048; make a new one, best ECDSA P-256"
                ),
            );
        }
        KeyKind::Other => say(true, "its key is of a kind that browsers do not know; use ECDSA P-256".into()),
        KeyKind::Ed25519 => {
            say(false, "its key is Ed25519, which browsers do not offer; add one with ECDSA P-256".into());
        }
        KeyKind::Ecdsa(_) | KeyKind::Rsa(_) => {}
    }
    if about.has_weak_signature && !about.is_self_signed {
        say(true, "it is signed with SHA-1 or MD5, which clients refuse; have it signed anew".into());
    }
    if about.names.is_empty() {
        say(
            true,
            "it names no host (subjectAltName), so no browser takes it; make a new one that does".into(),
        );
    } else {
        let missing: Vec<&str> =
            hosts.iter().map(String::as_str).filter(|host| !is_covered(certificate, host)).collect();
        if !missing.is_empty() {
            say(
                false,
                format!(
                    "it is good for {}, but not for {}; get one that names them as well, or let another site answer for them",
                    about.names.join(", "),
                    missing.join(", ")
                ),
            );
        }
    }
    if about.is_self_signed {
        say(false, "it is signed by itself, so clients must be told to trust it".into());
    } else if certificate.chain.is_empty() {
        say(
            false,
            format!(
                "the file holds no certificate of who signed it ({}); append it, or some clients cannot verify yours",
                about.issuer
            ),
        );
    }
    let mut below = about;
    for above in &certificate.chain {
        if below.issuer != above.subject {
            say(
                false,
                format!(
                    "the chain is out of order: {} is followed by {}, but signed by {}",
                    below.subject, above.subject, below.issuer
                ),
            );
            break;
        }
        if now >= above.not_after {
            say(true, format!("{} in its chain has expired {}", above.subject, ago(now - above.not_after)));
        }
        below = above;
    }
    found
}

fn is_covered(certificate: &Certificate, host: &str) -> bool {
    let names = &certificate.about.names;
    names.iter().any(|name| name == host) || (!host.starts_with('*') && certificate.about.covers(host))
}

fn ago(seconds: i64) -> String {
    format!("{} ago", span(seconds))
}

/// A length of time in its largest whole unit.
pub fn span(seconds: i64) -> String {
    let counted = |count: i64, unit: &str| format!("{count} {unit}{}", if count == 1 { "" } else { "s" });
    match seconds {
        0..=7199 => counted(seconds / 60, "minute"),
        7200..=172_799 => counted(seconds / 3600, "hour"),
        _ => counted(seconds / DAY, "day"),
    }
}
