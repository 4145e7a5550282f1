//! Whether the client of a session that is about to be resumed would still be let in: its certificates are verified
//! anew, since they may have expired after the session was made (RFC 8446 section 4.6.1 has no end for a session
//! that is renewed again and again).
//!
//! [`crate::ticket`] asks before rustls sees the session; who is refused here makes a full handshake. Where rustls
//! keeps the certificates in a session is known here alone. A session that reads otherwise is not resumed.

use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;

/// Whether `verifier` lets in the client of a session, as of `now`.
pub(crate) fn holds(session: &[u8], verifier: &dyn ClientCertVerifier, now: UnixTime) -> bool {
    match chain(session).as_deref() {
        None => false,
        Some([]) => !verifier.client_auth_mandatory(),
        Some([client, above @ ..]) => verifier.verify_client_cert(client, above, now).is_ok(),
    }
}

/// The certificates of a client in a `ServerSessionValue` of rustls, which begins: server name, version, suite, secret,
/// extended master secret, certificates. None where it has shown none, `None` where it cannot be read.
fn chain(session: &[u8]) -> Option<Vec<CertificateDer<'_>>> {
    let mut rest = session;
    if take_flag(&mut rest)? {
        take_vector::<1>(&mut rest)?;
    }
    take(&mut rest, 4)?;
    take_vector::<1>(&mut rest)?;
    take_flag(&mut rest)?;
    let mut chain = Vec::new();
    if take_flag(&mut rest)? {
        let mut list = take_vector::<3>(&mut rest)?;
        while !list.is_empty() {
            chain.push(CertificateDer::from(take_vector::<3>(&mut list)?));
        }
    }
    Some(chain)
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(taken)
}

fn take_flag(rest: &mut &[u8]) -> Option<bool> {
    match take(rest, 1)? {
        [0] => Some(false),
        [1] => Some(true),
        _ => None,
    }
}

/// A vector with its length in front, of `N` bytes (RFC 8446 section 3.4).
fn take_vector<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = take(rest, N)?.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
    take(rest, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_read_up_to_its_certificates_or_not_at_all() {
        let name = [&[1, 6][..], b"a.test"].concat();
        let middle = [&[3, 4, 0x13, 1, 2, 7, 7, 1][..]].concat();
        let shown = [1, 0, 0, 9, 0, 0, 1, 0xa, 0, 0, 2, 0xb, 0xc];
        let with = [&name[..], &middle, &shown, &[0, 0, 0]].concat();
        let certificates: Vec<Vec<u8>> = chain(&with).unwrap().iter().map(|one| one.to_vec()).collect();
        assert_eq!(certificates, [vec![0xa], vec![0xb, 0xc]]);
        let without = [&[0][..], &middle, &[0]].concat();
        assert_eq!(chain(&without), Some(vec![]));
        let end = with.len() - 3;
        assert!((0..end).all(|end| chain(&with[..end]).is_none()));
        assert_eq!(chain(&[2]), None);
    }
}
