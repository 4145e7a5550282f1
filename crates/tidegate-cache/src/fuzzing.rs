//! What the fuzz targets call. Not part of the interface: a failed claim panics here, which nothing else in the crate may do.

use crate::disk::layout;

/// The header of an object is refused, or written again it is the same bytes but for the version. A second try gives the bytes the magic and the
/// checksum that fit, since no mutation finds those.
pub fn fuzz_object(data: &[u8]) {
    check_object(data);
    let mut bytes = data.to_vec();
    if bytes.len() < layout::FIXED {
        return;
    }
    bytes[..12].copy_from_slice(b"TGOBJECT\x01\0\0\0");
    // Inputs are short: the content begins where they end.
    bytes.resize(bytes.len().next_multiple_of(layout::ALIGNMENT as usize), 0);
    let content = bytes.len() as u32;
    bytes[72..76].copy_from_slice(&content.to_le_bytes());
    let checksum = crc32fast::hash(&bytes[16..]);
    bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
    check_object(&bytes);
}

fn check_object(bytes: &[u8]) {
    let Ok((header, content)) = layout::parse(bytes) else { return };
    assert!(content as usize <= bytes.len() && header.entity_length <= layout::LONGEST_ENTITY);
    let mut again = Vec::new();
    assert!(header.write(Some(content), &mut again));
    assert_eq!(again[12..], bytes[12..content as usize]);
    let last =
        layout::piece_range(layout::pieces(header.entity_length).saturating_sub(1), header.entity_length);
    assert_eq!(last.end, header.entity_length);
    assert!(layout::file_length(content, header.entity_length) >= content + header.entity_length);
}
