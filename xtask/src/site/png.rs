//! A PNG file from pixels, uncompressed: RFC 2083, with the stored blocks of RFC 1951. Used by `logo`.

/// Encodes `width` columns of RGBA pixels, row after row.
pub fn encode(width: usize, pixels: &[[u8; 4]]) -> Vec<u8> {
    let height = pixels.len() / width;
    let mut header = Vec::new();
    header.extend(be(width));
    header.extend(be(height));
    // 8 bits each of red, green, blue and alpha; deflate; no filter; not interlaced.
    header.extend([8, 6, 0, 0, 0]);

    let mut rows = Vec::new();
    for row in pixels.chunks(width) {
        rows.push(0);
        rows.extend(row.iter().flatten());
    }
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    chunk(&mut file, *b"IHDR", &header);
    chunk(&mut file, *b"IDAT", &zlib_stored(&rows));
    chunk(&mut file, *b"IEND", &[]);
    file
}

fn be(number: usize) -> [u8; 4] {
    u32::try_from(number).expect("invariant: images are small").to_be_bytes()
}

fn chunk(file: &mut Vec<u8>, name: [u8; 4], data: &[u8]) {
    file.extend(be(data.len()));
    let checked_from = file.len();
    file.extend(name);
    file.extend(data);
    let sum = crc32(&file[checked_from..]);
    file.extend(sum.to_be_bytes());
}

/// A zlib stream (RFC 1950) of stored blocks.
fn zlib_stored(data: &[u8]) -> Vec<u8> {
    let mut stream = vec![0x78, 0x01];
    let blocks = data.chunks(0xffff).count();
    for (index, block) in data.chunks(0xffff).enumerate() {
        let length = u16::try_from(block.len()).expect("invariant: chunks of 65,535");
        stream.push(u8::from(index + 1 == blocks));
        stream.extend(length.to_le_bytes());
        stream.extend((!length).to_le_bytes());
        stream.extend(block);
    }
    stream.extend(adler32(data).to_be_bytes());
    stream
}

fn adler32(data: &[u8]) -> u32 {
    let (mut a, mut b) = (1_u32, 0_u32);
    for &byte in data {
        a = (a + u32::from(byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    b << 16 | a
}

fn crc32(data: &[u8]) -> u32 {
    let mut sum = !0_u32;
    for &byte in data {
        sum ^= u32::from(byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
        }
    }
    !sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums() {
        // The check values of the two algorithms.
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(adler32(b"Wikipedia"), 0x11e6_0398);
    }

    #[test]
    fn a_long_row_takes_several_blocks() {
        let stream = zlib_stored(&vec![7; 0x1_0000]);
        assert_eq!(stream[2], 0, "the first block is not the last");
        assert_eq!(stream.len(), 2 + 5 + 0xffff + 5 + 1 + 4);
    }
}
