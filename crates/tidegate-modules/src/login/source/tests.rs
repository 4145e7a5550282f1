//! What a source knows, asks and remembers.

use super::*;
use crate::login::fake::{self, Fake, Manner};
use crate::login::guesses::GUESSES;
use crate::login::questions::outcome;
use tidegate_config::settings::{self, Account, Origin, UserCache};
use tidegate_core::rate::TablePlace;
use tidegate_io::shared::SharedMemory;

pub fn users(cache: UserCache) -> UserSource {
    let account = |name: &str, hash: &str| Account {
        name: name.into(),
        hash: hash.into(),
        groups: vec!["admins".into(), "staff".into()],
    };
    let accounts = vec![
        account("anna", "$5$rounds=1000$saltsalt$Pm8pPYNOVSvbBWLDNDBdQwQUUb6/tYTP5RrM/DAbZl1"),
        account("ben", "$apr1$Qx5wZ9ab$1XKzto56N1RCFfXDqmcc/0"),
    ];
    let (accounts, origin) = (accounts.into(), Origin::default());
    UserSource {
        name: "staff".into(),
        files: Default::default(),
        accounts,
        directory: None,
        forward: None,
        tokens: None,
        openid: None,
        cache,
        origin,
    }
}

pub const CACHE: UserCache = UserCache { lifetime: Duration::from_secs(120), users: 100, groups: 4 };

pub const NOW: u64 = 1_000_000_000_000;

fn new(settings: &UserSource) -> Arc<Source> {
    Arc::new(Source::new(settings, &TlsStore::new().unwrap(), &RateStore::default(), false).unwrap())
}

pub fn wait(answer: Answer) -> Option<Arc<User>> {
    match outcome(answer) {
        Outcome::Known(user) => Some(user),
        Outcome::Nobody => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_has_proved_to_be_somebody_is_remembered() {
    let source = new(&users(CACHE));
    let ben = wait(source.look_up("ben", b"hello", b"c", NOW)).unwrap();
    assert_eq!(ben.name, "ben");
    assert!(ben.is_in("staff") && !ben.is_in("staf"));
    let Answer::Known(Outcome::Known(again)) = source.look_up("ben", b"hello", b"c", NOW) else {
        panic!("he is known")
    };
    assert!(Arc::ptr_eq(&ben, &again));
    assert!(wait(source.look_up("ben", b"hell", b"c", NOW)).is_none());
    assert!(matches!(source.look_up("ben", b"hell", b"d", NOW), Answer::Known(Outcome::Nobody)));
    assert!(wait(source.look_up("carl", b"hello", b"c", NOW)).is_none());
    // No pair is another, however they are joined.
    assert!(wait(source.look_up("be", b"n\0hello", b"c", NOW)).is_none());
}

#[test]
fn without_a_cache_every_request_is_looked_into() {
    let cache = UserCache { lifetime: Duration::ZERO, ..CACHE };
    let source = new(&users(cache));
    for _ in 0..3 {
        assert!(wait(source.look_up("ben", b"hello", b"c", NOW)).is_some());
    }
}

#[test]
fn a_guesser_has_to_wait_and_nobody_else() {
    let source = new(&users(CACHE));
    for guess in 0..GUESSES.0 {
        assert!(wait(source.look_up("ben", guess.to_string().as_bytes(), b"guesser", NOW)).is_none());
    }
    let Answer::Known(Outcome::Later(time)) = source.look_up("ben", b"hello", b"guesser", NOW) else {
        panic!("too fast")
    };
    assert!(time <= GUESSES.1 && time > GUESSES.1 / 2, "{time:?}");
    assert!(wait(source.look_up("anna", b"x", b"guesser", NOW)).is_none(), "another user");
    assert!(wait(source.look_up("ben", b"hello", b"other", NOW)).is_some(), "another client");
    // Who is known stays so, but where somebody guesses.
    assert!(matches!(source.look_up("ben", b"hello", b"other", NOW), Answer::Known(Outcome::Known(_))));
}

/// Two server processes, each with stores of its own, over memory that the master has made.
/// Who is known there may be guessed at by others meanwhile.
#[test]
fn a_guesser_is_not_told_whom_the_server_remembers() {
    let source = new(&users(CACHE));
    let is_known = |client: &[u8]| {
        matches!(source.look_up("ben", b"hello", client, NOW), Answer::Known(Outcome::Known(_)))
    };
    wait(source.look_up("ben", b"hello", b"ben's", NOW)).unwrap();
    assert!(is_known(b"guesser"));
    for guess in 0..GUESSES.0 {
        assert!(wait(source.look_up("ben", guess.to_string().as_bytes(), b"guesser", NOW)).is_none());
    }
    assert!(!is_known(b"guesser") && is_known(b"ben's"));
}

#[test]
fn guesses_count_for_all_processes() {
    let settings = users(CACHE);
    let identity = Identity::of_guesses(&settings);
    let length = identity.length(2).unwrap();
    let (memory, descriptor) = SharedMemory::new("test", length).unwrap();
    identity.fresh(memory.words(0..length).unwrap(), 2).unwrap();
    let (places, memories) = ([TablePlace { identity, memory: 0, start: 0, length }], [descriptor]);
    let [one, other] = [(); 2].map(|()| {
        let rates = Arc::new(RateStore::default());
        rates.provide(&places, &memories).unwrap();
        crate::login::LoginStore::new(TlsStore::new().unwrap(), rates).source(&settings).unwrap()
    });
    for guess in 0..GUESSES.0 {
        let source = if guess % 2 == 0 { &one } else { &other };
        assert!(wait(source.look_up("ben", guess.to_string().as_bytes(), b"guesser", NOW)).is_none());
    }
    for source in [&one, &other] {
        let answer = source.look_up("ben", b"hello", b"guesser", NOW);
        assert!(matches!(answer, Answer::Known(Outcome::Later(_))));
    }
}

/// They are counted before they are compared: at once or one after the other is the same.
#[test]
fn guesses_at_once_are_no_more_than_one_after_the_other() {
    let source = new(&users(CACHE));
    let guesses: Vec<String> = (0..30).map(|guess| guess.to_string()).collect();
    let answers: Vec<Answer> =
        guesses.iter().map(|guess| source.look_up("ben", guess.as_bytes(), b"guesser", NOW)).collect();
    let outcomes: Vec<Outcome> = answers.into_iter().map(outcome).collect();
    let compared = outcomes.iter().filter(|outcome| **outcome == Outcome::Nobody).count() as u64;
    let later = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Later(_))).count() as u64;
    assert_eq!((compared, later), (GUESSES.0, 30 - GUESSES.0));
}

