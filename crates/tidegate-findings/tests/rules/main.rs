//! Every rule is raised by figures that are replayed, and by none that are a little better; a server that is well has no
//! findings; and the page of findings has a section for each rule.
//!
//! That each test depends on the threshold of its rule is tested as well: with all thresholds ten times as high nothing is
//! raised, and with a tenth of them what is a little better is.

mod cases;
mod scene;
mod told;

use cases::Case;
use scene::{APP, Scene, has, replay, settings, watch};
use std::collections::BTreeSet;
use std::path::Path;
use tidegate_findings::{PAGE, TurnedAwayLog, names};
use tidegate_modules::status::ProcessInfo;
use tidegate_stats::{ConnectionRefusal, GatewayFailure, QueueRefusal};

fn cases() -> impl Iterator<Item = &'static Case> {
    cases::MACHINE.iter().chain(cases::SERVER).chain(cases::APPLICATIONS)
}

#[test]
fn every_rule_is_raised_by_its_figures_and_not_by_better_ones() {
    let settings = settings();
    for (name, loud, quiet) in cases() {
        let findings = replay(&settings, 1.0, *loud);
        assert!(has(&findings, name), "{name} is not raised: {findings:#?}");
        for finding in &findings {
            assert!(!finding.sentence.is_empty() && !finding.change.text.is_empty(), "{finding:?}");
            assert_eq!(finding.page, format!("{PAGE}#{}", finding.name));
            assert!(finding.since > 1_000_000_000, "{finding:?}");
        }
        let Some(quiet) = quiet else { continue };
        let findings = replay(&settings, 1.0, *quiet);
        assert!(!has(&findings, name), "{name} is raised by better figures: {findings:#?}");
    }
}

#[test]
fn every_test_depends_on_its_threshold() {
    let settings = settings();
    for (name, loud, quiet) in cases() {
        assert!(
            !has(&replay(&settings, 10.0, *loud), name),
            "{name}: ten times the threshold changes nothing"
        );
        if let Some(quiet) = quiet {
            assert!(
                has(&replay(&settings, 0.1, *quiet), name),
                "{name}: a tenth of the threshold changes nothing"
            );
        }
    }
}

#[test]
fn every_rule_has_a_case() {
    let cased: BTreeSet<&str> = cases().map(|(name, ..)| *name).collect();
    let all: BTreeSet<&str> = names().collect();
    assert_eq!(cased, all);
    assert_eq!(all.len(), names().count(), "names differ");
}

#[test]
fn a_server_that_is_well_has_no_findings() {
    watch(&settings(), 360, |look, _, findings| assert!(findings.is_empty(), "look {look}: {findings:#?}"));
}

#[test]
fn one_that_has_just_begun_has_none() {
    watch(&settings(), 1, |_, _, findings| assert!(findings.is_empty()));
}

#[test]
fn a_finding_goes_by_itself_ten_minutes_after_its_cause() {
    let (mut raised, mut gone) = (None, None);
    watch(&settings(), 200, |look, scene, findings| {
        if look < 10 {
            scene.stats.queue_refusals.add(QueueRefusal::Full, 5);
        }
        match has(findings, "queue-full") {
            true => raised = raised.or(Some(look)),
            false if raised.is_some() => gone = gone.or(Some(look)),
            false => {}
        }
    });
    let (raised, gone) = (raised.unwrap(), gone.unwrap());
    assert!(raised <= 3, "{raised}");
    // The last was refused at look 10; until it has left the window, and ten minutes more.
    assert!((90..=102).contains(&gone), "{gone}");
}

#[test]
fn a_moment_raises_nothing_that_has_to_last() {
    watch(&settings(), 60, |look, scene, findings| {
        if look % 5 < 2 {
            scene.stats.gateway_retries.add(300);
            scene.host.times.stolen += 300;
        }
        assert!(findings.is_empty(), "look {look}: {findings:#?}");
    });
}

#[test]
fn processes_that_finish_what_is_open_have_not_crashed() {
    watch(&settings(), 200, |look, scene, findings| {
        if look == 0 {
            scene.info.processes[0].restarts = 3; // long ago
        }
        if look == 150 {
            // A reload has begun another process in its place.
            let old = ProcessInfo { state: "draining".into(), ..scene.info.processes[0].clone() };
            scene.info.processes.push(old);
        }
        assert!(look < 150 || !has(findings, "server-crashes"), "{findings:#?}");
    });
}

