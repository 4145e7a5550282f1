//! Comparing a password with what a password file says of it.

use argon2::Argon2;
use argon2::password_hash::PasswordVerifier;
use md5::{Digest, Md5};
use sha_crypt::ShaCrypt;

/// Whether this is the password. Takes as long as the hash was made for, tens of milliseconds at best. A hash that cannot be
/// read is nobody's.
pub fn matches(hash: &str, password: &[u8]) -> bool {
    match hash.as_bytes() {
        [b'$', b'2', ..] => bcrypt::verify(password, hash).unwrap_or(false),
        [b'$', b'a', b'r', b'g', ..] => Argon2::default().verify_password(password, hash).is_ok(),
        [b'$', b'5' | b'6', b'$', ..] => ShaCrypt::default().verify_password(password, hash).is_ok(),
        [b'$', b'a', b'p', b'r', b'1', b'$', rest @ ..] => {
            let mut parts = rest.splitn(2, |byte| *byte == b'$');
            match (parts.next(), parts.next()) {
                (Some(salt), Some(expected)) => is_equal(&apr1(password, salt), expected),
                _ => false,
            }
        }
        _ => false,
    }
}

/// In a time that says nothing of where they differ.
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(one, other).is_ok()
}

/// The MD5 of Apache's `htpasswd` (`apr_md5_encode` in apr-util's crypto/apr_md5.c), behind its salt.
fn apr1(password: &[u8], salt: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    const ROUNDS: usize = 1000;
    let salt = &salt[..salt.len().min(8)];
    let inner = Md5::new().chain_update(password).chain_update(salt).chain_update(password).finalize();
    let mut first = Md5::new().chain_update(password).chain_update(b"$apr1$").chain_update(salt);
    for block in password.chunks(16) {
        first.update(&inner[..block.len()]);
    }
    let mut length = password.len();
    while length > 0 {
        // The letter that is used here is the first of the password, or none.
        first.update(if length & 1 == 1 { &[0][..] } else { &password[..1] });
        length >>= 1;
    }
    let mut sum = first.finalize();
    for round in 0..ROUNDS {
        let mut next = Md5::new();
        next.update(if round % 2 == 1 { password } else { &sum[..] });
        if round % 3 != 0 {
            next.update(salt);
        }
        if round % 7 != 0 {
            next.update(password);
        }
        next.update(if round % 2 == 1 { &sum[..] } else { password });
        sum = next.finalize();
    }
    let mut text = Vec::with_capacity(22);
    let mut digits = |mut number: u32, count: usize| {
        for _ in 0..count {
            text.push(DIGITS[(number & 63) as usize]);
            number >>= 6;
        }
    };
    for at in 0..5 {
        let last = if at == 4 { 5 } else { at + 12 };
        let three = [sum[at], sum[at + 6], sum[last]].map(u32::from);
        digits(three[0] << 16 | three[1] << 8 | three[2], 4);
    }
    digits(u32::from(sum[11]), 2);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by `htpasswd -nbB -C 4`, `openssl passwd -apr1`, `-5`, `-6` and `argon2`.
    #[test]
    fn hashes_of_every_kind() {
        for (hash, password) in HASHES {
            assert!(matches(hash, password.as_bytes()), "{hash}");
            assert!(!matches(hash, b"another"), "{hash}");
            assert!(!matches(hash, b""), "{hash}");
            let cut = &hash[..hash.len() - 1];
            assert!(!matches(cut, password.as_bytes()), "{cut}");
        }
        for nobody in ["", "$", "$2y$", "$apr1$", "$apr1$x", "$5$", "$6$rounds=1", "$argon2id$", "plain"] {
            assert!(!matches(nobody, b"plain") && !matches(nobody, b""), "{nobody}");
        }
    }

    #[rustfmt::skip]
    const HASHES: &[(&str, &str)] = &[
        ("$argon2id$v=19$m=64,t=1,p=1$c2FsdHNhbHQ$M6daiPe6tz+9L3yZOfVOPWabrR3zsy4Kzqj36NAXYug", "hello"),
        ("$argon2i$v=19$m=64,t=1,p=1$c2FsdHNhbHQ$UNh16QC49xUIHmH4OGXKg3k6uM8bOhSeKSmRo51AThI", "hello"),
        ("$argon2d$v=19$m=64,t=1,p=1$c2FsdHNhbHQ$DlYIVJ+V6ExSc3Rtp1u2bacqloghGyeYlVHq0B86sNI", "hello"),
        ("$2y$04$y4Y5Re1JD2AEXLxuHavvJeBe7nMIBNZUWBNPIGso401Qfa6Rmom0W", "hello"),
        ("$2y$04$ChDFkA.U4oGUrN95KYyibO3GnmhvE/i.KkwACtm5fpJu.IRtn7U/a", "s3cret pässword which is longer than 16"),
        ("$apr1$Qx5wZ9ab$1XKzto56N1RCFfXDqmcc/0", "hello"),
        ("$apr1$ab$0HUwYcJ3DAPbHupdaC/tP1", "hello"),
        ("$5$saltsalt$kfE3pS1dKPPHrilLCLWxLECEVLX8Au49cWIQg7GMQ05", "hello"),
        ("$6$saltsalt$YTeBOLnmm3CoeJTzBuijUEtOEWCqrw/nQ8/AeMmON4LGp3k0ZiMjC1OdqzWFUAfDQBvYkOch9BWtQTBcZ1E/p0", "hello"),
        ("$apr1$Qx5wZ9ab$oKCvA.HYie4YUfiFMbDqM0", "s3cret pässword which is longer than 16"),
        ("$apr1$ab$MbsG5N202PK3X/BE.APYO1", "s3cret pässword which is longer than 16"),
        ("$5$saltsalt$IC92ggbX4HbIR9toU5n7Lo1OMUl1QqRghsinV2r9qUD", "s3cret pässword which is longer than 16"),
        ("$6$saltsalt$6GYPrupSs.LjNWmS/IFEM1svhT1VSlxBsEVgCiD3JVWQ5dOMszSbmB6peIRQCeKkzqd76Ys0e91Wek3azNC4l0", "s3cret pässword which is longer than 16"),
        ("$apr1$Qx5wZ9ab$O8WmqlFB0g9/YkK3OdT200", "x"),
        ("$apr1$ab$eIePjsejfBGR8ITtu2z0U1", "x"),
        ("$5$saltsalt$hcyDOxdIg0p3xyqtpHh/v8Ph.am06tQaovp1KpEklb7", "x"),
        ("$6$saltsalt$8RWsOfwR6M6PpnoeQiEiWzNTPo1f0HjVYjDnLZhGx16aBFRkeqiHAzfXP/LgrOWMBMXqiU2pLrXsSOHNUyUm91", "x"),
    ];
}
