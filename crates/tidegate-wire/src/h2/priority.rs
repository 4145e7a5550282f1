//! Priorities (RFC 9218): the `priority` field and PRIORITY_UPDATE.

use crate::h1::bytes::trim;

/// How soon a response is wanted, as the client sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priority {
    /// 0, the most urgent, to 7.
    pub urgency: u8,
    /// The client can use parts of it, so it may share with others of its urgency.
    pub is_incremental: bool,
}

impl Default for Priority {
    /// What a client that says nothing gets. RFC 9218 section 4.2 would have such responses one after the
    /// other; but who says nothing knows nothing of this scheme, and may well ask for something short
    /// behind something endless.
    fn default() -> Priority {
        Priority { urgency: 3, is_incremental: true }
    }
}

impl Priority {
    /// Reads a field value. What is missing or cannot be read has its default (section 4).
    pub fn parse(value: &[u8]) -> Priority {
        let mut priority = Priority { urgency: 3, is_incremental: false };
        for member in value.split(|byte| *byte == b',') {
            let member = member.split(|byte| *byte == b';').next().unwrap_or_default();
            match trim(member) {
                [b'u', b'=', urgency @ b'0'..=b'7'] => priority.urgency = urgency - b'0',
                b"i" | b"i=?1" => priority.is_incremental = true,
                b"i=?0" => priority.is_incremental = false,
                _ => {}
            }
        }
        priority
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        for (value, urgency, is_incremental) in [
            ("", 3, false),
            ("u=0", 0, false),
            ("u=7,i", 7, true),
            ("u=5, i=?1", 5, true),
            ("i, u=2", 2, true),
            ("i;a=1", 3, true),
            ("u=8", 3, false),
            ("u=-1", 3, false),
            ("u=1.5,i=?2", 3, false),
            ("u=1,u=2", 2, false),
            ("i=?1,i=?0", 3, false),
            ("\u{7f}u=1", 3, false),
        ] {
            assert_eq!(Priority::parse(value.as_bytes()), Priority { urgency, is_incremental }, "{value}");
        }
    }
}
