//! Bodies: faults of the chunked coding by number, limits, trailers, the three other lengths.

use tidegate_wire::h1::*;

const LIMITS: HeadLimits = HeadLimits { head_size: 32 << 10, target_size: 8 << 10, fields: 100 };

/// Data, and what is left behind the body.
fn read(body: BodyLength, input: &[u8], limits: HeadLimits) -> Result<(Vec<u8>, Vec<u8>, bool), BodyError> {
    let (mut decoder, mut rest, mut data) = (BodyDecoder::new(body, limits), input, Vec::new());
    while !decoder.is_complete() && !rest.is_empty() {
        let piece = decoder.decode(rest)?;
        data.extend_from_slice(piece.data);
        rest = &rest[piece.consumed..];
    }
    Ok((data, rest.to_vec(), decoder.is_complete()))
}

#[test]
fn faults_of_chunks() {
    use BodyError::*;
    let rows: &[(&str, &[u8], BodyError)] = &[
        ("8 bare LF behind a size", b"5\nhello\r\n0\r\n\r\n", BareLf),
        ("8 bare LF behind data", b"5\r\nhello\n0\r\n\r\n", BareLf),
        ("8 bare LF behind the last size", b"0\n\r\n", BareLf),
        ("8 bare LF behind an extension name", b"5;a\nhello\r\n0\r\n\r\n", BareLf),
        ("8 bare LF behind a semicolon", b"5;\nhello\r\n0\r\n\r\n", BareLf),
        ("8 bare LF behind an extension value", b"5;a=b\nhello\r\n0\r\n\r\n", BareLf),
        ("8 bare LF for the empty line", b"0\r\n\n", Trailer(FieldError::BareLf)),
        ("8 bare LF behind a trailer", b"0\r\nA: b\n\r\n", Trailer(FieldError::BareLf)),
        ("7 bare CR behind a size", b"5\rhello\r\n0\r\n\r\n", BareCr),
        ("7 bare CR behind data", b"5\r\nhello\r0\r\n\r\n", BareCr),
        ("7 two CR", b"5\r\r\nhello\r\n0\r\n\r\n", BareCr),
        ("7 bare CR for the empty line", b"0\r\n\rX\n", Trailer(FieldError::BareCr)),
        ("9 LF hidden in a quoted value", b"5;a=\"\n\"\r\nhello\r\n0\r\n\r\n", BareLf),
        ("9 CRLF hidden in a quoted value", b"5;a=\"\r\n\"\r\nhello\r\n0\r\n\r\n", InvalidExtension),
        ("9 CR hidden behind a backslash", b"5;a=\"\\\r\n\"\r\nhello\r\n", InvalidExtension),
        ("9 NUL in an extension", b"5;a\0\r\nhello\r\n0\r\n\r\n", InvalidExtension),
        ("9 NUL in a quoted value", b"5;a=\"\0\"\r\nhello\r\n0\r\n\r\n", InvalidExtension),
        ("9 extension without name", b"5;\r\nhello\r\n0\r\n\r\n", InvalidExtension),
        ("9 two semicolons", b"5;;a\r\nhello\r\n0\r\n\r\n", InvalidExtension),
        ("9 extension value without name", b"5;=a\r\nhello\r\n0\r\n\r\n", InvalidExtension),
        ("9 extension without value", b"5;a=\r\nhello\r\n0\r\n\r\n", InvalidExtension),
        ("9 two equal signs", b"5;a=b=c\r\nhello\r\n0\r\n\r\n", InvalidExtension),
        ("9 two words", b"5;a b\r\nhello\r\n0\r\n\r\n", InvalidExtension),
        ("9 word behind a quoted value", b"5;a=\"b\"c\r\nhello\r\n0\r\n\r\n", InvalidExtension),
        ("9 open quoted value", b"5;a=\"b\r\nhello\r\n0\r\n\r\n", InvalidExtension),
        ("9 space behind the size", b"5 \r\nhello\r\n0\r\n\r\n", InvalidExtension),
        ("9 space behind an extension", b"5;a \r\nhello\r\n0\r\n\r\n", InvalidExtension),
        ("9 space behind a value", b"5;a=b \r\nhello\r\n0\r\n\r\n", InvalidExtension),
        ("9 longer than declared", b"5\r\nhello!\r\n0\r\n\r\n", ChunkTooLong),
        ("9 longer by a chunk line", b"3\r\nabc5\r\n0\r\n\r\n", ChunkTooLong),
        ("no size", b"\r\nhello\r\n0\r\n\r\n", InvalidChunkSize),
        ("no size, extension", b";a\r\nhello\r\n", InvalidChunkSize),
        ("plus", b"+5\r\nhello\r\n", InvalidChunkSize),
        ("minus", b"-5\r\nhello\r\n", InvalidChunkSize),
        ("0x", b"0x5\r\nhello\r\n", InvalidChunkSize),
        ("space before the size", b" 5\r\nhello\r\n", InvalidChunkSize),
        ("underscore", b"1_0\r\n0123456789abcdef\r\n", InvalidChunkSize),
        ("comma", b"5,a\r\nhello\r\n", InvalidChunkSize),
        ("letter", b"g\r\nhello\r\n", InvalidChunkSize),
        ("no size behind a chunk", b"5\r\nhello\r\n\r\n0\r\n\r\n", InvalidChunkSize),
        ("beyond 63 bits", b"8000000000000000\r\n", ChunkSizeOverflow),
        ("beyond 64 bits", b"10000000000000005\r\nhello\r\n", ChunkSizeOverflow),
        ("17 digits", b"00000000000000005\r\nhello\r\n", ChunkSizeOverflow),
        ("5 folded trailer", b"0\r\nA: b\r\n c\r\n\r\n", Trailer(FieldError::ObsoleteFold)),
        ("6 space before the colon", b"0\r\nA : b\r\n\r\n", Trailer(FieldError::SpaceBeforeColon)),
        ("6 no colon", b"0\r\nA\r\n\r\n", Trailer(FieldError::MissingColon)),
        ("6 a request for a trailer", b"0\r\nGET / HTTP/1.1\r\n\r\n", Trailer(FieldError::SpaceBeforeColon)),
        ("7 NUL in a trailer", b"0\r\nA: \0\r\n\r\n", Trailer(FieldError::InvalidValue)),
        ("13 Content-Length", b"0\r\nContent-Length: 5\r\n\r\n", ForbiddenTrailer),
        ("13 Transfer-Encoding", b"0\r\nA: b\r\ntransfer-encoding: chunked\r\n\r\n", ForbiddenTrailer),
        ("13 Host", b"0\r\nHOST: a\r\n\r\n", ForbiddenTrailer),
        ("13 Connection", b"0\r\nConnection: close\r\n\r\n", ForbiddenTrailer),
    ];
    for (name, input, expected) in rows {
        assert_eq!(read(BodyLength::Chunked, input, LIMITS), Err(*expected), "{name}");
        assert_eq!(expected.status(), 400, "{name}");
        // The same byte for byte, and never complete before the fault.
        let mut decoder = BodyDecoder::new(BodyLength::Chunked, LIMITS);
        let outcome = input.iter().try_for_each(|b| decoder.decode(&[*b]).map(|_| ()));
        assert_eq!(outcome, Err(*expected), "{name}, byte for byte");
        assert!(!decoder.is_complete(), "{name}");
    }
}

