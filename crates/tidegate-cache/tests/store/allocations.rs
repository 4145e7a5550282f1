//! A look-up allocates nothing, and what is allocated is reserved.

use crate::support::*;
use tidegate_cache::{Found, Purge};
use tidegate_http::cache::Reason;

#[test]
fn a_hit_allocates_nothing() {
    let store = store(MIB);
    put(&store, "/a", &bytes(1, 1000)).unwrap();
    lead(&store, b"/p").pass(NOW, 60, Reason::Private);
    store.purge(&Purge::Url { host: "example.org", target: "/b" }, false, NOW);
    for (key, name) in [(b"/a", "stored"), (b"/p", "not storable"), (b"/n", "nothing")] {
        let counted = allocation_counter::measure(|| {
            for _ in 0..10 {
                let found = store.look_up(key, NOW);
                if let Found::Stored(entries) = &found {
                    let entry = &entries[0];
                    entry.touch();
                    assert!(entry.is_current() && entry.freshness().ttl(NOW) > 0);
                    assert_eq!(entry.content().shared().unwrap().len(), 1000);
                }
            }
        });
        assert_eq!(counted.count_total, 0, "{name}");
    }
}

/// What is allocated as against what is reserved, at every step of a life.
#[test]
fn what_is_allocated_is_reserved() {
    let store = store(2 * MIB);
    let mut allocated = 0_i64;
    let mut step = |name: &str, run: &mut dyn FnMut()| {
        allocated += allocation_counter::measure(run).bytes_current;
        let reserved = store.figures().bytes as i64;
        assert!(allocated <= reserved, "{name}: {allocated} bytes allocated, {reserved} reserved");
        assert!(
            reserved < allocated * 2 + 16 * 1024,
            "{name}: {allocated} bytes allocated, {reserved} reserved"
        );
    };
    for number in 0..600_usize {
        let target = format!("/{number}");
        let len = [0, 10, 5_000, 30_000, 64 * 1024, 100_000][number % 6];
        let content = bytes(number as u64, len);
        let announced = (number % 4 < 2).then_some(len as u64);
        step(&target, &mut || {
            let head = head_of(&target, ["", "de"][number % 2], &[1, 2, 3]);
            let (_, mut fill) = lead(&store, target.as_bytes()).store(head, announced, NOW).unwrap();
            append_all(&mut fill, &content);
            assert!(fill.complete());
        });
    }
    step("removed", &mut || {
        (0..600).for_each(|number| {
            store.remove(format!("/{number}").as_bytes());
        });
    });
    step("swept", &mut || {
        store.sweep(usize::MAX, NOW);
    });
    assert_eq!(store.figures().entries, 0);
}
