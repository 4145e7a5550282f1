//! Members that are watched: checks against scripted servers, and names.

use super::prober::{Group, Prober};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::net::TcpListener;
use std::sync::mpsc::channel;
use std::time::Duration;
use tidegate_config::settings::Origin;
use tidegate_config::settings::pool::Queue;
use tidegate_config::settings::upstream::{
    Balance, Check, CheckKind, Eject, Member, MemberAddress, Retry, Upstream,
};
use tidegate_modules::gateway::balance::groups::Fact;
use tidegate_testkit::{NOBODY, WAIT, receive};

fn upstream(address: MemberAddress, check: Option<Check>) -> Upstream {
    Upstream {
        name: "app".to_owned(),
        members: vec![Member {
            name: "member".to_owned(),
            address,
            weight: 1,
            is_backup: false,
            places: None,
            origin: Origin::default(),
        }],
        balance: Balance::RoundRobin,
        sticky: None,
        queue: Queue { length: 1, age: Duration::from_secs(1) },
        check,
        eject: Eject { failures: None, time: Duration::ZERO, most: Duration::ZERO },
        slow_start: Duration::ZERO,
        retry: Retry { times: 0, budget: 0 },
        hooks: Vec::new(),
        origin: Origin::default(),
    }
}

fn check(kind: CheckKind) -> Option<Check> {
    let (interval, timeout) = (Duration::from_millis(1), Duration::from_secs(10));
    Some(Check { kind, interval, timeout, rise: 2, fall: 2 })
}

/// Answers each connection with the next answer, the last one again and again.
fn server(answers: &'static [&'static [u8]], asked: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut answers = answers.iter().copied();
        let mut last: &[u8] = b"";
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.set_read_timeout(Some(WAIT)).unwrap();
            let mut request = vec![0; asked];
            let _ = stream.read_exact(&mut request);
            last = answers.next().unwrap_or(last);
            let _ = stream.write_all(last);
        }
    });
    address
}

fn facts(upstream: Upstream) -> std::sync::mpsc::Receiver<Fact> {
    let (sender, facts) = channel();
    let prober = Prober::start(move |finding| drop(sender.send(finding.fact))).unwrap();
    prober.set(vec![Group { upstream, way: None }], Vec::new());
    // It lives as long as the test process: its end is the end of the test.
    std::mem::forget(prober);
    facts
}

#[test]
fn an_http_check_takes_a_member_out_and_brings_it_back() {
    const BAD: &[u8] = b"HTTP/1.1 500 no\r\n\r\n";
    const GOOD: &[u8] = b"HTTP/1.1 204 yes\r\n\r\n";
    let address = server(&[GOOD, BAD, GOOD, BAD, b"SSH-2.0-what?", GOOD, GOOD], 20);
    let kind = CheckKind::Http { path: "/up".to_owned(), host: String::new() };
    let facts = facts(upstream(MemberAddress::Tcp(address), check(kind)));
    assert_eq!(receive(&facts, "a fact"), Fact::IsDown(true));
    assert_eq!(receive(&facts, "a fact"), Fact::IsDown(false));
}

#[test]
fn a_fastcgi_check_wants_fastcgi() {
    let address = server(
        &[b"HTTP/1.1 400 Bad Request\r\n\r\n", b"HTTP/1.1 400 Bad Request", b"\x01\x0a\0\0\0\0\0\0"],
        24,
    );
    let facts = facts(upstream(MemberAddress::Tcp(address), check(CheckKind::FastCgi)));
    assert_eq!(receive(&facts, "a fact"), Fact::IsDown(true));
    assert_eq!(receive(&facts, "a fact"), Fact::IsDown(false));
}

#[test]
fn a_closed_port_is_down() {
    let address = NOBODY.parse().unwrap();
    let facts = facts(upstream(MemberAddress::Tcp(address), check(CheckKind::Tcp)));
    assert_eq!(receive(&facts, "a fact"), Fact::IsDown(true));
}

#[test]
fn a_name_leads_to_addresses() {
    let name = MemberAddress::Name { host: "localhost".to_owned(), port: 3000 };
    let facts = facts(upstream(name, None));
    assert_eq!(receive(&facts, "a fact"), Fact::Addresses(vec![([127, 0, 0, 1], 3000).into()]));
}

#[test]
fn a_name_that_leads_nowhere_is_told_once() {
    let name = MemberAddress::Name { host: "nowhere.invalid".to_owned(), port: 3000 };
    let facts = facts(upstream(name, None));
    assert_eq!(receive(&facts, "a fact"), Fact::Addresses(Vec::new()));
    assert!(facts.try_recv().is_err());
}