#[test]
fn what_follows_from_something_else_is_shown_beside_it() {
    let findings = replay(&settings(), 1.0, |scene: &mut Scene| {
        scene.host.times.stolen += 300;
        scene.stats.requests_shed.add(50);
        scene.fail(APP, GatewayFailure::Silent, 300);
        scene.stats.queue_refusals.add(QueueRefusal::Full, 5);
    });
    let shown: Vec<&str> = findings.iter().map(|finding| finding.name.as_str()).collect();
    assert_eq!(shown, ["steal", "application-slow"]);
    assert_eq!(findings[0].also_seen, ["overload (the server)"]);
    assert_eq!(findings[1].also_seen, ["queue-full (the server)"]);
}

#[test]
fn values_are_computed() {
    let change = |name: &str, happening| {
        let findings = replay(&settings(), 1.0, happening);
        let finding =
            findings.into_iter().find(|finding| finding.name == name).unwrap_or_else(|| panic!("{name}"));
        (finding.change.setting.unwrap_or_default(), finding.change.old, finding.change.new)
    };
    let some = |text: &str| Some(text.to_owned());
    for (name, happening, setting, old, new) in [
        (
            "connections-limit",
            (|s: &mut Scene| s.stats.connection_refusals.add(ConnectionRefusal::Connections, 40))
                as scene::Happening,
            "limits connections",
            "1000",
            "1040", // as many as came, which are less than half as many again
        ),
        // Most of those come again and again.
        (
            "connections-limit",
            |s| s.stats.connection_refusals.add(ConnectionRefusal::Connections, 30_000),
            "limits connections",
            "1000",
            "5120", // 1500 and the 3000 of a second, rounded up
        ),
        // 200 a second wait two seconds at most, which were 400; but 5 were refused.
        (
            "queue-full",
            |s| s.stats.queue_refusals.add(QueueRefusal::Full, 5),
            "limits queue length",
            "50",
            "55",
        ),
        (
            "queue-full",
            |s| s.stats.queue_refusals.add(QueueRefusal::Full, 50_000),
            "limits queue length",
            "50",
            "400",
        ),
        (
            "keep-alive-refused",
            |s| s.stats.keep_alive_refusals.add(3_000),
            "limits keep-alive-requests",
            "10",
            "unlimited",
        ),
        // 0.8 of four gigabytes and 1104 MiB that the pool has.
        (
            "pool-memory",
            |s| s.host.processes[1].private = scene::GIBIBYTE,
            "pool php processes max",
            "8",
            "4",
        ),
        // Eight are under way and five wait, at 70 %.
        (
            "pool-too-small",
            |s| {
                s.idle();
                (s.pool().demand.in_use, s.pool().demand.waiting) = (8, 5);
            },
            "pool php processes max",
            "8",
            "19",
        ),
        // Most of them were refused by a queue that was full.
        (
            "retry-storm",
            |s| {
                s.stats.requests_put_off.add(200);
                s.stats.requests_repeated.add(160);
                s.stats.queue_refusals.add(QueueRefusal::Full, 200);
            },
            "busy-answer retry-after",
            "1s",
            "2s",
        ),
        ("limit-keys", |s| s.info.rates[0].crowded += 4, "limit api keys", "100", "200"),
    ] {
        assert_eq!(change(name, happening), (setting.to_owned(), some(old), some(new)), "{name}");
    }
}

/// A counter that falls, since a process ended whose last words were not heard, is no flood.
#[test]
fn counters_that_fall_and_looks_that_come_late_are_survived() {
    watch(&settings(), 40, |look, scene, findings| {
        assert!(findings.is_empty(), "look {look}: {findings:#?}");
        if look == 20 {
            scene.host.tcp = Default::default();
            scene.host.times = Default::default();
            scene.info.used.cpu_micros = 0;
            scene.info.pools[0].demand = Default::default();
            scene.host.workers.clear();
        }
    });
}

