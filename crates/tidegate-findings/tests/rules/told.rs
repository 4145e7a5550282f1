//! What is said of whom, and for how long: failures are of those that had them, what follows from something else concerns the
//! same, values are bounded by something true, and what was changed counts no more.

use super::scene::{APP, PHP, Scene, has, replay, settings, settings_with, watch};
use std::time::Duration;
use tidegate_findings::{Engine, TurnedAwayLog, Windows};
use tidegate_modules::status::{Finding, TurnedAway};
use tidegate_stats::{
    AcceptError, ConnectionRefusal, Eviction, GatewayFailure, Handshake, ParseError, QueueRefusal, Timeout,
};

fn named<'f>(findings: &'f [Finding], name: &str) -> Vec<&'f Finding> {
    findings.iter().filter(|finding| finding.name == name).collect()
}

fn one<'f>(findings: &'f [Finding], name: &str) -> &'f Finding {
    match named(findings, name).as_slice() {
        [finding] => finding,
        all => panic!("{name}: {all:#?} of {findings:#?}"),
    }
}

#[test]
fn failures_are_of_those_that_had_them() {
    let findings = replay(&settings(), 1.0, |s| {
        s.info.series.sites[0].routes[PHP].1.answers[4] += 900; // its own, and no failure
        s.fail(APP, GatewayFailure::Unreachable, 40);
        s.fail(PHP, GatewayFailure::Silent, 3);
    });
    let down = one(&findings, "application-down");
    assert_eq!(down.subject, "upstream app");
    for part in ["480 requests were turned away", "(route a.test /app/*)"] {
        assert!(down.sentence.contains(part), "{part}: {}", down.sentence);
    }
    let slow = one(&findings, "application-slow");
    assert_eq!(slow.subject, "a.test /php/*");
    assert!(
        slow.sentence.starts_with("a.test /php/* (pool php): 36 requests were given up"),
        "{}",
        slow.sentence
    );
}

/// What another member has answered is nobody's loss.
#[test]
fn failures_that_clients_did_not_see_are_none() {
    let findings = replay(&settings(), 1.0, |s| {
        for why in [GatewayFailure::Unreachable, GatewayFailure::Down, GatewayFailure::Silent] {
            s.stats.gateway_failures.add(why, 50);
        }
    });
    assert!(findings.is_empty(), "{findings:#?}");
}

#[test]
fn failures_of_routes_that_are_not_counted_are_told_without_a_name() {
    let findings = replay(&settings(), 1.0, |s| s.stats.gateway_errors.add(GatewayFailure::Down, 5));
    assert_eq!(one(&findings, "application-down").subject, "applications");
}

#[test]
fn what_concerns_another_application_is_shown_by_itself() {
    let findings = replay(&settings(), 1.0, |s| {
        s.pool().restarts += 1;
        s.fail(PHP, GatewayFailure::Down, 5);
        s.fail(APP, GatewayFailure::Down, 5);
        s.fail(2, GatewayFailure::Silent, 300);
        s.info.upstreams[0].demand.refused_full += 5;
        s.stats.queue_refusals.add(QueueRefusal::Full, 5);
    });
    let crashes = one(&findings, "pool-crashes");
    assert_eq!(crashes.also_seen, ["application-down (pool php)"]);
    assert_eq!(one(&findings, "application-down").subject, "upstream app");
    // One that takes most of the time of all may hold the places that others wait for.
    let slow = one(&findings, "application-slow");
    assert_eq!(
        (slow.subject.as_str(), slow.also_seen.as_slice()),
        ("a.test /*", &["queue-full (the server)".to_owned()][..])
    );
    assert!(
        has(&findings, "upstream-queue-full") && !named(&findings, "upstream-queue-full").is_empty(),
        "{findings:#?}"
    );
}

#[test]
fn an_application_that_is_slow_and_small_holds_up_nobody_else() {
    let findings = replay(&settings(), 1.0, |s| {
        (0..5_000).for_each(|_| s.application.record(Duration::from_secs(1)));
        s.fail(2, GatewayFailure::Silent, 3);
        s.stats.queue_refusals.add(QueueRefusal::Full, 5);
    });
    assert!(one(&findings, "application-slow").also_seen.is_empty());
    assert_eq!(one(&findings, "queue-full").subject, "the server");
}

