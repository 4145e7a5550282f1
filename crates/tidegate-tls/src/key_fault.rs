//! Why a private key or a certificate cannot be used, where the library only says that it cannot: cut off, damaged, too short.

use rustls::pki_types::{PrivateKeyDer, pem};

/// The shortest RSA key that is signed with, bits (NIST SP 800-131A; the library refuses shorter ones).
const RSA_LEAST: usize = 2048;

/// What is wrong with a PEM text.
pub(crate) fn pem_problem(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { end_marker } => {
            format!("it is cut off: `-----END {}-----` is missing", String::from_utf8_lossy(end_marker))
        }
        pem::Error::Base64Decode(_) => {
            "it is cut off or damaged: what stands between its first and last line is no whole base64".into()
        }
        other => other.to_string(),
    }
}

/// Whether a PEM text holds a key with a passphrase: of PKCS #8 (RFC 7468 section 11), or of the older form, which says so in a header
/// as those of RFC 1421 section 4.6.1.1 do.
pub(crate) fn has_passphrase(pem: &[u8]) -> bool {
    pem.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).any(|line| {
        let old = line.strip_prefix(b"Proc-Type:").is_some_and(|what| what.trim_ascii() == b"4,ENCRYPTED");
        old || line == b"-----BEGIN ENCRYPTED PRIVATE KEY-----"
    })
}

/// What is wrong with a key that the library does not take.
pub(crate) fn key_problem(key: &PrivateKeyDer<'_>, error: &rustls::Error) -> String {
    if let Some(problem) = length_problem(key.secret_der()) {
        return problem;
    }
    if let Some(bits) = rsa_bits(key).filter(|bits| *bits < RSA_LEAST) {
        return format!(
            "it is an RSA key of {bits} bits, and from {RSA_LEAST} bits on one is safe: make another"
        );
    }
    let error = match error {
        rustls::Error::General(said) => said.clone(),
        other => other.to_string(),
    };
    format!("{error} (RSA from 2048 bits, ECDSA P-256, P-384 and P-521, and Ed25519 can be used)")
}

/// Whether DER has another length than it says.
pub(crate) fn length_problem(der: &[u8]) -> Option<String> {
    let whole = match header(der) {
        Some((0x30, header, length)) => header.checked_add(length)?,
        _ => return Some("it is damaged: it does not begin as such a file does".into()),
    };
    (der.len() < whole)
        .then(|| format!("it is cut off: of its {whole} bytes {} are there; copy the whole file", der.len()))
}

/// Tag, length of the header and length of the content of what stands first (X.690 section 8.1).
fn header(der: &[u8]) -> Option<(u8, usize, usize)> {
    let (tag, first) = (*der.first()?, *der.get(1)?);
    if first < 0x80 {
        return Some((tag, 2, usize::from(first)));
    }
    let count = usize::from(first & 0x7f);
    let digits = der.get(2..2 + count).filter(|_| (1..=4).contains(&count))?;
    Some((tag, 2 + count, digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit))))
}

/// The content of what stands first, if it has this tag, and what follows.
fn take(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (_, header, length) = header(der).filter(|(found, ..)| *found == tag)?;
    der.get(header..)?.split_at_checked(length)
}

