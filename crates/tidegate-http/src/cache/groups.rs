//! Names by which stored responses are found again: cache groups (RFC 9875) and tags for purging.
//!
//! Called when a response is stored, and with answers that invalidate.

use super::Rules;
use super::directives::strings;
use crate::field::{FieldLines, trim};

/// The most groups of a response that count; RFC 9875 section 2 asks for at least 32.
pub const MOST_GROUPS: usize = 128;
/// The most characters of a group; a longer one does not count. RFC 9875 section 2 asks for at least 32.
pub const LONGEST_GROUP: usize = 128;
/// The most tags of a response that count: an overview has those of all that it shows.
pub const MOST_TAGS: usize = 512;
/// The most bytes of a tag; a longer one does not count.
pub const LONGEST_TAG: usize = 1024;

/// The fields with tags, and what separates them.
pub const TAG_FIELDS: [&str; 2] = ["Cache-Tag", "Surrogate-Key"];

/// The groups that a response belongs to, of its origin alone.
pub fn groups(fields: &FieldLines) -> Vec<String> {
    named(fields, "Cache-Groups").take(MOST_GROUPS).collect()
}

/// The groups that an answer to an unsafe method makes invalid: all of them, as many as its head has room for.
pub(super) fn invalidated_groups(fields: &FieldLines) -> Vec<String> {
    named(fields, "Cache-Group-Invalidation").collect()
}

fn named(fields: &FieldLines, name: &str) -> impl Iterator<Item = String> {
    strings(fields, name).filter(|group| group.len() <= LONGEST_GROUP)
}

/// Takes the tags out of a response that goes to a client without being stored, but for what `rules` keep.
pub fn strip_tags(lines: &mut FieldLines, rules: &Rules) {
    if !rules.keeps_tags {
        for name in TAG_FIELDS {
            lines.remove(name);
        }
    }
}

/// The tags of a response, for purging: `Cache-Tag` has commas between them, `Surrogate-Key` spaces.
pub fn tags(fields: &FieldLines) -> impl Iterator<Item = &[u8]> {
    let commas = fields.all(TAG_FIELDS[0]).flat_map(|value| value.split(|byte| *byte == b','));
    let spaces = fields.all(TAG_FIELDS[1]).flat_map(|value| value.split(|byte| *byte == b' '));
    commas.chain(spaces).map(trim).filter(|tag| !tag.is_empty() && tag.len() <= LONGEST_TAG).take(MOST_TAGS)
}