/// Four minutes of refusals, a reload, and nothing after it.
#[test]
fn what_was_changed_counts_no_more() {
    let (before, after) = (settings(), settings_with("queue length=50", "queue length=400"));
    let other = settings_with("keep-alive-requests 10", "keep-alive-requests 20");
    for (next, stays) in [(&after, false), (&other, true)] {
        let (mut engine, mut scene) = (Engine::new(Windows::default()), Scene::new(&before));
        for look in 0..40 {
            scene.be_well();
            if look < 24 {
                scene.stats.queue_refusals.add(QueueRefusal::Full, 5);
            } else {
                scene.settings = next.clone();
            }
            engine.take(scene.sample());
            assert_eq!(
                has(&engine.findings(), "queue-full"),
                look >= 2 && (look < 24 || stays),
                "look {look}"
            );
        }
    }
}

/// What goes on under the new value is told with the new value and counted from the change.
#[test]
fn what_goes_on_after_a_change_is_counted_from_there() {
    let (mut engine, mut scene) = (Engine::new(Windows::default()), Scene::new(&settings()));
    for look in 0..30 {
        scene.be_well();
        scene.stats.queue_refusals.add(QueueRefusal::Full, if look < 24 { 5_000 } else { 5 });
        if look == 24 {
            scene.settings = settings_with("queue length=50", "queue length=60");
        }
        engine.take(scene.sample());
    }
    let findings = engine.findings();
    let full = one(&findings, "queue-full");
    assert!(full.sentence.starts_with("25 requests were refused in the last 50s "), "{}", full.sentence);
    assert_eq!((full.change.old.as_deref(), full.change.new.as_deref()), (Some("60"), Some("65")));
}

#[test]
fn what_has_passed_is_told_as_what_has_passed() {
    let mut sentences = Vec::new();
    watch(&settings(), 110, |look, scene, findings| {
        if look < 10 {
            scene.stats.queue_refusals.add(QueueRefusal::Full, 5);
        }
        sentences.extend(findings.iter().map(|finding| (look, finding.sentence.clone())));
    });
    let at = |look: u64| sentences.iter().find(|(at, _)| *at == look).map(|(_, sentence)| sentence.as_str());
    assert!(at(12).unwrap().contains(" refused in the last "), "{sentences:#?}");
    // The last was refused at look 10, 100 seconds after 01:46:40; and left the window five minutes later.
    assert!(
        at(60).unwrap().contains(" refused in the 5m until 01:53 UTC, none since, since the queue"),
        "{:?}",
        at(60)
    );
}

#[test]
fn a_queue_is_no_longer_than_what_is_answered_in_its_age() {
    // 200 requests a second get a place; at most 20 wait for two seconds where only ten do.
    let findings = replay(&settings(), 1.0, |s| {
        s.stats.queue_refusals.add(QueueRefusal::Full, 500);
        s.pool().demand.refused_full += 100_000;
        s.info.upstreams[0].demand.refused_full += 100_000;
        s.info.upstreams[0].demand.requests += 30;
    });
    let pool = one(&findings, "pool-queue-full");
    // A hundred a second, five seconds long.
    assert_eq!(
        (pool.change.old.as_deref(), pool.change.new.as_deref()),
        (Some("10"), Some("500")),
        "{pool:?}"
    );
    // Three a second: what is there is more than enough.
    let upstream = one(&findings, "upstream-queue-full");
    assert_eq!(upstream.change.setting, None, "{upstream:?}");
    assert!(upstream.change.text.starts_with("a longer queue would not help: 3.0 requests"), "{upstream:?}");
}

