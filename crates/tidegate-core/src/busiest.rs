//! Who and what a worker has most to do with: paths, hosts, clients, user agents and referrers of requests, for `tidegate status
//! busiest`.
//!
//! Each is a sketch of fixed size (`tidegate_stats::busiest`), of the last five to ten minutes. A worker that has little to do
//! looks at every request, one that has much at some of them, each of which counts for as many as it stands for: what this costs
//! is bounded in a second, and nothing is allocated. `conn/decide` asks whether a request is looked at.

use crate::log::push_json_escaped;
use std::net::IpAddr;
use tidegate_http::Fields;
use tidegate_io::socket::Peer;
use tidegate_stats::busiest::Sketch;

/// Names that are kept of each kind.
const KEPT: usize = 512;
/// Seconds after which what was counted before the last time is forgotten.
const PERIOD: u64 = 300;
/// Requests looked at, after which in the same second only half as many of those that follow are.
const STEP: u32 = 16;
/// One of so many is always looked at.
const INTERVAL: u32 = 1 << 20;

/// What is counted, and how many bytes of it are kept.
const KINDS: [(&str, usize); 5] =
    [("paths", 128), ("hosts", 64), ("clients", 16), ("user_agents", 128), ("referrers", 128)];

/// The busiest of a worker.
pub(crate) struct Busiest {
    now: [Sketch; KINDS.len()],
    before: [Sketch; KINDS.len()],
    /// When `now` and `before` began, seconds since 1970.
    since: [i64; 2],
    /// Requests until the next one that is looked at.
    skip: u32,
    /// One of so many is looked at.
    interval: u32,
    /// Looked at since the interval has changed.
    looked: u32,
    random: u32,
}

/// What is told of a request that is looked at.
pub(crate) struct Sample<'a> {
    pub client: Peer,
    pub target: &'a str,
    pub authority: &'a str,
    pub fields: &'a Fields<'a>,
}

impl Busiest {
    /// Nothing was counted; `now` is the wall clock, seconds.
    pub(crate) fn new(now: i64) -> Busiest {
        let sketches = || KINDS.map(|(_, longest)| Sketch::new(KEPT, longest));
        Busiest {
            now: sketches(),
            before: sketches(),
            since: [now; 2],
            skip: 1,
            interval: 1,
            looked: 0,
            random: 0x9e37_79b9,
        }
    }

    /// Whether this request is looked at.
    #[inline]
    pub(crate) fn is_due(&mut self) -> bool {
        self.skip -= 1;
        self.skip == 0
    }

    /// A new second: every request is looked at again.
    pub(crate) fn on_second(&mut self, now: i64) {
        (self.interval, self.looked, self.skip) = (1, 0, 1);
        if now.abs_diff(self.since[0]) >= PERIOD {
            std::mem::swap(&mut self.now, &mut self.before);
            self.now.iter_mut().for_each(Sketch::clear);
            self.since = [now, self.since[0]];
        }
    }

    /// Counts one.
    #[cold]
    pub(crate) fn count(&mut self, sample: &Sample<'_>) {
        let weight = u64::from(self.interval);
        // What stands behind it may be a secret.
        let without_query = |target: &'_ [u8]| {
            target.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(target.len())
        };
        let octets = match sample.client.ip().map(|ip| ip.to_canonical()) {
            Some(IpAddr::V4(ip)) => ip.to_ipv6_mapped().octets(),
            Some(IpAddr::V6(ip)) => ip.octets(),
            None => [0; 16],
        };
        let field = |name| sample.fields.first(name).unwrap_or_default();
        let (path, host, referrer) =
            (sample.target.as_bytes(), sample.authority.as_bytes(), field("referer"));
        let (path, referrer) = (&path[..without_query(path)], &referrer[..without_query(referrer)]);
        let names = [path, host, &octets, field("user-agent"), referrer];
        for (sketch, name) in self.now.iter_mut().zip(names) {
            if !name.is_empty() {
                sketch.add(name, weight);
            }
        }
        self.looked += 1;
        if self.looked >= STEP {
            (self.looked, self.interval) = (0, (self.interval * 2).min(INTERVAL));
        }
        self.skip = self.next_skip();
    }

    /// At random, so that what comes in a rhythm is not always the same: as far as the interval on average.
    fn next_skip(&mut self) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        1 + self.random % (2 * self.interval - 1)
    }

    /// A JSON object: of each kind how many were counted, how many at most of a name that is not kept, and the names.
    pub(crate) fn to_json(&self) -> String {
        let mut out = format!("{{\"since\":{}", self.since[1]).into_bytes();
        for ((kind, _), sketches) in KINDS.iter().zip(self.now.iter().zip(&self.before)) {
            out.extend_from_slice(format!(",\"{kind}\":[").as_bytes());
            push_sketch(&mut out, kind, sketches.0);
            out.push(b',');
            push_sketch(&mut out, kind, sketches.1);
            out.push(b']');
        }
        out.push(b'}');
        String::from_utf8_lossy(&out).into_owned()
    }
}