/// A password that is right costs no guess, however often it is compared.
#[test]
fn messages_name_where_users_are_known() {
    let fake = Fake::new(Manner::Sound);
    let (files, directory) = (users(CACHE), directory_users(&fake, CACHE));
    let both = UserSource { accounts: files.accounts.clone(), ..directory.clone() };
    for (users, kind) in [
        (files, "the password files"),
        (directory, "the directory"),
        (both, "the password files and the directory"),
    ] {
        assert_eq!(new(&users).kind(), kind);
    }
}

#[test]
fn right_passwords_are_no_guesses() {
    let source = new(&users(UserCache { lifetime: Duration::ZERO, ..CACHE }));
    for _ in 0..3 * GUESSES.0 {
        assert!(wait(source.look_up("ben", b"hello", b"client", NOW)).is_some());
    }
    for guess in 0..GUESSES.0 {
        assert!(wait(source.look_up("ben", guess.to_string().as_bytes(), b"client", NOW)).is_none());
    }
    let last = source.look_up("ben", b"x", b"client", NOW);
    assert!(matches!(last, Answer::Known(Outcome::Later(_))));
}

/// Twenty behind one address log in at once: they stand in line, and nobody is turned away.
#[test]
fn many_behind_one_address_have_their_turns() {
    let account = |number: usize| Account { name: format!("u{number}"), ..users(CACHE).accounts[1].clone() };
    let many = UserSource { accounts: (0..100).map(account).collect::<Vec<_>>().into(), ..users(CACHE) };
    let source = new(&many);
    let answers: Vec<Answer> =
        (0..100).map(|number| source.look_up(&format!("u{number}"), b"hello", b"office", NOW)).collect();
    assert_eq!(answers.into_iter().filter_map(wait).count(), 100);
    // The last one gives its turn back after it has answered.
    tidegate_testkit::wait_for(|| source.questions.are_none().then_some(()), "nothing is under way any more");
}

#[test]
fn one_client_leaves_room_for_others() {
    let source = new(&users(CACHE));
    let held: Vec<Answer> =
        (0..1000).map(|name| source.look_up(&format!("nobody{name}"), b"x", b"flood", NOW)).collect();
    assert!(held.iter().any(|answer| matches!(answer, Answer::Overloaded)));
    assert!(wait(source.look_up("ben", b"hello", b"other", NOW)).is_some());
}

fn directory_users(fake: &Fake, cache: UserCache) -> UserSource {
    let directory = Some(fake::settings(&[fake]));
    UserSource { accounts: Vec::new().into(), directory, cache, ..users(cache) }
}

const SECOND: u64 = 1_000_000_000;

/// The goal of the user cache: 10,000 users who go on and on cost a directory no more than 84 binds a second.
#[test]
fn ten_thousand_steady_users_seldom_bind() {
    let fake = Fake::new(Manner::Sound);
    let cache = UserCache { users: 10_000, ..CACHE };
    let mut users = directory_users(&fake, cache);
    users.directory.as_mut().expect("it has one").timeout = Duration::from_secs(20); // a busy machine is no directory that is away
    let source = new(&users);
    // They have come one after the other, and each asks for something every 30 seconds, for twice the lifetime.
    for round in 0..8 {
        for user in 0..10_000 {
            let now = NOW + round * 30 * SECOND + user * 30 * SECOND / 10_000;
            let (name, password) = (format!("user{user}"), format!("pw{user}"));
            let found = outcome(source.look_up(&name, password.as_bytes(), b"c", now));
            assert!(matches!(found, Outcome::Known(_)), "{found:?} {name} {round}");
        }
    }
    assert!(fake.binds() <= 84 * 240, "{}", fake.binds());
    assert_eq!(source.take_figures().asked.binds, fake.binds());
}