#[test]
fn connections_are_bounded_by_memory_and_descriptors() {
    let findings = replay(&settings(), 1.0, |s| {
        s.stats.connection_refusals.add(ConnectionRefusal::Connections, 30_000);
        s.host.available = Some(2 * 1000 * (16 << 10));
    });
    assert_eq!(one(&findings, "connections-limit").change.new.as_deref(), Some("2000"));
    let findings = replay(&settings(), 1.0, |s| {
        s.stats.connection_refusals.add(ConnectionRefusal::Connections, 30_000);
        s.host.descriptors = Some(1_900);
    });
    let new: u64 = one(&findings, "connections-limit").change.new.as_deref().unwrap().parse().unwrap();
    assert!((1_001..1_900).contains(&new), "{new}");
}

#[test]
fn the_bound_of_the_cache_that_is_reached_is_named() {
    for (bound, setting) in [
        (Eviction::Entries, "file-cache entries"),
        (Eviction::Memory, "file-cache memory"),
        (Eviction::Descriptors, "file-cache descriptors"),
    ] {
        let findings = small_cache(bound);
        assert_eq!(one(&findings, "file-cache-small").change.setting.as_deref(), Some(setting));
    }
    assert_eq!(one(&small_cache(Eviction::Process), "file-cache-small").change.setting, None);
}

fn small_cache(bound: Eviction) -> Vec<Finding> {
    let (mut engine, mut scene) = (Engine::new(Windows::default()), Scene::new(&settings()));
    for _ in 0..12 {
        scene.be_well();
        scene.stats.cache_misses.add(2_000);
        scene.stats.cache_eviction_reasons.add(bound, 1_500);
        engine.take(scene.sample());
    }
    engine.findings()
}

/// A single application never gets all places.
#[test]
fn one_application_that_has_all_that_it_may_have_is_throttled() {
    let findings = replay(&settings(), 1.0, |s| {
        s.idle();
        s.stats.in_flight.set(88);
        s.stats.queued.set(30);
        (0..100).for_each(|_| s.stats.queue_delay.record(Duration::from_millis(200)));
    });
    assert!(one(&findings, "under-throttled").sentence.starts_with("88 of the 100 places"), "{findings:#?}");
}

#[test]
fn how_long_answers_take_is_said_only_where_it_was_measured() {
    let refuse: fn(&mut Scene) = |s| s.stats.queue_refusals.add(QueueRefusal::Age, 4);
    let findings = replay(&settings(), 1.0, refuse);
    let age = one(&findings, "queue-age");
    assert!(!age.sentence.contains("answers take"), "{}", age.sentence);
    // Neither busy nor idle: nobody knows that processors are short.
    assert!(!age.change.text.contains("processors"), "{}", age.change.text);
    let findings = replay(&settings(), 1.0, |s| {
        s.idle();
        s.stats.queue_refusals.add(QueueRefusal::Age, 4);
        s.stats.queued.set(30);
        (0..100).for_each(|_| s.stats.gateway_delay.record(Duration::from_millis(500)));
    });
    let age = one(&findings, "queue-age");
    assert!(age.sentence.contains("half of the applications' answers take 5"), "{}", age.sentence);
    // 200.4 a second of half a second each at 80 %.
    assert_eq!(age.change.new.as_deref(), Some("126"), "{age:?}");
    let findings = replay(&settings(), 1.0, |s| {
        s.info.used.cpu_micros += 7_000_000;
        s.stats.queue_refusals.add(QueueRefusal::Age, 4);
    });
    assert!(one(&findings, "queue-age").change.text.contains("add processors"), "{findings:#?}");
}

#[test]
fn connections_that_were_turned_away_are_counted_once() {
    let findings = replay(&settings(), 1.0, |s| {
        s.stats.accept_errors.add(AcceptError::ProcessDescriptors, 26);
        s.stats.connection_refusals.add(ConnectionRefusal::Descriptors, 4);
    });
    let sentence = &one(&findings, "descriptors").sentence;
    assert!(
        sentence.contains("48 connections were turned away") && sentence.contains("failed 312 times"),
        "{sentence}"
    );
}

