//! Bytes in both directions: any amount, any split, slow readers, the end.

use crate::peer::{Authority, Both, client_config, terms, tickets};
use std::sync::Arc;
use tidegate_tls::SiteConfig;

fn connected() -> Both {
    let authority = Authority::new("ca");
    let site = SiteConfig::new(&terms("a", vec![authority.slot(&["a.test"])]), &tickets()).unwrap();
    let mut both = Both::new(&Arc::new(client_config(&authority)), "a.test", &[("a.test", site)]);
    both.settle().unwrap();
    assert!(both.session.handshake().is_some());
    both
}

fn counting(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

#[test]
fn any_amount_arrives_whole() {
    let mut both = connected();
    for length in [0, 1, 4095, 4096, 16_384, 16_385, 65_536, 300_000] {
        let data = counting(length);
        both.at_client.clear();
        both.at_server.clear();
        let mut at = 0;
        while at < data.len() {
            at += both.session.send(&both.stream, &data[at..], false).unwrap();
            both.turn_client().unwrap();
            both.turn_server().unwrap();
        }
        both.settle().unwrap();
        assert!(both.at_client == data, "to the client: {length}");
        for part in data.chunks(50_000) {
            both.say(part);
            both.settle().unwrap();
        }
        assert!(both.at_server == data, "to the server: {length}");
    }
}

#[test]
fn a_record_may_come_byte_by_byte() {
    let mut both = connected();
    both.say(&counting(5000));
    let mut wire = Vec::new();
    while both.client.wants_write() {
        both.client.write_tls(&mut wire).unwrap();
    }
    for byte in wire {
        std::io::Write::write_all(&mut both.socket, &[byte]).unwrap();
        both.turn_server().unwrap();
    }
    assert_eq!(both.at_server, counting(5000));
}

#[test]
fn a_slow_reader_is_waited_for_with_little_memory() {
    let mut both = connected();
    let data = counting(1 << 20);
    let mut at = both.session.send(&both.stream, &data, false).unwrap();
    assert!(at < data.len() && both.session.has_pending());
    assert_eq!(both.session.send(&both.stream, &data[at..], false).unwrap(), 0);
    while at < data.len() || both.session.has_pending() {
        both.turn_client().unwrap();
        both.session.flush(&both.stream).unwrap();
        at += both.session.send(&both.stream, &data[at..], false).unwrap();
    }
    both.turn_client().unwrap();
    assert!(both.at_client == data);
}

#[test]
fn both_ends_can_say_that_they_have_finished() {
    let mut both = connected();
    both.say(b"last");
    both.client.send_close_notify();
    both.settle().unwrap();
    assert_eq!(both.at_server, b"last");
    assert!(both.is_server_told);
    // The other direction is still open.
    assert_eq!(both.session.send(&both.stream, b"answer", false).unwrap(), 6);
    both.session.finish_sending(&both.stream).unwrap();
    both.session.finish_sending(&both.stream).unwrap();
    both.turn_client().unwrap();
    assert_eq!(both.at_client, b"answer");
    assert!(both.is_client_told);
}

#[test]
fn garbage_after_the_handshake_ends_the_session() {
    let mut both = connected();
    std::io::Write::write_all(
        &mut both.socket,
        &[23, 3, 3, 0, 20, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0],
    )
    .unwrap();
    assert!(both.turn_server().is_err());
    assert!(both.session.send(&both.stream, b"x", false).is_err());
}

/// Half of a handshake message has been read and more is asked of rustls: it must find that half again.
#[test]
fn sending_between_two_halves_of_a_message_is_survived() {
    let authority = Authority::new("ca");
    let site = SiteConfig::new(&terms("a", vec![authority.slot(&["a.test"])]), &tickets()).unwrap();
    let config = crate::handshakes::only(&[&rustls::version::TLS12], &authority);
    let mut both = Both::new(&config, "a.test", &[("a.test", site)]);
    both.turn_client().unwrap();
    both.turn_server().unwrap();
    let _ = both.client.read_tls(&mut both.socket);
    both.client.process_new_packets().unwrap();
    let mut flight = Vec::new();
    both.client.write_tls(&mut flight).unwrap();
    let length = usize::from(u16::from_be_bytes([flight[3], flight[4]]));
    let half = length / 2;
    let mut first = vec![22, 3, 3, 0, half as u8];
    first.extend(&flight[5..5 + half]);
    let mut second = vec![22, 3, 3, 0, (length - half) as u8];
    second.extend(&flight[5 + half..]);
    for part in [first, second] {
        std::io::Write::write_all(&mut both.socket, &part).unwrap();
        both.turn_server().unwrap();
        assert!(both.session.send(&both.stream, b"", false).is_ok());
        let _ = both.session.send(&both.stream, b"x", false).unwrap();
        if both.session.handshake().is_none() {
            both.session.finish_sending(&both.stream).unwrap();
        }
    }
    assert!(both.session.handshake().is_some());
}
