//! RFC 7541: a row for each rule and the examples of appendix C; and the same texts read and written by
//! another implementation.

use proptest::collection::vec;
use proptest::prelude::*;
use tidegate_http::FieldLines;
use tidegate_wire::h2::hpack::{DecodeError, Decoder, Encoder, FieldBlock};

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Fields, DecodeError> {
    let (mut fields, mut scratch) = (Vec::new(), Vec::new());
    decoder.decode(block, &mut scratch, |name, value, _| fields.push((name.to_vec(), value.to_vec())))?;
    Ok(fields)
}

fn text(fields: &[(Vec<u8>, Vec<u8>)]) -> String {
    let lines =
        fields.iter().map(|(name, value)| format!("{}: {}", name.escape_ascii(), value.escape_ascii()));
    lines.collect::<Vec<_>>().join("\n")
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

#[test]
fn rules() {
    use DecodeError::*;
    let long = |first: u8, count: usize| [&[first][..], &vec![0x80; count]].concat();
    let rows: Vec<(&str, Vec<u8>, Result<&str, DecodeError>)> = vec![
        (
            "C.2.1 literal with indexing",
            bytes("400a637573746f6d2d6b65790d637573746f6d2d686561646572"),
            Ok("custom-key: custom-header"),
        ),
        ("C.2.2 literal without indexing", bytes("040c2f73616d706c652f70617468"), Ok(":path: /sample/path")),
        ("C.2.3 literal never indexed", bytes("100870617373776f726406736563726574"), Ok("password: secret")),
        ("C.2.4 indexed", bytes("82"), Ok(":method: GET")),
        ("nothing", vec![], Ok("")),
        ("empty name and value", bytes("000000"), Ok(": ")),
        ("2.3.3 index 0", bytes("80"), Err(InvalidIndex)),
        ("2.3.3 index beyond both tables", bytes("be"), Err(InvalidIndex)),
        ("2.3.3 name beyond both tables", bytes("7e0161"), Err(InvalidIndex)),
        ("2.3.3 the last static entry", bytes("bd"), Ok("www-authenticate: ")),
        ("2.3.3 an entry of this very block", bytes("4001610162be"), Ok("a: b\na: b")),
        ("4.2 size within the limit", bytes("3fe11f82"), Ok(":method: GET")),
        ("4.2 size above the limit", bytes("3fe21f82"), Err(TableTooLarge)),
        ("4.2 the smallest size and the last, twice", bytes("203f e11f 203f e11f 82"), Ok(":method: GET")),
        ("4.2 size after size", bytes("2021202120 82"), Err(TooManyTableSizes)),
        ("4.2 size behind a field", bytes("8220"), Err(LateTableSize)),
        ("4.2 two sizes", bytes("20208 2"), Ok(":method: GET")),
        ("4.4 an entry larger than the table empties it", bytes("400161016220 "), Err(LateTableSize)),
        ("5.1 integer without end", long(0xff, 20), Err(IntegerOverflow)),
        ("5.1 integer too large", bytes("ffffffffff7f"), Err(IntegerOverflow)),
        ("5.1 integer cut off", bytes("ff80"), Err(Truncated)),
        ("5.2 string cut off", bytes("400361"), Err(Truncated)),
        ("5.2 value missing", bytes("400161"), Err(Truncated)),
        ("5.2 Huffman padding of zeros", bytes("00828000"), Err(Truncated)),
        ("5.2 Huffman padding too long", bytes("0082 1fff 00"), Err(HuffmanPadding)),
        ("5.2 Huffman padding not ones", bytes("0081 18 00"), Err(HuffmanPadding)),
        ("5.2 Huffman end symbol", bytes("0084 ffffffff 00"), Err(HuffmanEnd)),
    ];
    for (name, block, expected) in rows {
        let result = decode(&mut Decoder::new(4096), &block).map(|fields| text(&fields));
        assert_eq!(result, expected.map(str::to_owned), "{name}");
    }
}

#[test]
fn a_smaller_table_forgets() {
    let mut decoder = Decoder::new(4096);
    decode(&mut decoder, &bytes("400161016240016301 64")).unwrap();
    assert_eq!(decode(&mut decoder, &bytes("bf")).map(|fields| text(&fields)), Ok("a: b".into()));
    assert_eq!(decode(&mut decoder, &bytes("3f03be")).map(|fields| text(&fields)), Ok("c: d".into())); // 34
    assert_eq!(decode(&mut decoder, &bytes("bf")), Err(DecodeError::InvalidIndex));
    // An entry whose name comes from one that it pushes out (section 4.4).
    assert_eq!(decode(&mut decoder, &bytes("7e0165be")).map(|fields| text(&fields)), Ok("c: e\nc: e".into()));
    // One that is too large empties the table.
    assert_eq!(
        decode(&mut decoder, &bytes("4001 66 02 67 67")).map(|fields| text(&fields)),
        Ok("f: gg".into())
    );
    assert_eq!(decode(&mut decoder, &bytes("be")), Err(DecodeError::InvalidIndex));
}

#[test]
fn examples_of_requests() {
    // C.3 without, C.4 with Huffman.
    for blocks in [
        [
            "828684410f7777772e6578616d706c652e636f6d",
            "828684be58086e6f2d6361636865",
            "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
        ],
        [
            "828684418cf1e3c2e5f23a6ba0ab90f4ff",
            "828684be5886a8eb10649cbf",
            "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
        ],
    ] {
        let mut decoder = Decoder::new(4096);
        let seen = blocks.map(|block| text(&decode(&mut decoder, &bytes(block)).unwrap()));
        assert_eq!(seen[0], ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com");
        assert_eq!(
            seen[1],
            ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\ncache-control: no-cache"
        );
        assert_eq!(
            seen[2],
            ":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\ncustom-key: custom-value"
        );
    }
}

#[test]
fn examples_of_responses() {
    // C.5 without, C.6 with Huffman; the table has 256 bytes, so entries are pushed out.
    for blocks in [
        [
            "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120474d546e1768747470733a2f2f7777772e6578616d706c652e636f6d",
            "4803333037c1c0bf",
            "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a69707738666f6f3d4153444a4b48514b425a584f5157454f50495541585157454f49553b206d61782d6167653d333630303b2076657273696f6e3d31",
        ],
        [
            "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3",
            "4883640effc1c0bf",
            "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
        ],
    ] {
        let mut decoder = Decoder::new(256);
        let seen = blocks.map(|block| text(&decode(&mut decoder, &bytes(block)).unwrap()));
        let rest =
            "cache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\nlocation: https://www.example.com";
        assert_eq!(seen[0], format!(":status: 302\n{rest}"));
        assert_eq!(seen[1], format!(":status: 307\n{rest}"));
        assert_eq!(
            seen[2],
            ":status: 200\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:22 GMT\nlocation: https://www.example.com\ncontent-encoding: gzip\nset-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"
        );
    }
}

#[test]
fn secrets_are_never_indexed() {
    let mut encoder = Encoder::new();
    let rows = [
        ("authorization", "Basic abc"),
        ("proxy-authorization", "Bearer 0123456789abcdef0123456789"),
        ("set-cookie", "a=b"),
        ("cookie", "a=b"),
        ("x-api-key", "0123456789abcdef0123456789"),
        ("x-amz-security-token", "0123456789abcdef0123456789"),
        ("x-csrftoken", "0123456789abcdef0123456789"),
        ("authentication-info", "nextnonce=0123456789"),
        ("x-forwarded-access-token", "0123456789abcdef0123456789"),
    ];
    for (name, value) in rows {
        for _ in 0..4 {
            let mut out = Vec::new();
            encoder.field(&mut out, name.as_bytes(), value.as_bytes());
            assert_eq!(out[0] & 0xf0, 0x10, "{name}");
            let mut lines = FieldLines::new();
            lines.push(name, value);
            let block = FieldBlock::of_lines(&lines);
            assert_eq!(block.as_bytes(), out);
            encoder.block(&mut out, &block);
            assert_eq!(block.as_bytes(), &out[block.as_bytes().len()..]);
        }
    }
    assert_eq!(encoder.memory(), 0, "nothing was remembered");
}

/// The lengths of blocks that hold these fields.
fn lengths(encoder: &mut Encoder, messages: &[&[(&str, &str)]]) -> Vec<usize> {
    let written = messages.iter().map(|fields| {
        let mut out = Vec::new();
        encoder.begin(&mut out);
        fields.iter().for_each(|(name, value)| encoder.field(&mut out, name.as_bytes(), value.as_bytes()));
        out.len()
    });
    written.collect()
}

#[test]
fn what_repeats_costs_a_byte() {
    type Row = (&'static str, &'static [(&'static str, &'static str)], [usize; 4]);
    let rows: [Row; 6] = [
        ("of all answers", &[("content-type", "text/html")], [9, 1, 1, 1]),
        ("of one file", &[("etag", "\"6553f100-400\"")], [14, 13, 1, 1]),
        ("of no name that is known", &[("x-frame-options", "DENY")], [18, 18, 1, 1]),
        ("in the static table", &[(":method", "GET"), (":path", "/index.html")], [2, 2, 2, 2]),
        (
            "long",
            &[("x-long", "~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~"), ("content-type", "a")],
            [51, 49, 2, 2],
        ),
        ("secret", &[("authorization", "Basic abc")], [10, 10, 10, 10]),
    ];
    for (name, fields, expected) in rows {
        assert_eq!(lengths(&mut Encoder::new(), &[fields; 4]), expected, "{name}");
    }
    // A peer without a table.
    let mut encoder = Encoder::new();
    encoder.limit_table(0);
    assert_eq!(lengths(&mut encoder, &[[("content-type", "text/html")].as_slice(); 3]), [11, 10, 10]);
}

/// One request to each of so many files in turn: the last time round, the bytes of the file's own fields for each.
fn bytes_per_file(files: usize) -> usize {
    let blocks: Vec<FieldBlock> = (0..files)
        .map(|n| {
            let mut lines = FieldLines::new();
            lines.push("Content-Type", "text/css");
            lines.push("ETag", format!("\"6553f100-{n}\""));
            lines.push("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT");
            FieldBlock::of_lines(&lines)
        })
        .collect();
    let mut encoder = Encoder::new();
    let mut out = Vec::new();
    let date = b"Sun, 06 Nov 1994 08:49:37 GMT";
    for _ in 0..20 {
        out.clear();
        blocks.iter().for_each(|block| encoder.head(&mut out, 200, Some("Tidegate"), date, block));
    }
    out.len() / files - 3
}

#[test]
fn more_files_than_the_table_holds_do_not_push_each_other_out() {
    assert_eq!(bytes_per_file(1), 3);
    assert_eq!(bytes_per_file(20), 3);
    assert!(bytes_per_file(40) <= 4, "{}", bytes_per_file(40));
    // Far more than there is room for: most is sent as it is, and nothing is inserted for nothing.
    let (many, literal) = (bytes_per_file(400), 16);
    assert!(many <= literal, "{many}");
}

/// Names and values as they are, and as nobody sends them; some repeat.
fn field() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let name = prop_oneof![
        prop::sample::select(vec![
            "date",
            "server",
            "content-type",
            "x-a",
            "x-b",
            ":path",
            ":method",
            ":status",
            "cookie",
            "etag",
            "vary",
            "set-cookie",
            "content-length",
        ])
        .prop_map(|name| name.as_bytes().to_vec()),
        "[a-z-]{1,80}".prop_map(String::into_bytes),
    ];
    let value = prop_oneof![
        prop::sample::select(vec!["", "GET", "/", "200", "404", "text/html", "a", "gzip, deflate"])
            .prop_map(|value| value.as_bytes().to_vec()),
        vec(any::<u8>(), 0..60),
        "[ -~]{0,700}".prop_map(String::into_bytes),
    ];
    (name, value)
}

/// One message of a connection.
#[derive(Debug, Clone)]
enum Message {
    Fields(Fields),
    /// A message kept for all connections, by its number; how long the server's name is, and the second.
    Kept(usize, Option<usize>, u8),
}

/// What the peer says of its table before a block, and the block's fields.
fn messages() -> impl Strategy<Value = Vec<(Option<usize>, Message)>> {
    let message = prop_oneof![
        1 => vec(field(), 1..12).prop_map(Message::Fields),
        3 => (0..1000usize, prop::option::weighted(0.8, 7..9usize), prop::bool::weighted(0.1))
            .prop_map(|(number, server, later)| Message::Kept(number, server, b'0' + u8::from(later))),
    ];
    vec((prop::option::weighted(0.1, 0usize..6000), message), 1..40)
}

/// Messages that are kept for all connections, with the fields that they stand for.
fn kept() -> impl Strategy<Value = Vec<(FieldBlock, Fields)>> {
    let line = prop_oneof![
        (prop::sample::select(vec!["etag", "content-type", "x-a", "set-cookie", "vary"]), "[a-c ]{0,3}"),
        (prop::sample::select(vec!["etag", "content-length", "x-long"]), "[ -~]{0,600}"),
    ];
    let lines = vec(line, 0..7);
    let block = lines.prop_map(|lines| {
        let mut block = FieldBlock::default();
        lines.iter().for_each(|(name, value)| block.push(name, value.as_bytes()));
        let fields = lines.into_iter().map(|(name, value)| (name.into(), value.into_bytes()));
        (block, fields.collect())
    });
    vec(block, 1..14)
}

/// Writes the messages, each after what the peer said of its table, and gives each block to `read` with the fields that
/// have to come out of it.
fn write(
    encoder: &mut Encoder,
    kept: &[(FieldBlock, Fields)],
    messages: Vec<(Option<usize>, Message)>,
    mut read: impl FnMut(&[u8], Fields) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    for (limit, message) in messages {
        if let Some(limit) = limit {
            encoder.limit_table(limit);
        }
        let mut out = Vec::new();
        encoder.begin(&mut out);
        let mut expected = vec![(b":status".to_vec(), b"200".to_vec())];
        match message {
            Message::Fields(fields) => {
                encoder.status(&mut out, 200);
                fields.iter().for_each(|(name, value)| encoder.field(&mut out, name, value));
                expected.extend(fields);
            }
            Message::Kept(number, server, second) => {
                let (block, fields) = &kept[number % kept.len()];
                let server = server.map(|length| &"Tidegate"[..length]);
                let mut date = *b"Sun, 06 Nov 1994 08:49:37 GMT";
                date[24] = second;
                encoder.head(&mut out, 200, server, &date, block);
                expected.extend(server.map(|server| (b"server".to_vec(), server.as_bytes().to_vec())));
                expected.push((b"date".to_vec(), date.to_vec()));
                expected.extend(fields.clone());
            }
        }
        read(&out, expected)?;
        prop_assert!(encoder.memory() < 40_000);
    }
    Ok(())
}

proptest! {
    #[test]
    fn what_is_written_reads_back(kept in kept(), messages in messages()) {
        let mut decoder = Decoder::new(6000);
        write(&mut Encoder::new(), &kept, messages, |block, fields| {
            prop_assert_eq!(decode(&mut decoder, block), Ok(fields));
            prop_assert!(decoder.memory() < 40_000);
            Ok(())
        })?;
    }

    #[test]
    fn another_decoder_reads_the_same(kept in kept(), messages in messages()) {
        let mut other = fluke_hpack::Decoder::new();
        other.set_max_allowed_table_size(4096);
        write(&mut Encoder::new(), &kept, messages, |block, fields| {
            prop_assert_eq!(other.decode(block).unwrap(), fields);
            Ok(())
        })?;
    }

    #[test]
    fn what_another_encoder_writes_is_read(messages in vec(vec(field(), 1..12), 1..12)) {
        let (mut other, mut decoder) = (fluke_hpack::Encoder::new(), Decoder::new(4096));
        for fields in messages {
            let out = other.encode(fields.iter().map(|(name, value)| (name.as_slice(), value.as_slice())));
            prop_assert_eq!(decode(&mut decoder, &out), Ok(fields));
        }
    }

    #[test]
    fn blocks_read_without_a_table(lines in vec(("[A-Za-z-]{1,20}", "[ -~]{0,80}"), 0..10)) {
        let mut fields = FieldLines::new();
        for (name, value) in &lines {
            fields.push(name, value);
        }
        let mut decoder = Decoder::new(0);
        let read = decode(&mut decoder, FieldBlock::of_lines(&fields).as_bytes()).unwrap();
        let expected: Vec<_> = fields
            .iter()
            .filter(|(name, _)| !["connection", "upgrade", "keep-alive"].contains(&name.to_ascii_lowercase().as_str()))
            .map(|(name, value)| (name.to_ascii_lowercase().into_bytes(), value.to_vec()))
            .collect();
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn nothing_panics(blocks in vec(vec(any::<u8>(), 0..200), 0..8)) {
        let mut decoder = Decoder::new(4096);
        for block in blocks {
            let _ = decode(&mut decoder, &block);
            prop_assert!(decoder.memory() < 40_000);
        }
    }
}