#[test]
fn a_log_is_named_and_only_its_own_disk_is_to_blame() {
    let findings = replay(&settings(), 1.0, |s| {
        for log in ["/var/log/a.log", "/srv/b.log"] {
            *s.info.log_losses.entry(log.into()).or_default() += 5;
        }
        s.info.log_lines_lost += 10;
        s.host.folders = super::cases::disk(30);
    });
    let slow = one(&findings, "log-slow");
    assert_eq!(slow.subject, "/srv/b.log");
    assert!(
        slow.sentence.contains("lost in the last 1m50s by /srv/b.log")
            || slow.sentence.contains("by /srv/b.log"),
        "{slow:?}"
    );
    assert_eq!(one(&findings, "disk-full").also_seen, ["log-slow (/var/log/a.log)"]);
}

/// And not the one that might repeat the most.
#[test]
fn an_upstream_that_repeats_is_named() {
    let other = "upstream \"other\" { member \"10.0.1.1:80\"; retry 2 budget=90 }\nupstream \"app\"";
    let findings = replay(&settings_with("upstream \"app\"", other), 1.0, |s| {
        s.info.upstreams[0].retries += 90;
        s.stats.gateway_retries.add(90);
    });
    let again = one(&findings, "retries-amplify");
    assert_eq!(again.subject, "upstream app");
    assert_eq!(again.change.setting.as_deref(), Some("upstream app retry budget"));
}

#[test]
fn every_limit_that_turns_away_is_listed_with_its_place() {
    let mut scene = Scene::new(&settings());
    scene.be_well();
    scene.fail(2, GatewayFailure::QueueFull, 7);
    scene.stats.parse_errors.add(ParseError::BodyTooLarge, 2);
    scene.stats.parse_errors.add(ParseError::HeadTooLarge, 3);
    scene.stats.parse_errors.add(ParseError::TargetTooLong, 4);
    scene.stats.timeouts.add(Timeout::Head, 5);
    scene.stats.timeouts.add(Timeout::Body, 6);
    scene.stats.queue_refusals.add(QueueRefusal::Full, 8);
    let told = TurnedAwayLog::default().take(&scene.sample());
    let of = |limit: &str| -> (u64, &str) {
        let found = told.iter().find(|of| of.limit == limit);
        let TurnedAway { count, setting, .. } = found.unwrap_or_else(|| panic!("{limit}: {told:#?}"));
        (*count, setting)
    };
    assert_eq!(of("queue of route a.test /*"), (7, "test.kdl:10"));
    assert_eq!(of("limits queue length"), (8, "queue length=50 (test.kdl:5)"));
    assert_eq!(of("limits head-size").0, 3);
    assert_eq!(of("limits target-size").0, 4);
    assert_eq!(of("limits head-timeout").0, 5);
    assert!(of("limits head-timeout").1.ends_with("(by default)"), "{told:#?}");
    assert_eq!(of("limits body-rate").0, 6);
    assert!(of("limits body-size").1.starts_with("body-size "), "{told:#?}");
    assert_eq!(told.len(), 7, "{told:#?}");
}

#[test]
fn applications_that_break_are_told_with_what_they_do() {
    let findings = replay(&settings(), 1.0, |s| {
        s.fail(APP, GatewayFailure::Closed, 3);
        s.fail(APP, GatewayFailure::Malformed, 2);
    });
    let breaks = one(&findings, "application-breaks");
    assert_eq!(breaks.subject, "a.test /app/*");
    for part in [
        "(upstream app): 60 requests were broken off",
        "36 times it closed the connection",
        "24 times it answered",
    ] {
        assert!(breaks.sentence.contains(part), "{part}: {}", breaks.sentence);
    }
    // What this server itself has refused is no error of the application.
    let findings = replay(&settings(), 1.0, |s| {
        s.info.series.sites[0].routes[APP].1.answers[4] += 500;
        s.stats.requests_shed.add(500);
    });
    assert!(named(&findings, "application-errors").is_empty(), "{findings:#?}");
}