/// Nothing that is remembered for one purpose is found for another, and no two lists of parts read as one.
#[test]
fn what_is_remembered_is_so_for_one_purpose() {
    let account = Account { name: "token".into(), ..users(CACHE).accounts[1].clone() };
    let source = new(&UserSource { accounts: vec![account].into(), ..users(CACHE) });
    assert!(wait(source.look_up("token", b"hello", b"c", NOW)).is_some());
    assert!(source.shown(b"hello", NOW).is_none());
    let purposes = [Purpose::Password, Purpose::Token, Purpose::Admission, Purpose::Groups];
    let keys: std::collections::HashSet<Key> = purposes.map(|purpose| source.key(purpose, &[b"a"])).into();
    assert_eq!(keys.len(), purposes.len());
    let groups = |parts: &[&[u8]]| source.key(Purpose::Groups, parts);
    assert_ne!(groups(&[b"a\0b", b"c"]), groups(&[b"a", b"b\0c"]));
    assert_ne!(groups(&[b"a", b"b\0c"]), groups(&[b"a", b"b", b"c"]));
}

/// A name of the files is theirs, whatever spelling or alias the directory finds the same user by.
#[test]
fn whom_the_files_know_the_directory_lets_nobody_be() {
    let fake = Fake::new(Manner::Sound);
    for listed in ["user1", "User1"] {
        let account = Account { name: listed.into(), ..users(CACHE).accounts[0].clone() };
        let settings = UserSource { accounts: vec![account].into(), ..directory_users(&fake, CACHE) };
        let source = new(&settings);
        for typed in ["USER1", "User1", "user1", "\u{ff55}ser1"] {
            assert!(wait(source.look_up(typed, b"pw1", b"c", NOW)).is_none(), "{typed} {listed}");
        }
        assert!(wait(source.look_up("user2", b"pw2", b"c", NOW)).is_some());
        // Whom the files know no more, the directory does.
        source.renew(&Vec::new().into());
        assert!(wait(source.look_up("USER1", b"pw1", b"c", NOW)).is_some());
    }
    assert_eq!(fake.binds(), 4);
}

#[test]
fn who_asks_at_once_is_looked_up_once() {
    let fake = Fake::new(Manner::Sound);
    let settings = directory_users(&fake, CACHE);
    let slow =
        settings.directory.map(|slow| settings::Directory { timeout: Duration::from_secs(60), ..slow });
    let source = new(&UserSource { directory: slow, ..directory_users(&fake, CACHE) });
    fake.hold(true);
    let asked: Vec<Answer> = (0..50).map(|_| source.look_up("user1", b"pw1", b"c", NOW)).collect();
    assert!(asked.iter().all(|answer| matches!(answer, Answer::Asked(_))));
    fake.hold(false);
    for answer in asked {
        assert!(matches!(outcome(answer), Outcome::Known(_)));
    }
    assert_eq!(fake.binds(), 1);
}

/// Other spellings of a name are no further guesses, and once there were too many the directory hears of none.
#[test]
fn a_directory_is_not_guessed_at() {
    let fake = Fake::new(Manner::Sound);
    let source = new(&directory_users(&fake, CACHE));
    let spellings = ["user1", "USER1", "User1", "\u{ff55}ser1", "uSer1"];
    let mut later = 0;
    for guess in 0..40 {
        let name = spellings[guess % spellings.len()];
        match outcome(source.look_up(name, format!("guess{guess}").as_bytes(), b"guesser", NOW)) {
            Outcome::Nobody => {}
            Outcome::Later(_) => later += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((fake.binds(), later), (GUESSES.0, 40 - GUESSES.0));
    assert!(fake.searches() <= 2 * GUESSES.0, "{}", fake.searches());
    assert!(matches!(outcome(source.look_up("user1", b"pw1", b"other", NOW)), Outcome::Known(_)));
    // A password that is none costs nothing.
    assert!(matches!(source.look_up("user2", b"", b"other", NOW), Answer::Known(Outcome::Nobody)));
}

/// Somebody whom the directory cannot be asked about is neither let in nor refused, and nothing of it is remembered.
#[test]
fn a_directory_that_is_away_is_no_refusal() {
    let fake = Fake::new(Manner::Sound);
    let source = new(&directory_users(&fake, CACHE));
    assert!(wait(source.look_up("user1", b"pw1", b"c", NOW)).is_some());
    fake.set(Manner::Hasty);
    let other = new(&directory_users(&fake, CACHE));
    assert!(matches!(outcome(other.look_up("user1", b"pw1", b"c", NOW)), Outcome::Away(_)));
    assert!(matches!(other.look_up("user1", b"pw1", b"c", NOW), Answer::Known(Outcome::Away(_))));
    // Who is known stays known.
    assert!(matches!(
        source.look_up("user1", b"pw1", b"c", NOW + 119 * SECOND),
        Answer::Known(Outcome::Known(_))
    ));
}
