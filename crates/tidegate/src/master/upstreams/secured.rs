//! What a check says and hears, with TLS or without.

use super::check::Way;
use std::io;
use tidegate_io::socket::Received;
use tidegate_tls::{ClientSession, ClientSessionError};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Read at once from the socket: less than any buffer of a session takes.
const PIECE: usize = 4096;

/// A connection to a member.
pub struct Conversation<S> {
    stream: S,
    session: Option<ClientSession>,
    /// Plaintext that nobody has asked for yet.
    heard: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Conversation<S> {
    /// Without TLS.
    pub fn plain(stream: S) -> Conversation<S> {
        Conversation { stream, session: None, heard: Vec::new() }
    }

    /// With TLS: makes the handshake. An error says what was wrong.
    pub async fn begin(stream: S, way: &Way) -> Result<Conversation<S>, String> {
        let said = |error: ClientSessionError| error.to_string();
        let session = ClientSession::new(&way.connector, way.name.clone()).map_err(said)?;
        let mut conversation = Conversation { stream, session: Some(session), heard: Vec::new() };
        while conversation.is_handshaking() {
            conversation.advance().await.map_err(|error| error.to_string())?;
            if conversation.is_handshaking() {
                conversation.hear().await.map_err(|error| error.to_string())?;
            }
        }
        let protocol = conversation.session.as_ref().and_then(ClientSession::protocol);
        match way.speaks_http2 && protocol != Some(b"h2") {
            true => Err("it does not speak HTTP/2".to_owned()),
            false => Ok(conversation),
        }
    }

    fn is_handshaking(&self) -> bool {
        self.session.as_ref().is_some_and(ClientSession::is_handshaking)
    }

    /// Sends what the handshake has to say.
    async fn advance(&mut self) -> io::Result<()> {
        let Some(session) = &mut self.session else { return Ok(()) };
        let mut out = Vec::new();
        session.advance(|bytes| collect(&mut out, bytes))?;
        self.stream.write_all(&out).await
    }

    /// Reads once.
    async fn hear(&mut self) -> io::Result<()> {
        let mut piece = [0; PIECE];
        let count = self.stream.read(&mut piece).await?;
        let Some(session) = &mut self.session else {
            self.heard.extend_from_slice(&piece[..count]);
            return if count == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) };
        };
        let mut plain = [0; 2 * PIECE];
        let mut fresh = Some(&piece[..count]);
        loop {
            // Only what was read now: a second time there is nothing more.
            let received = session.receive(&mut plain, |place| match fresh.take() {
                None => Ok(Received::WouldBlock),
                Some([]) => Ok(Received::End),
                Some(bytes) => {
                    let place = place.get_mut(..bytes.len()).ok_or(io::ErrorKind::OutOfMemory)?;
                    place.copy_from_slice(bytes);
                    Ok(Received::Bytes { count: bytes.len(), drained: true })
                }
            })?;
            match received {
                Received::Bytes { count, .. } => self.heard.extend_from_slice(&plain[..count]),
                Received::End if self.heard.is_empty() => return Err(io::ErrorKind::UnexpectedEof.into()),
                Received::End | Received::WouldBlock => return Ok(()),
            }
            if !session.has_plaintext() {
                return Ok(());
            }
        }
    }

    /// Sends all of it.
    pub async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(session) = &mut self.session else { return self.stream.write_all(bytes).await };
        let (mut out, mut rest) = (Vec::new(), bytes);
        while !rest.is_empty() {
            let sent = session.send(rest, |bytes| collect(&mut out, bytes))?;
            rest = rest.get(sent..).unwrap_or_default();
        }
        self.stream.write_all(&out).await
    }

    /// Reads exactly so many.
    pub async fn read_exact(&mut self, into: &mut [u8]) -> io::Result<()> {
        while self.heard.len() < into.len() {
            self.hear().await?;
        }
        into.copy_from_slice(&self.heard[..into.len()]);
        self.heard.drain(..into.len());
        Ok(())
    }
}

fn collect(out: &mut Vec<u8>, bytes: &[u8]) -> io::Result<usize> {
    out.extend_from_slice(bytes);
    Ok(bytes.len())
}
