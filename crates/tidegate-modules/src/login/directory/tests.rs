//! Directories that do what they should not: whatever one does, the answer comes in bounded time, takes bounded memory, and
//! is never that somebody is let in.

use super::*;
use crate::login::fake::{self, Fake, Manner};
use rasn_ldap::ResultCode;
use std::sync::mpsc::channel;
use tidegate_core::tls::TlsStore;

fn directory(servers: &[&Fake]) -> Directory {
    Directory::new(&fake::settings(servers), TlsStore::new().unwrap())
}

/// What comes of a name and a password.
fn try_login(directory: &Directory, name: &str, password: &str) -> Result<bool, Away> {
    let (said, heard) = channel();
    let (name, password) = (name.to_owned(), password.to_owned());
    let job = move |seat: &mut Seat| {
        let found = seat.find(&name);
        let answer = found.and_then(|found| match found {
            Some(found) => seat.is_password(&found, password.as_bytes()),
            None => Ok(false),
        });
        said.send(answer).unwrap();
    };
    directory.run(job).unwrap();
    heard.recv().unwrap()
}

#[test]
fn a_sound_directory_knows_its_users() {
    let fake = Fake::new(Manner::Sound);
    let settings = settings::Directory { connections: 1, ..fake::settings(&[&fake]) };
    let directory = Directory::new(&settings, TlsStore::new().unwrap());
    for (name, password, expected) in [
        ("user1", "pw1", true),
        ("USER1", "pw1", true),
        ("user1", "pw2", false),
        ("user1", "", false),
        ("nobody", "pw1", false),
        ("", "pw1", false),
    ] {
        assert_eq!(try_login(&directory, name, password), Ok(expected), "{name} {password}");
    }
    // An empty password is no question at all, and both connections are kept.
    assert_eq!((fake.binds(), fake.searches(), fake.connections()), (3, 6, 2));
    let figures = directory.take_figures();
    assert_eq!((figures.asked.searches, figures.failures), (6, 0));
}

