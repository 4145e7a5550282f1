//! The Huffman code of HPACK (RFC 7541 section 5.2 and appendix B).
//!
//! The code is canonical: codes of one length are consecutive, in the order of their symbols. So the lengths
//! say everything, and the tables are made of them when this is compiled.

use super::DecodeError;

/// Bits of the code of each byte, and of the end-of-string symbol.
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, //
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, //
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, //
    7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, //
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, //
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, //
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, //
    23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, //
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, //
    21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, //
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

const LONGEST: usize = 30;
/// The end-of-string symbol, which no string may hold.
const END: u16 = 256;
/// Codes up to this many bits are found in one step; they are all that text is made of.
const SHORT: usize = 8;

/// Codes of one length: the first of them, how many there are, and where their symbols begin.
#[derive(Clone, Copy)]
struct Run {
    first: u32,
    count: u32,
    symbols: u16,
}

static RUNS: [Run; LONGEST + 1] = tables().0;
static SYMBOLS: [u16; 257] = tables().1;
static CODES: [u32; 257] = tables().2;
/// Symbol and length by the next eight bits; length 0 where the code is longer.
static FIRST_BYTE: [(u8, u8); 256] = first_byte();

const fn tables() -> ([Run; LONGEST + 1], [u16; 257], [u32; 257]) {
    let mut runs = [Run { first: 0, count: 0, symbols: 0 }; LONGEST + 1];
    let mut symbols = [0; 257];
    let mut codes = [0; 257];
    let (mut code, mut filled, mut length) = (0u32, 0, 1);
    while length <= LONGEST {
        code <<= 1;
        runs[length] = Run { first: code, count: 0, symbols: filled as u16 };
        let mut symbol = 0;
        while symbol < 257 {
            if LENGTHS[symbol] as usize == length {
                symbols[filled] = symbol as u16;
                codes[symbol] = code;
                runs[length].count += 1;
                filled += 1;
                code += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    (runs, symbols, codes)
}

const fn first_byte() -> [(u8, u8); 256] {
    let codes = tables().2;
    let mut table = [(0, 0); 256];
    let mut symbol = 0;
    while symbol < 256 {
        let length = LENGTHS[symbol] as usize;
        if length <= SHORT {
            let mut at = (codes[symbol] as usize) << (SHORT - length);
            let end = at + (1 << (SHORT - length));
            while at < end {
                table[at] = (symbol as u8, length as u8);
                at += 1;
            }
        }
        symbol += 1;
    }
    table
}

/// Decodes a whole string onto `out`, which grows by at most 8/5 of `input`.
pub(super) fn decode(input: &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
    out.reserve(input.len() * 2);
    let mut input = input.iter();
    // The next bits, from the highest one down; what is not filled is 0.
    let (mut bits, mut filled) = (0u64, 0u32);
    loop {
        while filled <= 56 {
            let Some(byte) = input.next() else { break };
            bits |= u64::from(*byte) << (56 - filled);
            filled += 8;
        }
        if filled == 0 {
            return Ok(());
        }
        let (symbol, length) = match FIRST_BYTE[(bits >> 56) as usize] {
            (_, 0) => long_code(bits),
            (symbol, length) => (u16::from(symbol), u32::from(length)),
        };
        if length > filled {
            // Fewer than eight bits, all of them 1: the beginning of the end-of-string symbol.
            let is_padding = filled < 8 && bits >> (64 - filled) == (1 << filled) - 1;
            return if is_padding { Ok(()) } else { Err(DecodeError::HuffmanPadding) };
        }
        match u8::try_from(symbol) {
            Ok(byte) => out.push(byte),
            Err(_) => return Err(DecodeError::HuffmanEnd),
        }
        bits <<= length;
        filled -= length;
    }
}

/// Symbol and length of a code of more than eight bits.
#[cold]
fn long_code(bits: u64) -> (u16, u32) {
    for (length, run) in RUNS.iter().enumerate().skip(SHORT + 1) {
        let place = ((bits >> (64 - length)) as u32).wrapping_sub(run.first);
        if place < run.count {
            let symbol = SYMBOLS.get(usize::from(run.symbols) + place as usize).copied().unwrap_or(END);
            return (symbol, length as u32);
        }
    }
    (END, LONGEST as u32)
}

/// Bytes that `text` takes when it is encoded.
#[inline]
pub(super) fn encoded_length(text: &[u8]) -> usize {
    let bits: usize = text.iter().map(|byte| usize::from(LENGTHS[usize::from(*byte)])).sum();
    bits.div_ceil(8)
}

/// Encodes a whole string, padding included.
pub(super) fn encode(text: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut filled) = (0u64, 0u32);
    for byte in text {
        let length = u32::from(LENGTHS[usize::from(*byte)]);
        bits = bits << length | u64::from(CODES[usize::from(*byte)]);
        filled += length;
        while filled >= 8 {
            filled -= 8;
            out.push((bits >> filled) as u8);
        }
    }
    if filled > 0 {
        let padding = 8 - filled;
        out.push((bits << padding) as u8 | ((1 << padding) - 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_is_complete() {
        let sum: u64 = LENGTHS.iter().map(|length| 1 << (LONGEST - usize::from(*length))).sum();
        assert_eq!(sum, 1 << LONGEST);
        assert_eq!(CODES[usize::from(b'0')], 0);
        assert_eq!(CODES[256], 0x3fff_ffff);
    }

    #[test]
    fn every_byte_reads_back() {
        for byte in 0..=255u8 {
            for count in 1..9 {
                let text = vec![byte; count];
                let (mut encoded, mut decoded) = (Vec::new(), Vec::new());
                encode(&text, &mut encoded);
                assert_eq!(encoded.len(), encoded_length(&text));
                decode(&encoded, &mut decoded).unwrap();
                assert_eq!(decoded, text);
            }
        }
    }

    #[test]
    fn faults() {
        type Row = (&'static str, &'static [u8], Result<&'static [u8], DecodeError>);
        let rows: [Row; 8] = [
            ("nothing", b"", Ok(b"")),
            ("www.example.com", b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff", Ok(b"www.example.com")),
            ("padding of 7 bits", b"\x03\xff\xff", Err(DecodeError::HuffmanPadding)),
            ("a whole byte of padding", b"\xff", Err(DecodeError::HuffmanPadding)),
            ("padding of zeros", b"\x28", Err(DecodeError::HuffmanPadding)),
            ("the end symbol", b"\xff\xff\xff\xff", Err(DecodeError::HuffmanEnd)),
            ("the end symbol behind text", b"\x1f\xff\xff\xff\xff", Err(DecodeError::HuffmanEnd)),
            ("cut inside of a code", b"\xff\xff", Err(DecodeError::HuffmanPadding)),
        ];
        for (name, input, expected) in rows {
            let mut out = Vec::new();
            let result = decode(input, &mut out).map(|()| out.as_slice());
            assert_eq!(result, expected, "{name}");
        }
    }
}
