//! What is issued is looked at before it is kept, and what is kept before it is served.

use crate::renewals::{BEGIN, DAY, Folder, Node, Scripted, days, issue, turned};
use std::fs;
use std::rc::Rc;
use std::time::Duration;
use tidegate_tls::acme::{Clock, LocalAuthority, Outcome};
use tidegate_tls::{Certificate, Pair};

/// Files of a name, with what is in them.
fn files(folder: &Folder, name: &str) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder.0.join("certificates").join(name)).unwrap();
    let mut files: Vec<_> = entries
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .collect();
    files.sort();
    files
}

fn serial(pair: &Pair) -> String {
    Certificate::new(pair).unwrap().about.serial
}

/// What an authority may hand out at a time, and what is said of it.
fn unfit(now: i64) -> Vec<((String, String), &'static str)> {
    let good = |name, from: i64, to: i64| issue(name, now + from, now + to);
    let other_key = (good("a.test", 0, 90 * DAY).0, good("a.test", 0, 90 * DAY).1);
    let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    vec![
        (other_key, "it issued a certificate for another key than the one that was sent"),
        (
            (garbage.to_owned(), good("a.test", 0, 90 * DAY).1),
            "its answer holds a certificate that cannot be read",
        ),
        ((String::new(), good("a.test", 0, 90 * DAY).1), "it gave no certificate"),
        (good("evil.example", 0, 90 * DAY), "it issued a certificate for another name: evil.example"),
        (good("*.a.test", 0, 90 * DAY), "it issued a certificate for another name: *.a.test"),
        (good("a.test", -90 * DAY, -10 * DAY), "it issued a certificate that has expired on 202"),
        (good("a.test", 10 * DAY, 90 * DAY), "it issued a certificate that is not in force before 202"),
        (good("a.test", -70 * DAY, 20 * DAY), "less than a third of its life is left"),
    ]
}

#[test]
fn what_is_unfit_fails_and_the_present_one_stays_also_after_a_restart() {
    turned(async |clock| {
        for index in 0..unfit(0).len() {
            let folder = Folder::new("unfit");
            let (node, authority) = (Node::start(&clock), Rc::new(Scripted::new("one", &clock)));
            node.serve(&["a.test"], std::slice::from_ref(&authority), &folder.storage());
            days(50).await;
            let outcomes = node.take();
            let [(_, Outcome::Ready { pair: present, .. })] = outcomes.as_slice() else {
                panic!("{outcomes:?}")
            };
            let before = files(&folder, "a%2Etest");

            let (issued, expected) = unfit(clock.now() + 12 * DAY).swap_remove(index);
            authority.hands_out.borrow_mut().push_back(issued);
            while node.outcomes.borrow().is_empty() {
                tokio::time::sleep(Duration::from_secs(10)).await;
            }
            let outcomes = node.take();
            let [(_, Outcome::Failed { why, has_other: true, .. })] = outcomes.as_slice() else {
                panic!("{expected}: {outcomes:?}")
            };
            assert!(why.starts_with("one: ") && why.contains(expected), "{why}");
            assert_eq!(why.matches("certificate").count(), 1, "one sentence: {why}");
            assert!(files(&folder, "a%2Etest") == before, "{expected}: the files are as they were");

            let (again, away) =
                (Node::start(&clock), Rc::new(Scripted::new("one", &clock).fail(99, "is away")));
            again.serve(&["a.test"], &[away], &folder.storage());
            tokio::time::sleep(Duration::from_secs(1)).await;
            let outcomes = again.take();
            let [(_, Outcome::Ready { pair, issuer: None, .. })] = outcomes.as_slice() else {
                panic!("{expected}: {outcomes:?}")
            };
            assert_eq!(serial(pair), serial(present));
        }
    });
}

#[test]
fn the_next_authority_is_asked_where_the_first_hands_out_what_is_unfit() {
    turned(async |clock| {
        // With nothing in its place, one that is due soon is better than none.
        let worse_than_none = |(_, why): &(_, &str)| !why.starts_with("less than a third");
        for (issued, expected) in unfit(clock.now()).into_iter().filter(worse_than_none) {
            let folder = Folder::new("next");
            let (one, two) = (Scripted::new("one", &clock), Scripted::new("two", &clock));
            one.hands_out.borrow_mut().push_back(issued);
            let node = Node::start(&clock);
            node.serve(&["a.test"], &[Rc::new(one), Rc::new(two)], &folder.storage());
            tokio::time::sleep(Duration::from_secs(60)).await;
            let outcomes = node.take();
            assert!(
                matches!(outcomes.as_slice(), [(_, Outcome::Ready { issuer: Some(issuer), .. })] if issuer == "two"),
                "{expected}: {outcomes:?}"
            );
        }
    });
}

