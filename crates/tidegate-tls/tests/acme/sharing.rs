//! Nodes that share a folder: one does the work, and a lock of a dead one is taken.

use crate::renewals::{Folder, Node, Scripted, days, turned};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tidegate_tls::acme::Outcome;
use tidegate_tls::acme::storage::{STALE, Seen};

#[test]
fn one_node_gets_the_certificate_and_all_serve_it() {
    turned(async |clock| {
        let folder = Folder::new("shared");
        let authority = Rc::new(Scripted::new("one", &clock));
        let nodes: Vec<Node> = (0..5).map(|_| Node::start(&clock)).collect();
        for node in &nodes {
            node.serve(&["a.test"], std::slice::from_ref(&authority), &folder.storage());
        }
        days(1).await;
        assert_eq!(authority.issued.get(), 1);
        let mut shown = Vec::new();
        for node in &nodes {
            let outcomes = node.take();
            let [(_, Outcome::Ready { pair, .. })] = outcomes.as_slice() else { panic!("{outcomes:?}") };
            shown.push(pair.certificate.clone());
        }
        assert!(shown.windows(2).all(|two| two[0] == two[1]));
        days(64).await;
        assert_eq!(authority.issued.get(), 2, "one renewal for all of them");
    });
}

#[test]
fn locks_are_held_given_up_and_taken_from_the_dead() {
    let folder = Folder::new("locks");
    let (here, there) = (folder.storage(), folder.storage());
    let (mut seen, mut other, begin) = (Seen::default(), Seen::default(), Instant::now());
    let lock = here.lock("a.test", &mut seen, begin).unwrap().unwrap();
    assert!(there.lock("a.test", &mut other, begin).unwrap().is_none());
    assert!(there.lock("b.test", &mut other, begin).unwrap().is_some());
    // Its holder lives: what was seen changes.
    let later = begin + STALE - Duration::from_secs(1);
    std::thread::park_timeout(Duration::from_millis(20)); // the file system's clock has ticks
    lock.touch().unwrap();
    assert!(there.lock("a.test", &mut other, later).unwrap().is_none());
    assert!(there.lock("a.test", &mut other, begin + STALE).unwrap().is_none());
    drop(lock);
    let lock = there.lock("a.test", &mut other, begin + STALE).unwrap().unwrap();
    // Its holder has died.
    std::mem::forget(lock);
    assert!(here.lock("a.test", &mut seen, begin).unwrap().is_none());
    assert!(here.lock("a.test", &mut seen, begin + STALE).unwrap().is_none());
    assert!(here.lock("a.test", &mut seen, begin + STALE).unwrap().is_some());
}

#[test]
fn answers_are_for_every_node() {
    let folder = Folder::new("answers");
    let (here, there) = (folder.storage(), folder.storage());
    here.set_answer("to_ken-1", Some("proof")).unwrap();
    assert_eq!(there.answers(), [("to_ken-1".to_owned(), "proof".to_owned())]);
    there.set_answer("to_ken-1", None).unwrap();
    there.set_answer("to_ken-1", None).unwrap();
    assert_eq!(here.answers(), []);
    // Nothing leads out of the folder. The name is of this test alone: beside it lies what others have made.
    let name = format!("outside-{}", std::process::id());
    here.set_answer(&format!("../../{name}"), Some("no")).unwrap();
    assert!(!folder.0.join("..").join(&name).exists());
    here.keep_account("https://authority.test/dir", "{}").unwrap();
    assert_eq!(there.account("https://authority.test/dir").as_deref(), Some("{}"));
}