/// Whatever the machine tells: nothing in it is taken for granted.
#[test]
fn figures_that_make_no_sense_are_survived() {
    let mut random = Random(7);
    watch(&settings(), 60, |_, scene, _| {
        let host = &mut scene.host;
        (host.times.all, host.times.idle, host.times.stolen) = (random.next(), random.next(), random.next());
        (host.descriptors, host.somaxconn) = (Some(random.next()), Some(random.next()));
        (host.tcp_pages, host.ports) = (Some((random.next(), random.next())), Some((0, random.next())));
        (host.available, host.swapped_in, host.time_wait) =
            (Some(random.next()), random.next(), random.next());
        (host.tcp.sent, host.tcp.resent, host.tcp.listen_overflows) =
            (random.next(), random.next(), random.next());
        (host.cgroup.memory_most, host.cgroup.memory_peak) = (Some(random.next()), random.next());
        (host.cgroup.memory, host.cgroup.memory_events) = (random.next(), random.next());
        (host.cgroup.quota, host.processors) = (Some(random.next() as f64), Some(random.next() as f64));
        for process in &mut host.processes {
            (process.busy_millis, process.major_faults) = (random.next() >> 1, random.next() >> 2);
        }
        host.links[0].sent = random.next() >> 1;
        scene.info.certificates[0].not_after = Some(random.next().cast_signed());
        scene.info.used.cpu_micros = random.next() >> 1;
    });
}

/// Numbers of all sizes, to which the scene may still add some.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        match (self.0 >> 60) % 4 {
            0 => 0,
            1 => u64::MAX >> 1,
            shift => self.0 >> (8 * shift - 7),
        }
    }
}

#[test]
fn which_limits_have_turned_somebody_away_is_remembered() {
    let (mut log, mut scene) = (TurnedAwayLog::default(), Scene::new(&settings()));
    scene.stats.queue_refusals.add(QueueRefusal::Age, 2);
    let mut look = |change: fn(&mut Scene)| {
        scene.be_well();
        change(&mut scene);
        let told = log.take(&scene.sample());
        told.into_iter()
            .map(|of| (of.limit, of.count, of.since - 1_000_000_000, of.last - 1_000_000_000))
            .collect::<Vec<_>>()
    };
    let age = |last| ("limits queue age".to_owned(), 2, 0, last);
    assert_eq!(look(|_| {}), [age(10)], "what was there before may be as old as the server");
    let of_limit = |count, last| ("limit api".to_owned(), count, 20, last);
    assert_eq!(look(|scene| scene.info.rates[0].refused = 3), [of_limit(3, 20), age(10)]);
    assert_eq!(look(|_| {}), [of_limit(3, 20), age(10)]);
    assert_eq!(look(|scene| scene.info.rates[0].refused = 5), [of_limit(5, 40), age(10)]);
    assert_eq!(look(|scene| scene.info.rates.clear()), [age(10)], "a limit that is gone is forgotten");
}

// ---------------------------------------------------------------- the page

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PAGE);
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn the_page_has_a_section_for_each_rule_in_their_order() {
    let page = page();
    let sections: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    assert_eq!(sections, names().collect::<Vec<_>>());
}

/// What an operator is told to set is something that the reference knows.
#[test]
fn settings_that_are_to_be_changed_are_there() {
    let reference = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/settings.md");
    let reference = std::fs::read_to_string(reference).unwrap();
    let of_the_machine =
        ["LimitNOFILE", "MemoryMax", "CPUQuota", "net.core.somaxconn", "opcache.memory_consumption"];
    let settings = settings();
    let mut count = 0;
    for (_, loud, _) in cases() {
        for finding in replay(&settings, 1.0, *loud) {
            let Some(setting) =
                finding.change.setting.filter(|name| !of_the_machine.contains(&name.as_str()))
            else {
                continue;
            };
            let word = setting.rsplit(' ').next().unwrap_or_default();
            let is_known =
                [format!("### `{word}`"), format!("- `{word}=`")].iter().any(|text| reference.contains(text));
            assert!(is_known, "{}: {setting}", finding.name);
            count += 1;
        }
    }
    assert!(count > 15, "{count}");
}

/// Each tells when it is raised and what to change.
#[test]
fn each_section_says_when_and_what() {
    let page = page();
    for section in page.split("\n### ").skip(1) {
        let name = section.lines().next().unwrap_or_default();
        let text = section.split("\n## ").next().unwrap_or_default();
        for part in ["**When:**", "**Change:**"] {
            assert!(text.contains(part), "{name} lacks {part}");
        }
    }
}