#[test]
fn good_chunks() {
    let rows: &[(&str, &[u8], &[u8])] = &[
        ("empty", b"0\r\n\r\n", b""),
        ("many zeros", b"0000000000000000\r\n\r\n", b""),
        ("one", b"5\r\nhello\r\n0\r\n\r\n", b"hello"),
        ("leading zeros", b"005\r\nhello\r\n00\r\n\r\n", b"hello"),
        ("letters", b"A\r\n0123456789\r\nb\r\n0123456789a\r\n0\r\n\r\n", b"01234567890123456789a"),
        ("data that looks like chunks", b"7\r\n0\r\n\r\nGE\r\n0\r\n\r\n", b"0\r\n\r\nGE"),
        ("extension", b"5;a\r\nhello\r\n0;b=c\r\n\r\n", b"hello"),
        ("quoted", b"5;a=\"b;c\\\"\\\\ \t\xff\"\r\nhello\r\n0\r\n\r\n", b"hello"),
        ("white space", b"5 ; a = b\t;c ;d=\"e\" ; f\r\nhello\r\n0\r\n\r\n", b"hello"),
        ("trailers", b"5\r\nhello\r\n0\r\nA: b\r\n\r\n", b"hello"),
    ];
    for (name, input, data) in rows {
        let bytes = [*input, b"NEXT"].concat();
        let expected = (data.to_vec(), b"NEXT".to_vec(), true);
        assert_eq!(read(BodyLength::Chunked, &bytes, LIMITS), Ok(expected), "{name}");
        for cut in 0..input.len() {
            let (.., is_complete) = read(BodyLength::Chunked, &input[..cut], LIMITS).unwrap();
            assert!(!is_complete, "{name}, cut at {cut}");
        }
    }
}