/// The bits of an RSA key's modulus (RFC 8017 appendix A.1.2); `None` for keys of other kinds.
fn rsa_bits(key: &PrivateKeyDer<'_>) -> Option<usize> {
    const SEQUENCE: u8 = 0x30;
    const INTEGER: u8 = 0x02;
    let der = match key {
        PrivateKeyDer::Pkcs1(_) => key.secret_der(),
        PrivateKeyDer::Pkcs8(_) => {
            let (inner, _) = take(key.secret_der(), SEQUENCE)?;
            let (_, behind_version) = take(inner, INTEGER)?;
            let (algorithm, behind) = take(behind_version, SEQUENCE)?;
            let (identifier, _) = take(algorithm, 0x06)?;
            // rsaEncryption: 1.2.840.113549.1.1.1
            if identifier != [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01] {
                return None;
            }
            take(behind, 0x04)?.0
        }
        _ => return None,
    };
    let (inner, _) = take(der, SEQUENCE)?;
    let (_, behind_version) = take(inner, INTEGER)?;
    let (modulus, _) = take(behind_version, INTEGER)?;
    let modulus = modulus.strip_prefix(&[0]).unwrap_or(modulus);
    let first = modulus.first()?;
    Some(modulus.len() * 8 - first.leading_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use crate::certificate::{Certificate, Pair};
    use std::process::Command;

    fn openssl(arguments: &[&str]) -> Vec<u8> {
        let made = Command::new("openssl").args(arguments).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        made.stdout
    }

    /// The first `bytes` of what is encoded, between the first and the last line.
    fn cut(pem: &[u8], digits: usize) -> Vec<u8> {
        let text = String::from_utf8(pem.to_vec()).unwrap();
        let mut lines = text.lines();
        let (first, mut lines) = (lines.next().unwrap(), lines.collect::<Vec<_>>());
        let last = lines.pop().unwrap();
        format!("{first}\n{}\n{last}\n", &lines.concat()[..digits]).into_bytes()
    }

    fn said(certificate: &[u8], key: &[u8]) -> String {
        let pair = Pair {
            certificate_name: "site.pem".into(),
            key_name: "site.key".into(),
            certificate: certificate.to_vec(),
            key: key.to_vec(),
        };
        Certificate::new(&pair).unwrap_err().to_string()
    }

    #[test]
    fn what_is_wrong_with_a_key_or_a_certificate() {
        if Command::new("openssl").arg("version").output().is_err() {
            eprintln!("SKIPPED: openssl is not installed");
            return;
        }
        let folder = std::env::temp_dir().join(format!("tidegate-key-fault-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = |name: &str| folder.join(name).display().to_string();
        let make = |kind: &[&str], key: &str| {
            let mut arguments = vec!["req", "-x509", "-nodes", "-subj", "/CN=a.test", "-keyout", key];
            arguments.extend(kind);
            openssl(&arguments)
        };
        let ec = make(&["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"], &path("ec.key"));
        let rsa = make(&["-newkey", "rsa:1024"], &path("rsa.key"));
        let ec_key = std::fs::read(path("ec.key")).unwrap();
        let rsa_key = std::fs::read(path("rsa.key")).unwrap();
        let old_key = openssl(&["rsa", "-in", &path("rsa.key"), "-traditional"]);
        let with_passphrase = |kind: &[&str]| {
            let arguments = [kind, &["-passout", "pass:secret"]].concat();
            openssl(&arguments)
        };
        let old_rsa = with_passphrase(&["rsa", "-in", &path("rsa.key"), "-aes128", "-traditional"]);
        let old_ec = with_passphrase(&["ec", "-in", &path("ec.key"), "-aes128"]);
        let pkcs8 = with_passphrase(&["pkey", "-in", &path("ec.key"), "-aes128"]);
        let in_dos_lines = String::from_utf8(old_ec.clone()).unwrap().replace('\n', "\r\n").into_bytes();
        let other = openssl(&["ecparam", "-name", "secp256k1", "-genkey", "-noout"]);
        std::fs::remove_dir_all(&folder).unwrap();
        for (name, said, expected) in [
            (
                "cut at a group",
                said(&ec, &cut(&ec_key, 80)),
                "site.key cannot be used: it is cut off: of its 138 bytes 60",
            ),
            (
                "cut in a group",
                said(&ec, &cut(&ec_key, 81)),
                "site.key cannot be used: it is cut off or damaged",
            ),
            ("no last line", said(&ec, &ec_key[..100]), "`-----END PRIVATE KEY-----` is missing"),
            ("another kind", said(&ec, b"no key"), "site.key holds no private key"),
            ("RSA 1024", said(&rsa, &rsa_key), "an RSA key of 1024 bits, and from 2048 bits on"),
            ("RSA 1024, PKCS #1", said(&rsa, &old_key), "an RSA key of 1024 bits, and from 2048 bits on"),
            ("a passphrase, RSA, older form", said(&rsa, &old_rsa), "site.key has a passphrase"),
            ("a passphrase, EC, older form", said(&ec, &old_ec), "`openssl pkey -in site.key -out NEW`"),
            ("a passphrase, lines of DOS", said(&ec, &in_dos_lines), "site.key has a passphrase"),
            ("a passphrase, PKCS #8", said(&ec, &pkcs8), "`openssl pkey -in site.key -out NEW`"),
            ("a curve that is none of ours", said(&ec, &other), "ECDSA P-256, P-384 and P-521"),
            (
                "certificate cut at a group",
                said(&cut(&ec, 200), &ec_key),
                "site.pem holds a certificate that cannot be read: it is cut off: of its",
            ),
            ("certificate cut in a group", said(&cut(&ec, 201), &ec_key), "it is cut off or damaged"),
        ] {
            assert!(said.contains(expected), "{name}: {said}");
            assert!(!said.contains("unexpected error"), "{name}: {said}");
        }
    }
}
