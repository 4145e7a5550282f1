//! Properties: any cut of the bytes gives the same events, both ends of ours understand each other, and no
//! bytes panic.

mod h2_support;

use h2_support::*;
use proptest::collection::vec;
use proptest::prelude::*;
use tidegate_http::FieldLines;
use tidegate_wire::fuzzing::h2_events;
use tidegate_wire::h2::{FieldSource, FrameKind, Limits, RequestParts, flag};

/// Mostly frames that mean something on one of few streams.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let stream = prop::sample::select(vec![0u32, 1, 1, 3, 3, 5, 7, 2]);
    let payload = prop_oneof![
        3 => Just(GET.to_vec()),
        3 => Just(POST.to_vec()),
        2 => Just(block(&[("x", "y")])),
        2 => Just(block(&[(":status", "200")])),
        1 => Just(vec![0, 0, 0, 9]),
        1 => Just(vec![]),
        2 => vec(any::<u8>(), 0..50),
    ];
    let kind = prop::sample::select(vec![0u8, 0, 0, 1, 1, 1, 2, 3, 4, 6, 7, 8, 9, 9, 16, 77]);
    let flags = prop::sample::select(vec![0u8, 0, 1, 4, 5, 5, 8, 9, 13, 0x25]);
    (kind, flags, stream, payload).prop_map(|(kind, flags, stream, payload)| {
        let stream = if matches!(kind, 4 | 6 | 7 | 16) { 0 } else { stream };
        frame(FrameKind(kind), flags, stream, payload)
    })
}

fn pieces<'b>(bytes: &'b [u8], places: &[usize]) -> Vec<&'b [u8]> {
    let mut places: Vec<_> = places.iter().map(|place| place % (bytes.len() + 1)).collect();
    places.sort_unstable();
    let ends = places.iter().copied().chain([bytes.len()]);
    let starts = [0].into_iter().chain(places.iter().copied());
    starts.zip(ends).map(|(start, end)| &bytes[start..end]).collect()
}

proptest! {
    #[test]
    fn any_cut_gives_the_same_events(
        frames in vec(any_frame(), 0..12),
        places in vec(any::<usize>(), 0..12),
        is_server: bool,
    ) {
        let bytes = frames.concat();
        let whole = h2_events(&[&bytes], Limits::default(), is_server);
        let cut = h2_events(&pieces(&bytes, &places), Limits::default(), is_server);
        prop_assert_eq!(whole, cut);
    }

    #[test]
    fn nothing_panics(bytes in vec(any::<u8>(), 0..400), is_server: bool) {
        h2_events(&[&bytes], Limits::default(), is_server);
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases((ProptestConfig::default().cases / 5).max(1)))]

    #[test]
    fn both_ends_understand_each_other(
        contents in vec((vec(any::<u8>(), 0..40_000), vec(any::<u8>(), 0..100_000)), 1..6),
        places in vec(1..30_000usize, 1..20),
    ) {
        let mut client = End::client(Limits::default());
        let mut server = End::server(Limits::default());
        let lines = FieldLines::new();
        // The client's side of each stream: what is left to send; the server's: the same, once asked.
        let mut streams = Vec::new();
        for (n, (upload, _)) in contents.iter().enumerate() {
            let target = format!("/{n}");
            let parts = RequestParts {
                method: "POST", scheme: "http", authority: "a", target: &target, protocol: None,
                fields: FieldSource::Lines(&lines), content_length: Some(upload.len() as u64),
            };
            let key = client.connection.send_request(&parts, false, &mut client.out).unwrap();
            client.keys.push(key);
            streams.push((0, None));
        }
        // Pieces may be of one byte each: there is time for all content at their mean size, twice.
        let whole: usize = contents.iter().map(|(upload, download)| upload.len() + download.len()).sum();
        let rounds = 2_000 + 2 * whole * places.len() / places.iter().sum::<usize>();
        let mut places = places.iter().cycle();
        for _ in 0..rounds {
            for (n, (sent, answered)) in streams.iter_mut().enumerate() {
                let (upload, download) = &contents[n];
                let key = client.keys[n];
                if *sent <= upload.len() && client.connection.is_open(key) && *sent != usize::MAX {
                    *sent += client.connection.send_data(key, &upload[*sent..], true, &mut client.out);
                    if *sent == upload.len() {
                        *sent = usize::MAX; // the end is sent with the last byte
                    }
                }
                let asked = server.keys.iter().copied().find(|asked| asked.id() == key.id());
                if let Some(asked) = asked {
                    match answered {
                        None => *answered = Some(server.answer(asked, 200, download)),
                        Some(at) if *at < download.len() => {
                            *at += server.connection.send_data(asked, &download[*at..], true, &mut server.out);
                        }
                        Some(_) => {}
                    }
                }
            }
            let count = *places.next().unwrap();
            let out: Vec<u8> = client.out.drain(..client.out.len().min(count)).collect();
            server.feed(&out);
            let out: Vec<u8> = server.out.drain(..server.out.len().min(count)).collect();
            client.feed(&out);
            if client.connection.open_streams() == 0 && server.connection.open_streams() == 0 {
                break;
            }
        }
        prop_assert_eq!(server.connection.open_streams(), 0);
        prop_assert_eq!(client.connection.open_streams(), 0);
        for (n, (upload, download)) in contents.iter().enumerate() {
            let id = 2 * n as u32 + 1;
            let content = |end: &End| -> Vec<u8> {
                let pieces = end.seen.iter().filter_map(|seen| match seen {
                    Seen::Data { id: of, data, .. } if *of == id => Some(data.clone()),
                    _ => None,
                });
                pieces.flatten().collect()
            };
            prop_assert_eq!(&content(&server), upload);
            prop_assert_eq!(&content(&client), download);
        }
        let is_fault = |seen: &Seen| matches!(seen, Seen::Failed(_) | Seen::Broken { .. });
        prop_assert_eq!(server.seen.iter().chain(&client.seen).find(|seen| is_fault(seen)), None);
    }
}

#[test]
fn trickled_padding_and_priority() {
    let bytes = [
        headers(
            1,
            BLOCK | flag::PADDED | flag::PRIORITY,
            [&[2][..], &[0, 0, 0, 3, 1], POST, &[0, 0]].concat(),
        ),
        frame(FrameKind::DATA, flag::PADDED | END, 1, b"\x03abc\0\0\0"),
    ]
    .concat();
    let whole = h2_events(&[&bytes], Limits::default(), true);
    assert_eq!(whole.last().unwrap(), "data 1 616263end");
    for cut in 0..bytes.len() {
        let (first, second) = bytes.split_at(cut);
        assert_eq!(h2_events(&[first, second], Limits::default(), true), whole, "cut at {cut}");
    }
}