#[test]
fn what_no_directory_should_do_lets_nobody_in() {
    for manner in [
        Manner::Silent,
        Manner::Closing,
        Manner::Hasty,
        Manner::Trickling,
        Manner::Endless,
        Manner::Vast,
        Manner::Confused,
        Manner::Babbling(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        // A gigabyte, an indefinite length, too many levels, a level that is longer than the one around it, an answer to
        // nothing, a bind that has succeeded before it was asked for.
        Manner::Babbling(b"\x30\x84\x40\x00\x00\x00"),
        Manner::Babbling(b"\x30\x80"),
        Manner::Babbling(b"\x30\x12\x30\x10\x30\x0e\x30\x0c\x30\x0a\x30\x08\x30\x06\x30\x04\x30\x02\x30\x00"),
        Manner::Babbling(b"\x30\x07\x02\x01\x01\x65\x7f\x0a\x01"),
        Manner::Babbling(b"\x30\x0c\x02\x01\x63\x65\x07\x0a\x01\x00\x04\x00\x04\x00"),
        Manner::Babbling(b"\x30\x0c\x02\x01\x01\x61\x07\x0a\x01\x00\x04\x00\x04\x00"),
        Manner::Babbling(b"\x30\x0c\x02\x01\x00\x78\x07\x0a\x01\x34\x04\x00\x04\x00"),
        Manner::Refusing(ResultCode::Referral),
        Manner::Refusing(ResultCode::OperationsError),
        Manner::Refusing(ResultCode::Busy),
        Manner::Refusing(ResultCode::NoSuchObject),
    ] {
        let fake = Fake::new(manner);
        let directory = directory(&[&fake]);
        assert!(try_login(&directory, "user1", "pw1").is_err(), "{manner:?}");
        assert!(directory.take_figures().failures > 0, "{manner:?}");
    }
}

/// What a directory finds beside the place where groups are is none, and what that belongs to does not count either.
#[test]
fn groups_lie_where_groups_are() {
    let found: &[&str] = &[
        "cn=admins,ou=evil,dc=a",
        "CN=Staff, OU=Groups, DC=a",
        "ou=groups,dc=a",
        "cn=x,cn=y,ou=groups,dc=a",
    ];
    for (base, dns, is_nested, expected) in [
        ("ou=groups,dc=a", &found[..1], true, &[][..]),
        ("ou=groups,dc=a", &found[..2], true, &["g1"]),
        ("ou=groups,dc=a", found, false, &["g1", "g2", "g3"]),
        ("cn=staff,ou=groups,dc=a", found, false, &["g1"]), // it is the group itself
        ("", found, false, &["g0", "g1", "g2", "g3"]),      // everywhere
    ] {
        let fake = Fake::new(Manner::Grouping(dns));
        let groups = settings::DirectoryGroups {
            base: base.into(),
            found_by: settings::GroupsBy::Search(settings::Filter::parse("(member={dn})").unwrap()),
            name: "cn".into(),
            is_nested,
        };
        let settings = settings::Directory { groups: Some(groups), ..fake::settings(&[&fake]) };
        let directory = Directory::new(&settings, TlsStore::new().unwrap());
        let (said, heard) = channel();
        let job = move |seat: &mut Seat| {
            let user = seat.find("user1").unwrap().unwrap();
            said.send(seat.groups(&user)).unwrap();
        };
        directory.run(job).unwrap();
        assert_eq!(heard.recv().unwrap().unwrap(), expected, "{base}: {dns:?}");
    }
}

/// One that has failed is left alone, and tried again by one login when its time has come.
#[test]
fn a_directory_that_fails_is_left_alone_for_a_while() {
    let fake = Fake::new(Manner::Silent);
    let directory = directory(&[&fake]);
    assert_eq!(directory.away(), None);
    let away = try_login(&directory, "user1", "pw1").unwrap_err();
    assert!(away.retry_after <= LEFT_ALONE && away.retry_after > LEFT_ALONE / 2, "{away:?}");
    assert!(directory.away().is_some());
    for _ in 0..100 {
        assert!(try_login(&directory, "user1", "pw1").is_err());
    }
    assert_eq!(fake.connections(), 1);
    fake.set(Manner::Sound);
    let past = Instant::now();
    lock(&directory.0.servers[0]).until = Some(past);
    assert!(directory.0.may_ask(0, past));
    // While that one tries it, others do not.
    assert!(!directory.0.may_ask(0, past));
    lock(&directory.0.servers[0]).until = Some(past);
    assert_eq!(try_login(&directory, "user1", "pw1"), Ok(true));
    assert_eq!(directory.away(), None);
}

/// Nobody keeps others from logging in by being somebody over whom the directory takes long, or of whom there is much.
#[test]
fn what_fails_one_user_does_not_put_the_server_aside() {
    for manner in [Manner::Slow, Manner::Endless, Manner::Refusing(ResultCode::SizeLimitExceeded)] {
        let fake = Fake::new(manner);
        let directory = directory(&[&fake]);
        assert!(try_login(&directory, "user1", "pw1").is_err(), "{manner:?}");
        assert_eq!(directory.away(), None, "{manner:?}");
        // A connection on which all was answered is kept, and goes on refusing.
        if !matches!(manner, Manner::Refusing(_)) {
            fake.set(Manner::Sound);
            assert_eq!(try_login(&directory, "user1", "pw1"), Ok(true), "{manner:?}");
        }
    }
}

#[test]
fn the_next_server_is_asked_in_place_of_one_that_fails() {
    for manner in [Manner::Silent, Manner::Closing, Manner::Refusing(ResultCode::Unavailable)] {
        let (bad, good) = (Fake::new(manner), Fake::new(Manner::Sound));
        let directory = directory(&[&bad, &good]);
        assert_eq!(try_login(&directory, "user1", "pw1"), Ok(true), "{manner:?}");
        let seen = bad.connections();
        for _ in 0..20 {
            assert_eq!(try_login(&directory, "user1", "wrong"), Ok(false), "{manner:?}");
        }
        assert_eq!(bad.connections(), seen, "{manner:?}");
        assert_eq!(directory.away(), None);
    }
}

/// A directory closes what has been idle for long: that is no failure.
#[test]
fn a_connection_that_was_closed_meanwhile_is_made_anew() {
    let fake = Fake::new(Manner::Sound);
    let directory = directory(&[&fake]);
    fake.set(Manner::Brief);
    let find = || {
        let (said, heard) = channel();
        directory
            .run(move |seat| said.send(seat.find("user1").map(|found| found.is_some())).unwrap())
            .unwrap();
        heard.recv().unwrap()
    };
    for _ in 0..20 {
        assert_eq!(find(), Ok(true));
    }
    assert_eq!(directory.take_figures().failures, 0);
    assert_eq!(directory.away(), None);
}

#[test]
fn too_many_logins_are_refused_and_the_threads_end_with_the_directory() {
    let fake = Fake::new(Manner::Sound);
    let directory = directory(&[&fake]);
    assert_eq!(try_login(&directory, "user1", "pw1"), Ok(true));
    assert!(fake.open() > 0);
    let (go, gone) = channel::<()>();
    let gone = Arc::new(Mutex::new(gone));
    let mut taken = 0;
    let refused = loop {
        let gone = gone.clone();
        match directory.run(move |_| assert!(gone.lock().unwrap().recv().is_err())) {
            Ok(()) => taken += 1,
            Err(refused) => break refused,
        }
    };
    let _: Overloaded = refused;
    assert!((WAITING..=WAITING + 4).contains(&taken), "{taken}");
    drop(go);
    drop(directory);
    wait_until(|| fake.open() == 0);
}

/// Until something is so, for a generous time.
fn wait_until(is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}
