//! A request over TLS, whoever asks.

use std::io::{Read, Write};
use std::net::TcpStream;
use tidegate_io::socket::Received;
use tidegate_tls::{ClientSession, Connector};

/// Sends a request to the server of this name, and gives all that comes back until the connection ends.
pub fn ask_over_tls(mut stream: TcpStream, connector: &Connector, name: &str, request: &str) -> Vec<u8> {
    let mut session = ClientSession::new(connector, Connector::name(name).unwrap()).unwrap();
    let (mut answer, mut buffer, mut is_asked) = (Vec::new(), [0; 4096], false);
    loop {
        session.advance(|bytes| stream.write(bytes)).unwrap();
        if !session.is_handshaking() && !is_asked {
            is_asked = true;
            session.send(request.as_bytes(), |bytes| stream.write(bytes)).unwrap();
        }
        let received = session.receive(&mut buffer, |place| match stream.read(place)? {
            0 => Ok(Received::End),
            count => Ok(Received::Bytes { count, drained: true }),
        });
        match received.unwrap() {
            Received::Bytes { count, .. } => answer.extend_from_slice(&buffer[..count]),
            _ => return answer,
        }
    }
}
