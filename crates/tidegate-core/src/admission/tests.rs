//! Connections over the limits, and what of them is let in.

use super::*;
use std::collections::BTreeMap;
use std::path::Path;

fn settings(limits: &str) -> Settings {
    let text = format!("workers 1\nlisten \":80\"\nlimits {{ {limits} }}\nsite {{ respond 200 }}\n");
    let loaded = tidegate_config::load_str("test.kdl", &text, Path::new("/"), &BTreeMap::new());
    assert!(!loaded.has_errors(), "{}", loaded.render(false));
    loaded.settings.unwrap()
}

fn admission(limits: &str) -> Admission {
    Admission::new(Arc::default(), Arc::default(), &settings(limits), 0)
}

fn peer(address: &str) -> Peer {
    Peer::Tcp((address.parse::<std::net::IpAddr>().unwrap(), 1).into())
}

#[test]
fn connections_are_counted_in_all_and_by_address() {
    let mut admission = admission("connections 3; connections-per-address 1");
    let one = peer("192.0.2.1");
    assert_eq!(admission.connection(one), Ok(Admitted::Counted));
    assert_eq!(admission.connection(one), Err(ConnectionRefusal::Address));
    assert_eq!(admission.connection(peer("127.0.0.1")), Ok(Admitted::Plain));
    assert_eq!(admission.connection(Peer::Unix), Ok(Admitted::Plain));
    assert_eq!(admission.connection(peer("192.0.2.2")), Err(ConnectionRefusal::Connections));
    admission.leave(Admitted::Plain, Peer::Unix);
    assert_eq!(admission.connection(one), Err(ConnectionRefusal::Address));
    assert_eq!(admission.connection(peer("192.0.2.2")), Ok(Admitted::Counted), "its refusal left no trace");
    admission.leave(Admitted::Counted, one);
    assert_eq!(admission.connection(one), Ok(Admitted::Counted));
}

#[test]
fn settings_that_change_lose_no_count() {
    let mut admission = admission("connections-per-address 1");
    let one = peer("192.0.2.1");
    let entry = admission.connection(one).unwrap();
    admission.adopt(&settings("connections-per-address 1; exempt-addresses \"all\""), 0);
    let free = admission.connection(one).unwrap();
    assert_eq!(free, Admitted::Plain);
    admission.adopt(&settings("connections-per-address 1"), 0);
    admission.leave(free, one);
    assert_eq!(admission.connection(one), Err(ConnectionRefusal::Address));
    admission.leave(entry, one);
    assert_eq!(admission.connection(one), Ok(Admitted::Counted));
}

#[test]
fn the_reserve_is_small() {
    let admission = admission("connections 1");
    let why = ConnectionRefusal::Connections;
    for _ in 0..RESERVE {
        assert_eq!(admission.reserve(why), Some(Admitted::Reserved(why)));
    }
    assert_eq!(admission.reserve(why), None);
    admission.leave(Admitted::Reserved(why), Peer::Unix);
    assert!(admission.reserve(why).is_some());
}

/// FAULTS 42: connections that own too much keep new ones out, not the process from living.
#[test]
fn without_memory_nobody_new_is_let_in() {
    let mut admission = admission("memory \"1MiB\"");
    admission.account(0, 1 << 20);
    assert!(admission.connection(Peer::Unix).is_ok());
    admission.account(0, 1);
    assert_eq!((admission.excess(), admission.is_short_of_memory()), (1, true));
    assert_eq!(admission.connection(Peer::Unix), Err(ConnectionRefusal::Memory));
    admission.account(1 << 20, 1 << 10);
    assert!(admission.connection(Peer::Unix).is_ok());
    assert_eq!(admission.ledger.stats.buffer.current(), (1 << 10) + 1);
}

#[test]
fn shares_add_up() {
    let mut settings = settings("");
    for workers in 1..9 {
        settings.workers = Some(workers);
        for all in [0, 1, 7, 20_000] {
            let sum: u64 = (0..usize::from(workers)).map(|number| share(all, number, &settings)).sum();
            assert_eq!(sum, all);
        }
    }
}