fn push_sketch(out: &mut Vec<u8>, kind: &str, sketch: &Sketch) {
    let (total, bound) = (sketch.total(), sketch.bound());
    out.extend_from_slice(format!("{{\"total\":{total},\"bound\":{bound},\"names\":[").as_bytes());
    for (number, (name, of)) in sketch.names().enumerate() {
        out.extend_from_slice(if number > 0 { b",[\"" } else { b"[\"" });
        match <[u8; 16]>::try_from(name) {
            Ok(octets) if kind == "clients" => push_client(out, octets),
            _ => push_json_escaped(out, name),
        }
        out.extend_from_slice(format!("\",{},{},{}]", of.count, of.error, of.variance).as_bytes());
    }
    out.extend_from_slice(b"]}");
}

fn push_client(out: &mut Vec<u8>, octets: [u8; 16]) {
    match IpAddr::from(octets).to_canonical() {
        ip if ip.is_unspecified() => out.extend_from_slice(b"unix"),
        ip => out.extend_from_slice(ip.to_string().as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_http::Field;

    fn count(busiest: &mut Busiest, target: &str, times: usize) {
        let agent = Field { name: "User-Agent", value: b"a \"b\"\x1b" };
        let fields = [agent, Field { name: "Referer", value: b"http://b.test/c?token=secret" }];
        let fields = Fields::new(&fields);
        let client = Peer::Tcp("192.0.2.7:80".parse().unwrap());
        for _ in 0..times {
            if busiest.is_due() {
                busiest.count(&Sample { client, target, authority: "a.test", fields: &fields });
            }
        }
    }

    #[test]
    fn few_requests_are_counted_exactly() {
        let mut busiest = Busiest::new(1_000);
        count(&mut busiest, "/a?x=1", 10);
        count(&mut busiest, "/b", 5);
        let json = busiest.to_json();
        for part in [
            "{\"since\":1000,\"paths\":[{\"total\":15,\"bound\":0,\"names\":[[\"/a\",10,0,0],[\"/b\",5,0,0]]}",
            "\"hosts\":[{\"total\":15,\"bound\":0,\"names\":[[\"a.test\",15,0,0]]}",
            "\"clients\":[{\"total\":15,\"bound\":0,\"names\":[[\"192.0.2.7\",15,0,0]]}",
            r#"[["a \"b\"\u001b",15,0,0]]"#,
            "\"referrers\":[{\"total\":15,\"bound\":0,\"names\":[[\"http://b.test/c\",15,0,0]]}",
        ] {
            assert!(json.contains(part), "{part}: {json}");
        }
    }

    /// In one second, however many come.
    #[test]
    fn of_many_some_are_looked_at_and_stand_for_the_others() {
        let mut busiest = Busiest::new(0);
        for _ in 0..50_000 {
            count(&mut busiest, "/often", 3);
            count(&mut busiest, "/seldom", 1);
        }
        let sketch = &busiest.now[0];
        let total = sketch.total() as f64;
        assert!((total / 200_000.0 - 1.0).abs() < 0.5, "{total}");
        let often = sketch.names().find(|(name, _)| *name == b"/often").unwrap().1.count as f64;
        assert!((often / total - 0.75).abs() < 0.2, "{often} of {total}");
        assert!(busiest.interval >= 2_048, "{}", busiest.interval);
        for (name, of) in sketch.names() {
            let truth: u64 = if name == b"/often" { 150_000 } else { 50_000 };
            assert!(of.count.abs_diff(truth) <= of.deviation() && of.deviation() > 0, "{of:?}");
        }
    }

    #[test]
    fn what_is_long_past_is_forgotten() {
        let mut busiest = Busiest::new(0);
        let period = PERIOD as i64;
        count(&mut busiest, "/first", 1);
        busiest.on_second(period);
        count(&mut busiest, "/second", 1);
        let json = busiest.to_json();
        assert!(
            json.contains("/first") && json.contains("/second") && json.contains("\"since\":0,"),
            "{json}"
        );
        busiest.on_second(period * 2 - 1);
        assert!(busiest.to_json().contains("/first"));
        busiest.on_second(period * 2);
        let json = busiest.to_json();
        assert!(
            !json.contains("/first") && json.contains("/second") && json.contains("\"since\":300,"),
            "{json}"
        );
    }
}
