//! What an idle connection holds: counted, so that no version of a dependency makes it grow unseen.

use crate::peer::{Authority, Both, client_config, terms, tickets};
use std::sync::Arc;
use tidegate_tls::SiteConfig;

/// Bytes on the heap of a connection that has carried a request and waits for the next one. The budget of 4 KiB is
/// for all of a connection: AWS-LC's two keys, which are not counted here, what is around a session, and what the
/// allocator adds.
const BUDGET: i64 = 2300;

#[test]
fn an_idle_session_holds_little() {
    let authority = Authority::new("ca");
    let site = SiteConfig::new(&terms("a", vec![authority.slot(&["a.test"])]), &tickets()).unwrap();
    let config = Arc::new(client_config(&authority));
    // The first one sets up what all share, and the others resume.
    let mut kept = Vec::new();
    for visit in 0..4 {
        let mut both = Both::new(&config, "a.test", &[("a.test", site.clone())]);
        both.at_server.reserve(1 << 16);
        let mut held = 0;
        for turn in 0..8 {
            if turn == 5 {
                both.say(b"GET / HTTP/1.1\r\n\r\n");
            }
            both.turn_client().unwrap();
            held += allocation_counter::measure(|| both.turn_server().unwrap()).bytes_current;
            if turn == 6 {
                let send = || assert_eq!(both.session.send(&both.stream, &[7; 1200], false).unwrap(), 1200);
                held += allocation_counter::measure(send).bytes_current;
            }
        }
        assert_eq!(both.at_client.len(), 1200);
        assert_eq!(both.session.pending(), 0);
        assert!(both.session.owned() <= 2 * BUDGET as usize, "an idle session owns {}", both.session.owned());
        eprintln!("visit {visit}: {held} bytes");
        assert!(visit < 2 || held <= BUDGET, "an idle session holds {held} bytes");
        kept.push(both);
    }
}