/// Whose process ends under its requests has them sent once more: no `keep-timeout` helps against that.
#[test]
fn retries_of_a_pool_that_crashes_follow_from_that() {
    let crash: fn(&mut Scene) = |s| {
        s.pool().restarts += 1;
        s.stats.gateway_retries.add(300);
    };
    let findings = replay(&settings(), 1.0, crash);
    assert!(named(&findings, "retries-amplify").is_empty(), "{findings:#?}");
    assert_eq!(one(&findings, "pool-crashes").also_seen, ["retries-amplify (the server)"]);
}

/// A `keep-timeout` that was changed has done what was asked for.
#[test]
fn another_keep_timeout_ends_the_finding_that_asks_for_it() {
    let (mut engine, mut scene) = (Engine::new(Windows::default()), Scene::new(&settings()));
    for look in 0..20 {
        scene.be_well();
        if look < 12 {
            scene.stats.gateway_retries.add(300);
        } else {
            scene.settings = settings_with("connections 2;", "connections 2; keep-timeout \"2s\";");
        }
        engine.take(scene.sample());
        assert_eq!(has(&engine.findings(), "retries-amplify"), (3..12).contains(&look), "look {look}");
    }
}

/// An application that was started again is healthy, and no alert should say otherwise.
#[test]
fn an_application_that_answers_again_is_not_down() {
    let mut gone = None;
    watch(&settings(), 40, |look, scene, findings| {
        if look < 12 {
            scene.application = Default::default();
            scene.fail(APP, GatewayFailure::Unreachable, 40);
        } else if !has(findings, "application-down") {
            gone = gone.or(Some(look));
        }
    });
    assert!(gone.is_some_and(|look| (13..=17).contains(&look)), "{gone:?}");
}

#[test]
fn values_follow_from_what_is_said() {
    let findings = replay(&settings(), 1.0, |s| {
        s.idle();
        s.stats.in_flight.set(88);
        s.stats.queued.set(3);
        (0..100).for_each(|_| s.stats.queue_delay.record(Duration::from_millis(200)));
    });
    assert_eq!(one(&findings, "under-throttled").change.new.as_deref(), Some("137"), "1.5 times 91");
    let findings = replay(&settings(), 1.0, |s| {
        s.idle();
        (0..50).for_each(|_| s.queue.record(Duration::from_secs(1)));
    });
    let small = one(&findings, "upstream-too-small");
    assert!(
        small.sentence.contains("its 2 `connections` to 10.0.0.9:80 are taken and 5.0 requests wait"),
        "{}",
        small.sentence
    );
    assert_eq!((small.change.old.as_deref(), small.change.new.as_deref()), (Some("2"), Some("10")));
}

/// What sockets use now is no reason for what the kernel has ended before.
#[test]
fn memory_for_tcp_is_that_of_now() {
    let full = replay(&settings(), 1.0, |s| {
        s.idle();
        s.host.tcp_pages = Some((95_000, 100_000));
    });
    let ended = replay(&settings(), 1.0, |s| {
        s.idle();
        s.host.tcp_pages = Some((300, 100_000));
        s.host.tcp.memory_aborts += 7;
    });
    let [full, ended] = [&full, &ended].map(|findings| &one(findings, "tcp-memory").sentence);
    assert!(full.starts_with("sockets use 95 %") && !full.contains("ended"), "{full}");
    assert!(ended.starts_with("the kernel ended ") && ended.ends_with("sockets use 0 % by now"), "{ended}");
}

#[test]
fn what_has_passed_is_told_without_stray_commas() {
    let mut last = Vec::new();
    watch(&settings(), 60, |look, scene, findings| {
        if look < 10 {
            scene.info.upstreams[0].ejections += 1;
            scene.info.upstreams[0].members[1].failures += 40;
        }
        last = findings.iter().map(|finding| finding.sentence.clone()).collect();
    });
    let told =
        last.iter().find(|sentence| sentence.contains("has failed")).unwrap_or_else(|| panic!("{last:#?}"));
    assert!(
        told.contains("UTC, less since, its siblings") || told.contains("UTC, none since, its siblings"),
        "{told}"
    );
}

