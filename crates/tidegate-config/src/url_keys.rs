//! The file of a `url-keys`: what signed URLs are signed with.
//!
//! Read with the settings, by the master again when it changes, and by `tidegate sign-url`.

use crate::disk::{Disk, RealDisk};
use crate::settings::UrlKey;
use std::path::Path;

/// Most keys of a file: the one that signs, and the one before it.
const MOST: usize = 2;
/// Bytes of a key, at least and at most.
const LENGTHS: std::ops::RangeInclusive<usize> = 32..=256;

/// The keys of a file, the one that signs first.
///
/// # Errors
/// A sentence.
pub fn read_url_keys(path: &Path) -> Result<Vec<UrlKey>, String> {
    read(&RealDisk, path)
}

pub(crate) fn read(disk: &dyn Disk, path: &Path) -> Result<Vec<UrlKey>, String> {
    let text = crate::accounts::text_of(disk, path)
        .map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    parse(&text).map_err(|why| format!("{}: {why}", path.display()))
}

fn parse(text: &str) -> Result<Vec<UrlKey>, String> {
    let mut keys: Vec<UrlKey> = Vec::new();
    let lines = text.lines().enumerate().map(|(number, line)| (number + 1, line.trim()));
    for (line, text) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let key = UrlKey::from_base64(text).filter(|key| LENGTHS.contains(&key.bytes().len()));
        let Some(key) = key else {
            return Err(format!(
                "line {line} is no key of {} to {} bytes in base64",
                LENGTHS.start(),
                LENGTHS.end()
            ));
        };
        if keys.len() == MOST {
            return Err(format!(
                "line {line} is one key too many: the first signs, the second is the one before it"
            ));
        }
        keys.push(key);
    }
    match keys.is_empty() {
        true => Err("there is no key in it".into()),
        false => Ok(keys),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        let key = |byte: u8| UrlKey::from_bytes(vec![byte; 32]);
        let text = |byte: u8| key(byte).to_base64();
        let said =
            |text: &str| parse(text).map_err(|why| why.split(' ').take(2).collect::<Vec<_>>().join(" "));
        assert_eq!(said(&text(1)), Ok(vec![key(1)]));
        assert_eq!(said(&format!("# new\n\n {} \n{}\n", text(2), text(1))), Ok(vec![key(2), key(1)]));
        assert_eq!(said(&text(1).replace('+', "-").replace('/', "_").replace('=', "")), Ok(vec![key(1)]));
        for (text, why) in [
            (String::new(), "there is"),
            ("#".into(), "there is"),
            ("c2hvcnQ=".into(), "line 1"),
            (format!("{}\nsecret", text(1)), "line 2"),
            (format!("{0}\n{0}\n{0}", text(1)), "line 3"),
        ] {
            assert_eq!(said(&text), Err(why.to_owned()), "{text}");
        }
        assert!(!format!("{:?}", key(1)).contains('1'), "no log shows one");
    }
}
