//! Answers whose end only the end of the connection tells: those of CGI and SCGI.
//!
//! A script writes what it has to say and ends, and both come a moment apart. Who waits for that moment can send a
//! small answer whole, with its length and in one write; `call` does.

use super::answer::{AnswerError, Content};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;
use tidegate_client::Connection;
use tidegate_io::runtime;
use tidegate_io::timer::{self, Deadline};

/// How long the end is waited for. Nobody sees it of an answer that goes on.
const MOMENT: Duration = Duration::from_millis(5);
/// Bytes of an answer that is not small any more.
const SMALL: usize = 16 << 10;

/// Why an answer has broken off.
pub(super) enum Broken {
    Connection(io::Error),
    Answer(AnswerError),
}

/// Reads on for a moment, or until the answer is complete or not small. `early` is the content that is here.
pub(super) async fn gather(
    connection: &Connection,
    content: &mut Content,
    early: &mut Vec<u8>,
) -> Result<(), Broken> {
    let mut deadline: Option<Deadline> = None;
    std::future::poll_fn(|cx| {
        while !content.is_complete() && early.len() < SMALL {
            let received = runtime::with_scratch(|scratch| {
                let room = scratch.len().min(SMALL);
                connection.poll_recv(cx, &mut scratch[..room]).map(|received| {
                    let count = received.map_err(Broken::Connection)?;
                    if count == 0 {
                        return content.close().map_err(Broken::Answer);
                    }
                    let count = content.decode_in_place(scratch, count).map_err(Broken::Answer)?;
                    early.extend_from_slice(&scratch[..count]);
                    Ok(())
                })
            });
            match received {
                Poll::Ready(received) => received?,
                Poll::Pending => {
                    let deadline = deadline.get_or_insert_with(|| timer::after(MOMENT));
                    return Pin::new(deadline).poll(cx).map(Ok);
                }
            }
        }
        Poll::Ready(Ok(()))
    })
    .await
}