#[test]
fn a_file_system_that_is_full_is_told_once_by_its_mount_point() {
    let findings = replay(&settings(), 1.0, |s| {
        s.host.folders = super::cases::disk(30);
        let spill = tidegate_findings::Folder {
            path: "/var/lib/spill".into(),
            purpose: "`spill`".into(),
            ..s.host.folders[0].clone()
        };
        s.host.folders.push(spill);
    });
    let full = one(&findings, "disk-full");
    assert_eq!(full.subject, "/var");
    assert!(
        full.sentence.ends_with("the access log (/var/log), `spill` (/var/lib/spill)"),
        "{}",
        full.sentence
    );
    assert!(full.change.text.contains("`du -xh /var | sort -h"), "{}", full.change.text);
}

/// Anybody can make up tickets.
#[test]
fn tickets_of_a_single_client_are_its_own_matter() {
    let findings = replay(&settings(), 1.0, |s| {
        s.stats.tls_handshakes.add(Handshake::Refused, 300);
        s.stats.tls_ticket_clients.add(u64::from(s.is_once()));
    });
    assert!(findings.is_empty(), "{findings:#?}");
}

/// A store of responses is told what is missing, by what was seen.
#[test]
fn stores_are_told_a_size_a_reason_and_a_cause() {
    let in_memory = settings_with(r#"; disk "/var/cache/a" size="1GiB""#, "");
    let findings = replay(&in_memory, 1.0, |s| {
        s.store().disks.clear();
        let tier = &mut s.store().memory;
        (tier.returned, tier.returned_bytes) = (tier.returned + 60, tier.returned_bytes + (1 << 20));
    });
    let small = one(&findings, "cache-too-small");
    assert_eq!(small.subject, "cache \"main\"");
    assert_eq!(small.change.setting.as_deref(), Some("cache \"main\" memory"));
    assert_eq!((small.change.old.as_deref(), small.change.new.as_deref()), (Some("64MiB"), Some("76MiB")));

    // More than the machine has: a disk.
    let findings = replay(&in_memory, 1.0, |s| {
        s.store().disks.clear();
        s.host.available = Some(50 << 20);
        let tier = &mut s.store().memory;
        (tier.returned, tier.returned_bytes) = (tier.returned + 60, tier.returned_bytes + (9 << 20));
    });
    assert!(one(&findings, "cache-too-small").change.text.contains("give cache \"main\" a disk: `disk "));

    for (why, said, advice) in [
        ("no-lifetime", "neither `Cache-Control: max-age` nor `Expires`", "default-lifetime 200"),
        ("cookie", "the requests have a `Cookie`", "bypass-cookies"),
    ] {
        let mut scene = Scene::new(&in_memory);
        let mut engine = Engine::new(Windows::default());
        for _ in 0..12 {
            engine.take(scene.sample());
            scene.be_well();
            scene.store().requests.hits -= 900;
            scene.store().requests.misses += 900;
            let count = scene.store().requests.misses;
            scene.store().not_stored = vec![(why.into(), count), ("part".into(), 1)];
        }
        let findings = engine.findings();
        let found = one(&findings, "cache-nothing-stored");
        assert!(found.sentence.contains(said), "{}", found.sentence);
        assert!(found.change.text.contains(advice), "{}", found.change.text);
    }

    for (why, advice) in [
        ("is full: No space left on device", "make room on its file system (`df /var/cache/a`)"),
        ("holds `x`, which is not of a cache; name a folder that is empty", "empty /var/cache/a"),
    ] {
        let (mut scene, mut engine) = (Scene::new(&in_memory), Engine::new(Windows::default()));
        let disk = &mut scene.store().disks[0];
        (disk.is_out, disk.out_since) = (Some(why.into()), Some(999_999_000));
        (0..3).for_each(|_| {
            engine.take(scene.sample());
            scene.be_well();
        });
        let findings = engine.findings();
        let found = one(&findings, "cache-disk-out");
        assert!(
            found.sentence.starts_with("the disk /var/cache/a of cache \"main\" is out of use for"),
            "{}",
            found.sentence
        );
        assert!(found.change.text.contains(advice), "{}", found.change.text);
        assert!(found.change.text.contains("in memory alone"), "{}", found.change.text);
    }
}
