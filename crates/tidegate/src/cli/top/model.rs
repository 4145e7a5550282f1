//! What `tidegate top` shows, out of two reports of a server: rates of what has happened between them, and rows in the order
//! that was asked for. Knows no terminal and no clock.

use super::super::units::{bytes, count, seconds};
use super::report::{
    Cache, CacheRequests, Disk, Finding, Level, Report, Route, Sample, Server, Site, Slow, SlowRow, Times,
    UnderWay,
};
use std::collections::HashMap;
use std::hash::Hash;
use tidegate_modules::status::printable;

/// Stores of responses that have a line.
const CACHES: usize = 3;

/// What routes are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Order {
    /// The time that their requests took
    #[default]
    Time,
    /// Requests
    Requests,
    /// Bytes sent
    Bytes,
    /// Answers of 4xx and 5xx
    Errors,
}

impl Order {
    const ALL: [Order; 4] = [Order::Time, Order::Requests, Order::Bytes, Order::Errors];

    /// The one that comes after it, round and round.
    pub fn next(self) -> Order {
        let at = Order::ALL.iter().position(|order| *order == self).unwrap_or(0);
        Order::ALL[(at + 1) % Order::ALL.len()]
    }

    /// As a word.
    pub fn word(self) -> &'static str {
        match self {
            Order::Time => "time",
            Order::Requests => "requests",
            Order::Bytes => "bytes",
            Order::Errors => "errors",
        }
    }
}

/// How a cell stands out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tone {
    #[default]
    Plain,
    /// What it is about.
    Name,
    /// Somebody should look.
    Warning,
    /// Something is wrong.
    Error,
}

/// A piece of text and how it stands out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cell {
    pub text: String,
    pub tone: Tone,
}

impl Cell {
    fn new(text: impl Into<String>, tone: Tone) -> Cell {
        Cell { text: printable(&text.into()), tone }
    }

    fn plain(text: impl Into<String>) -> Cell {
        Cell::new(text, Tone::Plain)
    }

    fn toned(text: impl Into<String>, is_wrong: bool, tone: Tone) -> Cell {
        Cell::new(text, if is_wrong { tone } else { Tone::Plain })
    }
}

/// A column of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Of the widest the title of its table stands there.
    pub head: &'static str,
    /// Cells of the terminal; 0: what is left over, which one column of a table has.
    pub width: u16,
    pub is_right: bool,
}

/// A table with a title.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    pub title: String,
    pub columns: &'static [Column],
    pub rows: Vec<Vec<Cell>>,
}

/// Everything that a frame shows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct View {
    /// What the server is, and its figures: a line each.
    pub head: Vec<Vec<Cell>>,
    /// Each a line.
    pub findings: Vec<Vec<Cell>>,
    pub routes: Table,
    pub applications: Table,
    pub under_way: Table,
    pub slow: Table,
}

const fn left(head: &'static str, width: u16) -> Column {
    Column { head, width, is_right: false }
}

const fn right(head: &'static str, width: u16) -> Column {
    Column { head, width, is_right: true }
}

const ROUTES: [Column; 8] = [
    left("", 0),
    right("REQ/S", 7),
    right("TIME", 5),
    right("MEAN", 7),
    right("P99", 7),
    right("SENT/S", 8),
    right("4XX/S", 6),
    right("5XX/S", 6),
];
const APPLICATIONS: [Column; 7] = [
    left("", 0),
    left("STATE", 9),
    right("REQ/S", 7),
    right("IN USE", 7),
    right("WAIT", 6),
    right("REFUSED/S", 9),
    right("FAILED/S", 8),
];
const UNDER_WAY: [Column; 5] =
    [right("AGE", 7), left("STATUS", 13), left("CLIENT", 15), left("ROUTE", 18), left("", 0)];
const SLOW: [Column; 6] = [
    left("ENDED", 8),
    right("TOOK", 7),
    right("STATUS", 6),
    left("CLIENT", 15),
    left("ROUTE", 18),
    left("", 0),
];

/// What has happened between two samples; since the start where there is one alone.
struct Rates<'s> {
    before: Option<&'s Sample>,
    now: &'s Sample,
    span: f64,
}

