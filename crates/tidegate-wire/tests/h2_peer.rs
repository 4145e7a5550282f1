//! Against another implementation, the `h2` crate, in memory: its client and our server, our client and its
//! server.

mod h2_support;

use bytes::Bytes;
use h2_support::*;
use http::{HeaderMap, Request, Response};
use std::collections::HashMap;
use tidegate_http::FieldLines;
use tidegate_wire::h2::{FieldSource, Limits, RequestParts, StreamKey};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

fn run<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let set = tokio::task::LocalSet::new();
    set.block_on(&runtime, future)
}

/// Answers each request with what it has sent, behind its target.
async fn serve(mut io: DuplexStream) -> Vec<Seen> {
    let mut end = End::server(Limits::default());
    end.joins = false;
    let mut contents: HashMap<u32, Vec<u8>> = HashMap::new();
    let mut pending: HashMap<u32, (StreamKey, Vec<u8>, usize, bool)> = HashMap::new();
    let mut seen = 0;
    let mut buffer = vec![0; 5_000];
    loop {
        while seen < end.seen.len() {
            match end.seen[seen].clone() {
                Seen::Request { id, head, is_end: true } => {
                    pending.insert(id, (end.key(id), head.into_bytes(), 0, false));
                }
                Seen::Data { id, data, is_end } => {
                    contents.entry(id).or_default().extend(data);
                    if is_end {
                        pending.insert(id, (end.key(id), contents.remove(&id).unwrap_or_default(), 0, false));
                    }
                }
                Seen::Trailers { id, fields } => {
                    pending.insert(id, (end.key(id), fields.into_bytes(), 0, false));
                }
                Seen::Failed(error) => panic!("{error}"),
                _ => {}
            }
            seen += 1;
        }
        for (key, content, at, is_begun) in pending.values_mut() {
            if !*is_begun {
                *at = end.answer(*key, 200, content);
                *is_begun = true;
            } else if *at < content.len() {
                *at += end.connection.send_data(*key, &content[*at..], true, &mut end.out);
            }
        }
        let out = std::mem::take(&mut end.out);
        if io.write_all(&out).await.is_err() {
            return end.seen;
        }
        match io.read(&mut buffer).await {
            Ok(0) | Err(_) => return end.seen,
            Ok(count) => drop(end.feed(&buffer[..count])),
        }
    }
}

#[test]
fn their_client() {
    run(async {
        let (ours, theirs) = tokio::io::duplex(3_000);
        let server = tokio::task::spawn_local(serve(ours));
        let (client, connection) = h2::client::Builder::new()
            .initial_window_size(20_000)
            .header_table_size(300)
            .max_frame_size(20_000)
            .handshake::<_, Bytes>(theirs)
            .await
            .unwrap();
        let driver = tokio::task::spawn_local(connection);
        let mut tasks = Vec::new();
        for n in 0..40usize {
            let mut client = client.clone().ready().await.unwrap();
            tasks.push(tokio::task::spawn_local(async move {
                let content = Bytes::from(vec![b'a' + (n % 26) as u8; n * 4_000]);
                let has_content = n % 3 != 0;
                let request = Request::builder()
                    .method(if has_content { "POST" } else { "GET" })
                    .uri(format!("http://example.com/{n}?q"))
                    .header("cookie", "a=b")
                    .header("cookie", "c=d")
                    .header("x-number", n % 7)
                    .body(())
                    .unwrap();
                let (response, mut body) = client.send_request(request, !has_content).unwrap();
                if has_content {
                    body.send_data(content.clone(), n % 2 == 0).unwrap();
                    if n % 2 == 1 {
                        let mut trailers = HeaderMap::new();
                        trailers.insert("x-sum", "1".parse().unwrap());
                        body.send_trailers(trailers).unwrap();
                    }
                }
                let response = response.await.unwrap();
                assert_eq!(response.status(), 200);
                let mut body = response.into_body();
                let mut got = Vec::new();
                while let Some(piece) = body.data().await {
                    let piece = piece.unwrap();
                    body.flow_control().release_capacity(piece.len()).unwrap();
                    got.extend_from_slice(&piece);
                }
                if !has_content {
                    let expected = format!(
                        "(\"GET\", \"http\", \"example.com\", \"/{n}?q\", None) (None, false) x-number: {}|cookie: a=b; c=d|host: example.com",
                        n % 7
                    );
                    assert_eq!(String::from_utf8(got).unwrap(), expected);
                } else if n % 2 == 1 {
                    assert_eq!(got, b"x-sum: 1");
                } else {
                    assert_eq!(got, content, "{n}");
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        drop(client);
        driver.await.unwrap().unwrap();
        server.await.unwrap();
    });
}

#[test]
fn their_server() {
    run(async {
        let (ours, theirs) = tokio::io::duplex(3_000);
        let server = tokio::task::spawn_local(async move {
            let mut connection = h2::server::Builder::new()
                .initial_window_size(7_000)
                .max_concurrent_streams(50)
                .handshake::<_, Bytes>(theirs)
                .await
                .unwrap();
            while let Some(request) = connection.accept().await {
                let (request, mut respond) = request.unwrap();
                tokio::task::spawn_local(async move {
                    let path = request.uri().path().to_owned();
                    let mut body = request.into_body();
                    let mut got = path.into_bytes();
                    while let Some(piece) = body.data().await {
                        let piece = piece.unwrap();
                        body.flow_control().release_capacity(piece.len()).unwrap();
                        got.extend_from_slice(&piece);
                    }
                    let response = Response::builder().header("x-echo", "yes").body(()).unwrap();
                    let mut stream = respond.send_response(response, false).unwrap();
                    stream.send_data(Bytes::from(got), true).unwrap();
                });
            }
        });
        let mut io = ours;
        let mut end = End::client(Limits::default());
        let lines = FieldLines::new();
        let mut uploads = Vec::new();
        let mut buffer = vec![0; 5_000];
        for n in 0..40usize {
            let target = format!("/{n}");
            let parts = RequestParts {
                method: "POST",
                scheme: "http",
                authority: "example.com",
                target: &target,
                protocol: None,
                fields: FieldSource::Lines(&lines),
                content_length: Some(n as u64 * 1_000),
            };
            let key = end.connection.send_request(&parts, false, &mut end.out).unwrap();
            uploads.push((key, vec![b'x'; n * 1_000], 0, false));
        }
        while end.connection.open_streams() > 0 {
            for (key, content, at, is_done) in &mut uploads {
                if !*is_done {
                    *at += end.connection.send_data(*key, &content[*at..], true, &mut end.out);
                    *is_done = *at == content.len();
                }
            }
            let out = std::mem::take(&mut end.out);
            io.write_all(&out).await.unwrap();
            let count = io.read(&mut buffer).await.unwrap();
            assert!(count > 0, "the server has gone");
            end.feed(&buffer[..count]);
        }
        for n in 0..40u32 {
            let id = 2 * n + 1;
            let pieces = end.seen.iter().filter_map(|seen| match seen {
                Seen::Data { id: of, data, .. } if *of == id => Some(data.clone()),
                _ => None,
            });
            let got: Vec<u8> = pieces.flatten().collect();
            assert_eq!(got.len(), format!("/{n}").len() + n as usize * 1_000);
            let head = Seen::Response { id, head: "200 None x-echo: yes".into(), is_end: false };
            assert!(end.seen.contains(&head), "{n}");
        }
        drop(io);
        server.abort();
    });
}
