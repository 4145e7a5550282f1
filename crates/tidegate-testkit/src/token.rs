//! Words and quoted strings of a transcript line, and the `${NAME}` places in them.
//!
//! Used by the transcript parser. Knows no directive.

use std::collections::BTreeMap;

/// A word, or what stood between quotes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token {
    /// A run of bytes without white space.
    Word(String),
    /// The bytes of a quoted string, escapes resolved; or of a block between `"""` lines.
    Quoted(Vec<u8>),
}

/// Splits a line into tokens. `#` at the start of a token begins a comment.
pub(crate) fn tokens(line: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() && !rest.starts_with('#') {
        if let Some(quoted) = rest.strip_prefix('"') {
            let (bytes, after) = unquote(quoted)?;
            tokens.push(Token::Quoted(bytes));
            rest = after;
        } else {
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            tokens.push(Token::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        rest = rest.trim_start();
    }
    Ok(tokens)
}

/// Resolves the escapes up to the closing quote: `\r \n \t \0 \\ \" \xHH`.
fn unquote(text: &str) -> Result<(Vec<u8>, &str), String> {
    let mut bytes = Vec::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Ok((bytes, &text[at + 1..])),
            '\\' => {
                let escape = characters.next().map(|(_, escape)| escape);
                bytes.push(match escape {
                    Some('r') => b'\r',
                    Some('n') => b'\n',
                    Some('t') => b'\t',
                    Some('0') => 0,
                    Some('\\') => b'\\',
                    Some('"') => b'"',
                    Some('x') => {
                        let digits: String = characters.by_ref().take(2).map(|(_, digit)| digit).collect();
                        u8::from_str_radix(&digits, 16).map_err(|_| format!("`\\x{digits}` is no byte"))?
                    }
                    other => return Err(format!("unknown escape `\\{}`", other.unwrap_or(' '))),
                });
            }
            other => bytes.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Err("a quoted string does not end".to_owned())
}

/// The values behind `${NAME}`.
pub(crate) type Variables = BTreeMap<String, Vec<u8>>;

/// Fills in every `${NAME}`.
pub(crate) fn substitute(template: &[u8], variables: &Variables) -> Result<Vec<u8>, String> {
    let mut filled = Vec::with_capacity(template.len());
    let mut rest = template;
    while let Some(start) = rest.windows(2).position(|pair| pair == b"${") {
        filled.extend_from_slice(&rest[..start]);
        let name_on = &rest[start + 2..];
        let end = name_on.iter().position(|byte| *byte == b'}').ok_or("`${` without `}`")?;
        let name = String::from_utf8_lossy(&name_on[..end]);
        let value = variables.get(name.as_ref()).ok_or_else(|| {
            let known: Vec<&str> = variables.keys().map(String::as_str).collect();
            format!("`${{{name}}}` is not known here; known: {}", known.join(", "))
        })?;
        filled.extend_from_slice(value);
        rest = &name_on[end + 1..];
    }
    filled.extend_from_slice(rest);
    Ok(filled)
}

/// [`substitute`] for what is text.
pub(crate) fn substitute_text(template: &str, variables: &Variables) -> Result<String, String> {
    let filled = substitute(template.as_bytes(), variables)?;
    String::from_utf8(filled).map_err(|_| "not valid UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_quotes_and_comments() {
        let line = r#"  file a.txt "x\r\n\x00\"é" mtime=3 # why"#;
        let expected = [
            Token::Word("file".into()),
            Token::Word("a.txt".into()),
            Token::Quoted("x\r\n\0\"é".as_bytes().to_vec()),
            Token::Word("mtime=3".into()),
        ];
        assert_eq!(tokens(line).expect("valid"), expected);
        for broken in ["\"open", r#""\q""#, r#""\xg0""#, r#""\"#] {
            assert!(tokens(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn variables_are_filled_in() {
        let variables = Variables::from([("DIR".to_owned(), b"/tmp/x".to_vec())]);
        assert_eq!(substitute(b"a ${DIR}/b$ ${DIR}", &variables).expect("known"), b"a /tmp/x/b$ /tmp/x");
        assert!(substitute(b"${NONE}", &variables).is_err());
        assert!(substitute(b"${DIR", &variables).is_err());
    }
}