impl<'s> Rates<'s> {
    fn between(before: Option<&'s Sample>, now: &'s Sample) -> Rates<'s> {
        // Another process at the same socket counts from nothing again.
        let before = before.filter(|before| before.report.server.pid == now.report.server.pid);
        let span = before.map_or(0.0, |before| now.at - before.at);
        Rates { before, now, span }
    }

    /// A second of a count that only grows; counts of a process that was killed may fall.
    fn per_second(&self, now: u64, before: Option<u64>) -> f64 {
        match before {
            Some(before) if self.span > 0.0 => now.saturating_sub(before) as f64 / self.span,
            _ => 0.0,
        }
    }

    fn of(&self, value: impl Fn(&Report) -> u64) -> f64 {
        self.per_second(value(&self.now.report), self.before.map(|before| value(&before.report)))
    }
}

/// Those of a list by what they are called.
fn by_name<'l, T, K: Hash + Eq>(list: &'l [T], name: impl Fn(&'l T) -> K) -> HashMap<K, &'l T> {
    list.iter().map(|entry| (name(entry), entry)).collect()
}

fn total(kinds: &HashMap<String, u64>) -> u64 {
    match kinds.get("total") {
        Some(total) => *total,
        None => kinds.values().fold(0, |sum: u64, count| sum.saturating_add(*count)),
    }
}

fn refused(report: &Report) -> u64 {
    let stats = &report.stats;
    let limits = report.limits.iter().fold(0, |sum: u64, limit| sum.saturating_add(limit.refused));
    let queues = total(&stats.queue_refusals);
    let of_applications = |why: &str| stats.gateway_errors.get(why).copied().unwrap_or(0);
    let (full, old) = (of_applications("queue_full"), of_applications("queue_age"));
    [stats.connections_refused, stats.requests_shed, queues, full, old, limits]
        .into_iter()
        .fold(0, u64::saturating_add)
}

/// How long requests took that have ended between two reports.
fn quantiles(now: &Times, before: Option<&Times>) -> Option<[f64; 4]> {
    let before: HashMap<u64, u64> = before
        .map(|before| before.buckets.iter().map(|(end, count)| (end.to_bits(), *count)).collect())
        .unwrap_or_default();
    let counts = now
        .buckets
        .iter()
        .map(|(end, count)| (*end, count.saturating_sub(before.get(&end.to_bits()).copied().unwrap_or(0))));
    let counts: Vec<(f64, u64)> = counts.filter(|(_, count)| *count > 0).collect();
    let all: u64 = counts.iter().fold(0, |sum: u64, (_, count)| sum.saturating_add(*count));
    (all > 0).then(|| {
        [0.5, 0.9, 0.99, 0.999].map(|quantile| {
            let rank = ((all as f64 * quantile).ceil() as u64).max(1);
            let mut seen = 0;
            let found = counts.iter().find(|(_, count)| {
                seen += count;
                seen >= rank
            });
            found.or(counts.last()).map_or(0.0, |(end, _)| *end)
        })
    })
}

impl View {
    /// Of two samples, or of one alone.
    pub fn of(before: Option<&Sample>, now: &Sample, order: Order) -> View {
        let rates = Rates::between(before, now);
        View {
            head: [about(&rates), traffic(&rates), load(&rates)].into_iter().chain(caches(&rates)).collect(),
            findings: now.report.findings.iter().map(finding).collect(),
            routes: routes(&rates, order),
            applications: applications(&rates),
            under_way: under_way(&now.under_way),
            slow: slow(&now.slow),
        }
    }
}

fn about(rates: &Rates<'_>) -> Vec<Cell> {
    let Server { version, pid, now, uptime, workers, revision, state, used } = &rates.now.report.server;
    let time = now.split_once('T').map_or(now.as_str(), |(_, time)| time);
    let micros = |report: &Report| (report.server.used.servers.cpu_seconds * 1e6) as u64;
    let (uptime, memory) = (seconds(*uptime), bytes(used.servers.resident_bytes as f64));
    let mut line = vec![
        Cell::new(format!("Tidegate {version}"), Tone::Name),
        Cell::plain(format!("  pid {pid}  up {uptime}  revision {revision}  {workers} workers")),
    ];
    if !state.is_empty() && state != "serving" {
        line.push(Cell::new(format!("  {state}"), Tone::Warning));
    }
    line.push(Cell::plain(format!("  cpu {:.0}%  {memory}  {time}", rates.of(micros) / 1e4)));
    line
}

fn traffic(rates: &Rates<'_>) -> Vec<Cell> {
    let requests = rates.of(|report| report.stats.responses.total);
    let (sent, received) =
        (rates.of(|report| report.stats.sent_bytes), rates.of(|report| report.stats.received_bytes));
    let before = rates.before.map(|before| &before.report.stats.latency);
    let times = match quantiles(&rates.now.report.stats.latency, before) {
        Some(times) => times.map(seconds),
        None => ["-", "-", "-", "-"].map(str::to_owned),
    };
    let [p50, p90, p99, p999] = times;
    vec![
        Cell::new(format!("{} req/s", count(requests)), Tone::Name),
        Cell::plain(format!("  out {}/s  in {}/s", bytes(sent), bytes(received))),
        Cell::plain(format!("  50% {p50}  90% {p90}  99% {p99}  99.9% {p999}")),
    ]
}

fn load(rates: &Rates<'_>) -> Vec<Cell> {
    let stats = &rates.now.report.stats;
    let is_near = |level: &Level| level.limit > 0 && level.current >= level.limit / 10 * 9;
    let of = |level: &Level| match level.limit {
        0 => count(level.current as f64),
        limit => format!("{}/{}", count(level.current as f64), count(limit as f64)),
    };
    let (refused, failed) = (rates.of(refused), rates.of(|report| report.stats.responses.server_errors));
    let errors = rates.of(|report| report.stats.responses.client_errors);
    let (open, busy) = (&stats.connections, &stats.in_flight);
    let queued = stats.queued.current.saturating_add(stats.gateway_queued.current);
    vec![
        Cell::toned(format!("connections {}", of(open)), is_near(open), Tone::Warning),
        Cell::toned(format!("  in flight {}", of(busy)), is_near(busy), Tone::Warning),
        Cell::toned(format!("  queued {queued}"), queued > 0, Tone::Warning),
        Cell::toned(format!("  refused {}/s", count(refused)), refused > 0.0, Tone::Error),
        Cell::plain(format!("  4xx {}/s", count(errors))),
        Cell::toned(format!("  5xx {}/s", count(failed)), failed > 0.0, Tone::Error),
    ]
}

/// A line for each store of responses; of more than three, the rest is on the status page.
fn caches(rates: &Rates<'_>) -> Vec<Vec<Cell>> {
    let before = rates.before.map(|before| by_name(&before.report.caches, |cache| cache.name.as_str()));
    let line = |cache: &Cache| {
        let before = before.as_ref().and_then(|before| before.get(cache.name.as_str()));
        let since = |of: fn(&CacheRequests) -> u64| {
            of(&cache.requests).saturating_sub(before.map_or(0, |before| of(&before.requests)))
        };
        let served = since(|requests| requests.hits.saturating_add(requests.collapsed));
        let fetched = since(|requests| requests.misses.saturating_add(requests.revalidated));
        let hits = match served.saturating_add(fetched) {
            0 => "-".to_owned(),
            asked => format!("{:.0}%", served as f64 / asked as f64 * 100.0),
        };
        let full = |bytes_taken: u64, limit: u64| {
            format!("{} of {}", bytes(bytes_taken as f64), bytes(limit as f64))
        };
        let mut line = vec![
            Cell::new(format!("cache {}", cache.name), Tone::Name),
            Cell::plain(format!("  hits {hits}  memory {}", full(cache.memory.bytes, cache.memory.limit))),
        ];
        if !cache.disks.is_empty() {
            let sum = |of: fn(&Disk) -> u64| cache.disks.iter().map(of).fold(0, u64::saturating_add);
            line.push(Cell::plain(format!(
                "  disks {}",
                full(sum(|disk| disk.bytes), sum(|disk| disk.limit))
            )));
        }
        let out = cache.disks.iter().filter(|disk| disk.out.is_some()).count();
        line.push(Cell::toned(
            if out > 0 { format!("  {out} out of use") } else { String::new() },
            out > 0,
            Tone::Error,
        ));
        line
    };
    rates.now.report.caches.iter().take(CACHES).map(line).collect()
}

fn finding(finding: &Finding) -> Vec<Cell> {
    let Finding { name, subject, sentence, change } = finding;
    let about = if subject.is_empty() { name.clone() } else { format!("{name} {subject}") };
    let mut line = vec![Cell::new(about, Tone::Warning), Cell::plain(format!(": {sentence}"))];
    if !change.is_empty() {
        line.push(Cell::new(format!(" -> {change}"), Tone::Name));
    }
    line
}

/// What a route has done between two samples.
struct RouteRates {
    name: String,
    requests: f64,
    /// Of one second the seconds that were spent: the requests under way, on average.
    time: f64,
    mean: Option<f64>,
    p99: Option<f64>,
    bytes: f64,
    client_errors: f64,
    server_errors: f64,
    /// Since the start: what has rested stays in the order of what it has cost.
    seconds: f64,
}

impl RouteRates {
    fn of(rates: &Rates<'_>, site: &str, now: &Route, before: Option<&Route>) -> RouteRates {
        let class = |route: &Route, class: &str| route.responses.get(class).copied().unwrap_or(0);
        let of = |value: &dyn Fn(&Route) -> u64| {
            // A route that is new has begun with nothing.
            rates.per_second(value(now), rates.before.map(|_| before.map_or(0, value)))
        };
        let spent = (now.seconds - before.map_or(0.0, |before| before.seconds)).max(0.0);
        let ended = now.requests.saturating_sub(before.map_or(0, |before| before.requests));
        let is_timed = rates.before.is_some() && rates.span > 0.0;
        RouteRates {
            name: format!("{site} {}", now.route),
            requests: of(&|route| route.requests),
            time: if is_timed { spent / rates.span } else { 0.0 },
            mean: (is_timed && ended > 0).then(|| spent / ended as f64),
            p99: (now.duration.count > 0).then_some(now.duration.p99),
            bytes: of(&|route| route.sent_bytes),
            client_errors: of(&|route| class(route, "4xx")),
            server_errors: of(&|route| class(route, "5xx")),
            seconds: now.seconds,
        }
    }

    fn key(&self, order: Order) -> [f64; 3] {
        let first = match order {
            Order::Time => self.time,
            Order::Requests => self.requests,
            Order::Bytes => self.bytes,
            Order::Errors => self.server_errors + self.client_errors,
        };
        [first, self.time, self.seconds]
    }
}

fn routes(rates: &Rates<'_>, order: Order) -> Table {
    let no_sites: &[Site] = &[];
    let before = rates.before.map_or(no_sites, |before| &before.report.sites);
    let before = by_name(before, |site| site.name.as_str());
    let mut all: Vec<RouteRates> = Vec::new();
    for site in &rates.now.report.sites {
        let known = before.get(site.name.as_str());
        let known_routes =
            known.map(|known| by_name(&known.routes, |route| route.route.as_str())).unwrap_or_default();
        all.extend(site.routes.iter().map(|route| {
            RouteRates::of(rates, &site.name, route, known_routes.get(route.route.as_str()).copied())
        }));
        if let Some(unrouted) = &site.unrouted {
            let known = known.and_then(|known| known.unrouted.as_ref());
            let named = Route { route: "(no route)".into(), ..unrouted.clone() };
            all.push(RouteRates::of(rates, &site.name, &named, known));
        }
    }
    all.sort_by(|one, other| {
        let (one, other) = (one.key(order), other.key(order));
        let differ = other.iter().zip(&one).map(|(other, one)| other.total_cmp(one));
        differ.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
    });
    let all_time: f64 = all.iter().map(|route| route.time).sum();
    let time = |time: Option<f64>| Cell::plain(time.map_or("-".to_owned(), seconds));
    let row = |route: &RouteRates| {
        let share =
            if all_time > 0.0 { format!("{:.0}%", route.time / all_time * 100.0) } else { "-".into() };
        vec![
            Cell::new(route.name.as_str(), Tone::Name),
            Cell::plain(count(route.requests)),
            Cell::plain(share),
            time(route.mean),
            time(route.p99),
            Cell::plain(bytes(route.bytes)),
            Cell::toned(count(route.client_errors), route.client_errors > 0.0, Tone::Warning),
            Cell::toned(count(route.server_errors), route.server_errors > 0.0, Tone::Error),
        ]
    };
    let title = format!("Routes by {}", order.word());
    Table { title, columns: &ROUTES, rows: all.iter().map(row).collect() }
}

fn applications(rates: &Rates<'_>) -> Table {
    let empty = Report::default();
    let before = rates.before.map_or(&empty, |before| &before.report);
    let pools_before = by_name(&before.pools, |pool| pool.name.as_str());
    let groups_before = by_name(&before.upstreams, |group| group.name.as_str());
    let known = |is_there: Option<u64>| rates.before.and(is_there);
    let mut rows = Vec::new();
    for pool in &rates.now.report.pools {
        let before = pools_before.get(pool.name.as_str());
        let requests = rates.per_second(pool.requests, known(before.map(|before| before.requests)));
        let refused =
            rates.per_second(total(&pool.refused), known(before.map(|before| total(&before.refused))));
        let state = if pool.state.is_empty() { "-" } else { &pool.state };
        let in_use = format!("{}/{}", pool.in_use, pool.processes.len());
        rows.push(application(
            &format!("pool {}", pool.name),
            state,
            (requests, refused, 0.0),
            (in_use, pool.waiting),
        ));
    }
    for group in &rates.now.report.upstreams {
        let before = groups_before.get(group.name.as_str());
        let members = before.map(|before| by_name(&before.members, |member| member.name.as_str()));
        let refused =
            rates.per_second(total(&group.refused), known(before.map(|before| total(&before.refused))));
        for (at, member) in group.members.iter().enumerate() {
            let before = members.as_ref().and_then(|members| members.get(member.name.as_str()));
            let requests = rates.per_second(member.requests, known(before.map(|before| before.requests)));
            let failed = rates.per_second(member.failures, known(before.map(|before| before.failures)));
            // The queue is before all of them.
            let (refused, waiting) = if at == 0 { (refused, group.waiting) } else { (0.0, 0) };
            let name = format!("{} {}", group.name, member.name);
            rows.push(application(
                &name,
                &member.state,
                (requests, refused, failed),
                (member.in_use.to_string(), waiting),
            ));
        }
    }
    Table { title: "Pools and upstreams".into(), columns: &APPLICATIONS, rows }
}

fn application(
    name: &str,
    state: &str,
    (requests, refused, failed): (f64, f64, f64),
    (in_use, waiting): (String, u64),
) -> Vec<Cell> {
    let is_well = matches!(state, "up" | "idle" | "-");
    vec![
        Cell::new(name, Tone::Name),
        Cell::toned(state, !is_well, Tone::Error),
        Cell::plain(count(requests)),
        Cell::plain(in_use),
        Cell::toned(waiting.to_string(), waiting > 0, Tone::Warning),
        Cell::toned(count(refused), refused > 0.0, Tone::Error),
        Cell::toned(count(failed), failed > 0.0, Tone::Error),
    ]
}

fn request_line(method: &str, target: &str) -> String {
    if method.is_empty() { String::new() } else { format!("{method} {target}") }
}

fn place(site: &str, route: &str) -> Cell {
    Cell::new(format!("{site} {route}").trim(), Tone::Name)
}

fn under_way(told: &UnderWay) -> Table {
    let rows = told.requests.iter().map(|row| {
        let status = row.status.map(|status| format!(" {status}")).unwrap_or_default();
        let mut request = request_line(&row.method, &row.target);
        if !row.upstream.is_empty() {
            request = format!("{request} @ {}", row.upstream);
        }
        vec![
            Cell::toned(seconds(row.age), row.age >= 10.0, Tone::Warning),
            Cell::plain(format!("{}{status}", row.phase)),
            Cell::plain(row.client.as_str()),
            place(&row.site, &row.route),
            Cell::plain(format!("{} {request}", row.id).trim_end()),
        ]
    });
    Table { title: format!("Under way: {}", told.count), columns: &UNDER_WAY, rows: rows.collect() }
}

fn slow(told: &Slow) -> Table {
    let mut rows: Vec<&SlowRow> = told.requests.iter().collect();
    rows.sort_by(|one, other| other.at.cmp(&one.at).then(other.took.total_cmp(&one.took)));
    let rows = rows.into_iter().map(|row| {
        let second = row.at.rem_euclid(86_400);
        vec![
            Cell::plain(format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)),
            Cell::new(seconds(row.took), Tone::Warning),
            Cell::toned(row.status.to_string(), row.status >= 500, Tone::Error),
            Cell::plain(row.client.as_str()),
            place(&row.site, &row.route),
            Cell::plain(request_line(&row.method, &row.target)),
        ]
    });
    Table { title: "Slow, the last first".into(), columns: &SLOW, rows: rows.collect() }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A report with figures that grow with `age`, seconds.
    pub fn sample(age: u64) -> Sample {
        let (fast, slow) = (age * 100, age * 4);
        let report = format!(
            r#"{{"server":{{"version":"0.1.0","pid":7,"now":"2026-11-23T07:00:00Z","uptime":{age},"workers":2,"revision":3,
                "state":"serving","used":{{"servers":{{"cpu_seconds":{cpu},"resident_bytes":12582912}}}},"more":[1]}},
              "findings":[{{"name":"pool-small","subject":"php","sentence":"requests wait 300 ms","change":"workers 8","since":1}}],
              "pools":[{{"name":"php","state":"up","requests":{slow},"in_use":2,"waiting":1,"refused":{{"full":{age},"down":0}},"processes":[{{}},{{}}]}}],
              "upstreams":[{{"name":"app","waiting":0,"refused":{{}},"members":[{{"name":"10.0.0.1:80","state":"ejected","in_use":0,"requests":{fast},"failures":{age}}}]}}],
              "caches":[{{"name":"main","requests":{{"hits":{fast},"collapsed":0,"misses":{slow},"revalidated":{age}}},"memory":{{"bytes":1048576,"limit":67108864}},
                "disks":[{{"bytes":2048,"limit":4096,"out":null}},{{"bytes":2048,"limit":4096,"out":{{"why":"fails","since":null}}}}]}}],
              "limits":[{{"name":"l","refused":0}}],
              "sites":[{{"name":"a.test","unrouted":{{"requests":0}},"routes":[
                {{"route":"/fast/*","requests":{fast},"responses":{{"2xx":{fast}}},"sent_bytes":{bytes},"seconds":{fast_seconds},"duration":{{"count":{fast},"p99":0.004}}}},
                {{"route":"/slow/*","requests":{slow},"responses":{{"2xx":{age},"5xx":{age}}},"sent_bytes":{age},"seconds":{slow_seconds}}}]}}],
              "stats":{{"connections":{{"current":95,"peak":95,"limit":100}},"in_flight":{{"current":1,"peak":1}},"queued":{{"current":1}},"gateway_queued":{{"current":3}},"gateway_errors":{{"queue_full":{age},"queue_age":{age},"silent":{age}}},
                "connections_refused":{age},"responses":{{"total":{total},"4xx":0,"5xx":{age}}},"sent_bytes":{bytes},"received_bytes":10,
                "latency":{{"count":{total},"buckets":[[0.001,{fast}],[0.5,{slow}]]}}}}}}"#,
            cpu = age as f64 * 0.5,
            bytes = age * 2048,
            fast_seconds = age as f64 * 0.1,
            slow_seconds = age as f64 * 2.0,
            total = fast + slow,
        );
        let under_way = r#"{"count":2,"requests":[{"id":"7-0-1-1","age":12.5,"phase":"answering","client":"192.0.2.7",
            "site":"a.test","route":"/slow/*","method":"GET","target":"/slow/\u001b[2J","upstream":"http://app"}]}"#;
        let slow = r#"{"requests":[{"at":3661,"took":2.5,"status":502,"client":"192.0.2.9","site":"a.test","route":"/slow/*",
            "method":"GET","target":"/slow/1"},{"at":3700,"took":1.5,"status":200}]}"#;
        Sample::read(age as f64, &report, under_way, slow).unwrap()
    }

    fn texts(row: &[Cell]) -> Vec<&str> {
        row.iter().map(|cell| cell.text.as_str()).collect()
    }

    fn joined(row: &[Cell]) -> String {
        texts(row).concat()
    }

    #[test]
    fn rates_are_those_of_the_last_interval() {
        let (before, now) = (sample(10), sample(14));
        let view = View::of(Some(&before), &now, Order::Time);
        assert_eq!(
            joined(&view.head[0]),
            "Tidegate 0.1.0  pid 7  up 14s  revision 3  2 workers  cpu 50%  12M  07:00:00Z"
        );
        assert_eq!(
            joined(&view.head[1]),
            "104 req/s  out 2.0K/s  in 0B/s  50% 1.0ms  90% 1.0ms  99% 500ms  99.9% 500ms"
        );
        assert_eq!(
            joined(&view.head[2]),
            "connections 95/100  in flight 1  queued 4  refused 3/s  4xx 0/s  5xx 1/s"
        );
        assert_eq!(view.head[2][0].tone, Tone::Warning, "nearly full");
        assert_eq!(
            joined(&view.head[3]),
            "cache main  hits 95%  memory 1.0M of 64M  disks 4.0K of 8.0K  1 out of use"
        );
        let routes: Vec<Vec<&str>> = view.routes.rows.iter().map(|row| texts(row)).collect();
        assert_eq!(
            routes[..2],
            [
                ["a.test /slow/*", "4", "95%", "500ms", "-", "1B", "0", "1"],
                ["a.test /fast/*", "100", "5%", "1.0ms", "4.0ms", "2.0K", "0", "0"],
            ]
        );
        let applications: Vec<Vec<&str>> = view.applications.rows.iter().map(|row| texts(row)).collect();
        assert_eq!(applications[0], ["pool php", "up", "4", "2/2", "1", "1", "0"]);
        assert_eq!(applications[1], ["app 10.0.0.1:80", "ejected", "100", "0", "0", "0", "1"]);
        assert_eq!(view.applications.rows[1][1].tone, Tone::Error);
        assert_eq!(joined(&view.findings[0]), "pool-small php: requests wait 300 ms -> workers 8");
    }

    #[test]
    fn routes_are_in_the_order_that_is_asked_for() {
        let (before, now) = (sample(10), sample(11));
        for (order, first) in [
            (Order::Time, "slow"),
            (Order::Requests, "fast"),
            (Order::Bytes, "fast"),
            (Order::Errors, "slow"),
        ] {
            let view = View::of(Some(&before), &now, order);
            assert_eq!(view.routes.rows[0][0].text, format!("a.test /{first}/*"), "{order:?}");
            assert_eq!(view.routes.title, format!("Routes by {}", order.word()));
        }
    }

    #[test]
    fn without_a_sample_before_and_after_a_restart_there_are_no_rates() {
        let mut restarted = sample(3);
        restarted.report.server.pid = 8;
        for view in
            [View::of(None, &sample(3), Order::Time), View::of(Some(&sample(9)), &restarted, Order::Time)]
        {
            assert!(joined(&view.head[1]).starts_with("0 req/s  out 0B/s"), "{:?}", view.head[1]);
            assert_eq!(texts(&view.routes.rows[0])[1..4], ["0", "-", "-"]);
            assert_eq!(view.routes.rows[0][0].text, "a.test /slow/*", "what has cost most since the start");
        }
        // Counts of a process that was killed are gone: no rate is below nothing.
        let view = View::of(Some(&sample(9)), &sample(3), Order::Time);
        assert!(joined(&view.head[1]).starts_with("0 req/s"), "{:?}", view.head[1]);
    }

    #[test]
    fn nothing_that_a_client_has_chosen_reaches_the_terminal() {
        let view = View::of(None, &sample(1), Order::Time);
        let row = texts(&view.under_way.rows[0]);
        assert_eq!(
            row,
            ["12s", "answering", "192.0.2.7", "a.test /slow/*", "7-0-1-1 GET /slow/?[2J @ http://app"]
        );
        assert_eq!(view.under_way.title, "Under way: 2");
        let slow: Vec<Vec<&str>> = view.slow.rows.iter().map(|row| texts(row)).collect();
        assert_eq!(slow[1], ["01:01:01", "2.5s", "502", "192.0.2.9", "a.test /slow/*", "GET /slow/1"]);
        assert_eq!(slow[0][0], "01:01:40", "the last first");
    }

    #[test]
    fn a_report_of_another_version_is_shown() {
        for report in
            ["{}", r#"{"server":{},"sites":[{}],"pools":[{}],"upstreams":[{"members":[{}]}],"new":{"a":1}}"#]
        {
            let sample = Sample::read(0.0, report, "{}", "{}").unwrap();
            View::of(Some(&sample), &sample, Order::Errors);
        }
    }
}
