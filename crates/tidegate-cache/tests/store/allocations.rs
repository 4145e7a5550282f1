//! A look-up allocates nothing. That what is allocated is reserved, `../memory.rs` has.

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