#[test]
fn extensions_have_a_limit_beyond_what_chunks_hold_9() {
    let chunk = |extension: usize| format!("1;{}\r\nx\r\n", "a".repeat(extension - 1));
    let body = |text: String| read(BodyLength::Chunked, (text + "0\r\n\r\n").as_bytes(), LIMITS);
    assert!(body(chunk(4096)).is_ok());
    assert_eq!(body(chunk(4097)), Err(BodyError::ExtensionsTooLong));
    // A chunk of one byte makes up for one.
    assert!(body(chunk(64).repeat(65)).is_ok());
    assert_eq!(body(chunk(64).repeat(66)), Err(BodyError::ExtensionsTooLong));
    // Each is signed, and holds more than its signature has.
    let signed = format!("100;chunk-signature={}\r\n{}\r\n", "0".repeat(64), "x".repeat(256));
    assert!(body(signed.repeat(1000)).is_ok());
}

#[test]
fn trailers_have_the_limits_of_a_head() {
    let limits = HeadLimits { head_size: 100, fields: 3, ..LIMITS };
    let body = |lines: &str| read(BodyLength::Chunked, format!("0\r\n{lines}\r\n").as_bytes(), limits);
    assert!(body(&"a: b\r\n".repeat(3)).is_ok());
    let too_many = BodyError::Trailer(FieldError::TooMany);
    assert_eq!((body(&"a: b\r\n".repeat(4)), too_many.status()), (Err(too_many), 431));
    assert!(body(&format!("a: {}\r\n", "b".repeat(93))).is_ok());
    let too_large = BodyError::TrailersTooLarge;
    assert_eq!((body(&format!("a: {}\r\n", "b".repeat(94))), too_large.status()), (Err(too_large), 431));
    assert_eq!(body(&format!("a: {}\r\n", "b".repeat(1000))), Err(BodyError::TrailersTooLarge));
}

#[test]
fn trailers_are_handed_over() {
    let mut decoder = BodyDecoder::new(BodyLength::Chunked, LIMITS);
    let input = b"0\r\nDigest:  x \r\nA:\r\n\r\nNEXT";
    let mut at = 0;
    while !decoder.is_complete() {
        assert_eq!(decoder.take_trailers(), None);
        at += decoder.decode(&input[at..at + 1]).unwrap().consumed;
    }
    assert_eq!(&input[at..], b"NEXT");
    assert_eq!(decoder.decode(&input[at..]).unwrap(), Decoded { consumed: 0, data: b"" });
    let trailers = decoder.take_trailers().unwrap();
    let fields: Vec<_> = trailers.iter().map(|field| (field.name, field.value)).collect();
    assert_eq!(fields, [("Digest", &b"x"[..]), ("A", b"")]);
    assert_eq!(trailers.as_lines(), b"Digest:  x \r\nA:\r\n");
    assert_eq!(decoder.take_trailers(), None);
}

#[test]
fn other_lengths() {
    assert_eq!(read(BodyLength::Empty, b"NEXT", LIMITS), Ok((vec![], b"NEXT".to_vec(), true)));
    assert_eq!(
        read(BodyLength::Length(3), b"abcNEXT", LIMITS),
        Ok((b"abc".to_vec(), b"NEXT".to_vec(), true))
    );
    assert_eq!(read(BodyLength::Length(9), b"abc", LIMITS), Ok((b"abc".to_vec(), vec![], false)));
    assert_eq!(read(BodyLength::UntilClose, b"abc", LIMITS), Ok((b"abc".to_vec(), vec![], false)));

    let mut decoder = BodyDecoder::new(BodyLength::Length(u64::MAX), LIMITS);
    decoder.decode(b"abc").unwrap();
    assert_eq!((decoder.remaining(), decoder.close()), (Some(u64::MAX - 3), Err(BodyError::Truncated)));
    let mut decoder = BodyDecoder::new(BodyLength::Chunked, LIMITS);
    decoder.decode(b"0\r\n").unwrap();
    assert_eq!((decoder.remaining(), decoder.close()), (None, Err(BodyError::Truncated)));
    let mut decoder = BodyDecoder::new(BodyLength::UntilClose, LIMITS);
    decoder.decode(b"abc").unwrap();
    assert_eq!((decoder.close(), decoder.is_complete()), (Ok(()), true));
}