/// What an authority puts beside its certificates, a key of somebody above all, is not kept with them.
#[test]
fn what_is_kept_is_certificates_and_our_key_alone() {
    turned(async |clock| {
        let folder = Folder::new("beside");
        let (authority, now) = (Scripted::new("one", &clock), clock.now());
        let ((certificate, key), (other, other_key)) =
            (issue("a.test", now, now + 90 * DAY), issue("b.test", now, now + 90 * DAY));
        let answer = format!("words\n{other_key}{certificate}{other}\nwords");
        authority.hands_out.borrow_mut().push_back((answer, key.clone()));
        let node = Node::start(&clock);
        node.serve(&["a.test"], &[Rc::new(authority)], &folder.storage());
        tokio::time::sleep(Duration::from_secs(30)).await;
        let outcomes = node.take();
        let [(_, Outcome::Ready { pair, .. })] = outcomes.as_slice() else { panic!("{outcomes:?}") };
        assert_eq!(folder.storage().certificate("a.test").as_ref(), Some(pair));
        let kept = String::from_utf8(pair.certificate.clone()).unwrap();
        let unified = |text: String| text.replace("\r\n", "\n");
        assert_eq!(unified(kept), unified(certificate + &other + &key));
    });
}

/// The authority's clock is a little ahead.
#[test]
fn a_certificate_that_begins_in_minutes_is_good_and_so_is_a_wildcard_for_its_names() {
    turned(async |clock| {
        let folder = Folder::new("minutes");
        let authority = Scripted::new("one", &clock);
        let now = clock.now();
        authority.hands_out.borrow_mut().push_back(issue("*.test", now + 240, now + 90 * DAY));
        let node = Node::start(&clock);
        node.serve(&["a.test"], &[Rc::new(authority)], &folder.storage());
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(matches!(node.take().as_slice(), [(_, Outcome::Ready { .. })]));
    });
}

/// Certificates write addresses without brackets, and in one form.
#[test]
fn what_the_local_authority_issues_is_good() {
    turned(async |clock| {
        for name in ["localhost", "*.internal", "127.0.0.1", "[::1]", "[0:0::1]"] {
            let folder = Folder::new("local-names");
            let issued =
                LocalAuthority::open(&folder.storage(), clock.now()).unwrap().issue(name, clock.now());
            let authority = Scripted::new("own", &clock);
            authority.hands_out.borrow_mut().push_back(issued.unwrap());
            let node = Node::start(&clock);
            node.serve(&[name], &[Rc::new(authority)], &folder.storage());
            tokio::time::sleep(Duration::from_secs(30)).await;
            let outcomes = node.take();
            assert!(matches!(outcomes.as_slice(), [(_, Outcome::Ready { .. })]), "{name}: {outcomes:?}");
        }
    });
}

/// A certificate that lay in the storage is served where it is for the name and has not expired. One that is not in force yet lay
/// there before a start with a clock that is behind, and costs nothing.
#[test]
fn what_was_kept_is_looked_at_as_well() {
    turned(async |clock| {
        let now = clock.now();
        for (kept, from, to, is_used) in [
            ("a.test", -DAY, DAY, true),
            ("evil.example", -DAY, DAY, false),
            ("a.test", DAY, 2 * DAY, true),
            ("a.test", -2 * DAY, -DAY, false),
        ] {
            let folder = Folder::new("kept");
            let (certificate, key) = issue(kept, now + from, now + to);
            let pair = folder.storage().keep_certificate("a.test", &(certificate + &key)).unwrap();
            let node = Node::start(&clock);
            node.serve(&["a.test"], &[Rc::new(Scripted::new("one", &clock))], &folder.storage());
            tokio::time::sleep(Duration::from_secs(30)).await;
            let outcomes = node.take();
            let Some((_, Outcome::Ready { pair: ready, issuer, .. })) = outcomes.first() else {
                panic!("{outcomes:?}")
            };
            assert_eq!(
                (issuer.is_none(), serial(ready) == serial(&pair)),
                (is_used, is_used),
                "{kept} {from}"
            );
        }
    });
}

#[test]
fn a_pair_is_one_file_and_a_key_beside_it_is_of_a_build_before() {
    let folder = Folder::new("one-file");
    let storage = folder.storage();
    let place = folder.0.join("certificates/a%2Etest");
    fs::create_dir_all(&place).unwrap();
    let (certificate, key) = issue("a.test", BEGIN, BEGIN + 90 * DAY);
    fs::write(place.join("certificate.pem"), &certificate).unwrap();
    fs::write(place.join("key.pem"), &key).unwrap();
    let before = serial(&storage.certificate("a.test").unwrap());

    let (next, next_key) = issue("a.test", BEGIN, BEGIN + 90 * DAY);
    let kept = storage.keep_certificate("a.test", &(next + &next_key)).unwrap();
    assert_ne!(serial(&kept), before);
    assert_eq!(files(&folder, "a%2Etest").len(), 1, "key.pem is gone");
    // The process may have ended before it was.
    fs::write(place.join("key.pem"), &key).unwrap();
    assert_eq!(storage.certificate("a.test").unwrap(), kept);
    // What is begun and not moved into place is not read.
    fs::write(place.join("certificate.new.1"), "half").unwrap();
    assert_eq!(serial(&storage.certificate("a.test").unwrap()), serial(&kept));
}

#[test]
fn a_local_authority_whose_key_does_not_fit_is_made_anew() {
    let folder = Folder::new("unfit-root");
    let storage = folder.storage();
    let root = LocalAuthority::open(&storage, BEGIN).unwrap().root().to_owned();
    let (_, other) = issue("a.test", BEGIN, BEGIN + DAY);
    fs::write(folder.0.join("local/root.key"), other).unwrap();
    let anew = LocalAuthority::open(&storage, BEGIN).unwrap();
    assert_ne!(anew.root(), root);
    assert_eq!(LocalAuthority::open(&storage, BEGIN).unwrap().root(), anew.root());
}
