//! What a certificate has to be to be kept and served for a name. `manager` asks before it writes anything, and
//! writes what was looked at here, so that what an authority hands out never takes the place of a better one. It asks as
//! well when it reads what was kept.

use super::schedule::due_at;
use crate::certificate::{About, Certificate, CertificateError, Pair, certificates};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::net::IpAddr;

/// By how many seconds an authority's clock may be ahead of ours.
const CLOCK_TOLERANCE: i64 = 300;
/// Names of a certificate that a message lists.
const LISTED: usize = 5;

/// A certificate that may be kept.
pub(super) struct Accepted {
    /// What it says.
    pub(super) about: About,
    /// PEM: it, those of who signed it, its key; nothing else that the authority may have put between.
    pub(super) pem: String,
}

/// Looks at what an authority has just issued for a name: chain and key, PEM. `now` is in seconds since 1970. `is_renewal`: there
/// is one that can be served.
///
/// # Errors
/// A sentence about the authority: what it has answered is no certificate, one for another key or another name, or one
/// that is not in force; or a renewal that is due to be renewed already.
pub(super) fn accept_issued(
    name: &str,
    (certificate, key): (&str, &str),
    is_renewal: bool,
    now: i64,
) -> Result<Accepted, String> {
    let unreadable = |why: String| format!("its answer holds a certificate that cannot be read: {why}");
    let chain = certificates(certificate.as_bytes()).map_err(unreadable)?;
    let chain = chain.ok_or("it gave no certificate")?;
    let pem: String = chain.iter().map(|der| pem_of(der)).chain([key.to_owned()]).collect();
    let about = match Certificate::new(&Pair::in_one_file("its answer", pem.as_bytes())) {
        Ok(made) => made.about,
        Err(CertificateError::Malformed { why, .. }) => return Err(unreadable(why)),
        Err(CertificateError::Mismatch { .. }) => {
            return Err("it issued a certificate for another key than the one that was sent".into());
        }
        Err(error) => return Err(error.to_string()),
    };
    if let Some(fault) = fault(&about, name, now).or_else(|| prematurity(&about, now)) {
        return Err(format!("it issued a certificate {fault}"));
    }
    if is_renewal && due_at(about.not_before, about.not_after) <= now {
        let until = date(about.not_after);
        return Err(format!(
            "it issued a certificate that is due to be renewed already: it ends on {until}, and less than a third of its life is left"
        ));
    }
    Ok(Accepted { about, pem })
}

/// RFC 7468 section 5.
fn pem_of(der: &[u8]) -> String {
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in STANDARD.encode(der).as_bytes().chunks(64) {
        pem.extend(line.iter().copied().map(char::from));
        pem.push('\n');
    }
    pem + "-----END CERTIFICATE-----\n"
}

/// What a kept pair says; `None` where it cannot be served for this name now. One that is not in force yet was when it was issued:
/// it is this machine's clock that is behind, as after a start without a battery, and no authority could be asked by it.
pub(super) fn accept_kept(name: &str, pair: &Pair, now: i64) -> Option<About> {
    let about = Certificate::new(pair).ok()?.about;
    fault(&about, name, now).is_none().then_some(about)
}

/// Why a certificate cannot be served for a name, as the end of a sentence.
fn fault(about: &About, name: &str, now: i64) -> Option<String> {
    if !about.covers(&host(name)) {
        let mut names: Vec<&str> = about.names.iter().take(LISTED).map(String::as_str).collect();
        if about.names.len() > LISTED {
            names.push("…");
        }
        return Some(match names.is_empty() {
            true => "without a name".into(),
            false => format!("for another name: {}", names.join(", ")),
        });
    }
    if about.not_after <= now {
        return Some(format!("that has expired on {}", date(about.not_after)));
    }
    None
}

/// The same of one that was just issued, where it is not in force yet.
fn prematurity(about: &About, now: i64) -> Option<String> {
    let is_early = about.not_before > now.saturating_add(CLOCK_TOLERANCE);
    let said = || {
        let from = date(about.not_before);
        format!("that is not in force before {from}: its clock or this machine's is wrong")
    };
    is_early.then(said)
}

/// As certificates write it: an address without brackets, in its short form.
fn host(name: &str) -> String {
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    bare.parse::<IpAddr>().map_or_else(|_| bare.to_owned(), |address| address.to_string())
}

fn date(seconds: i64) -> String {
    time::OffsetDateTime::from_unix_timestamp(seconds)
        .map_or_else(|_| "a day that no calendar has".into(), |at| at.date().to_string())
}
