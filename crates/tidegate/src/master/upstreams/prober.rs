//! The thread that watches over the members of upstream groups: where their names lead, and whether they answer
//! their checks.

use super::{check, resolve};
use anyhow::{Context, Result};
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use tidegate_config::settings::upstream::{MemberAddress, Upstream};
use tidegate_modules::gateway::balance::groups::{Fact, Finding, Findings};
use tidegate_modules::gateway::balance::health::{Fitness, Health, Rules};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, LocalSet};
use tokio::time::{Duration, Instant, sleep_until};

type Report = Rc<dyn Fn(Finding)>;

/// A group, and how its members are reached with TLS where they are.
#[derive(Clone)]
pub struct Group {
    pub upstream: Upstream,
    pub way: Option<check::Way>,
}

impl Group {
    fn is_same_as(&self, other: &Group) -> bool {
        let is_same_way = match (&self.way, &other.way) {
            (None, None) => true,
            (Some(one), Some(other)) => one.is_same_as(other),
            _ => false,
        };
        is_same_way && self.upstream.is_same_as(&other.upstream)
    }
}

/// The thread. It ends when this is dropped.
pub struct Prober {
    settings: Option<mpsc::UnboundedSender<(Vec<Group>, Vec<SocketAddr>)>>,
    thread: Option<JoinHandle<()>>,
}

impl Prober {
    /// Starts the thread; `report` is called on it.
    pub fn start(report: impl Fn(Finding) + Send + 'static) -> Result<Prober> {
        let (sender, settings) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot watch over upstream members")?;
        let thread = std::thread::Builder::new()
            .name("tidegate-upstreams".into())
            .spawn(move || LocalSet::new().block_on(&runtime, follow(settings, Rc::new(report))))
            .context("cannot start the thread that watches over upstream members")?;
        Ok(Prober { settings: Some(sender), thread: Some(thread) })
    }

    /// Watches over these groups from now on, and asks these name servers (none: those of the machine). Those that are as they
    /// were go on undisturbed.
    pub fn set(&self, groups: Vec<Group>, servers: Vec<SocketAddr>) {
        if let Some(settings) = &self.settings {
            let _ = settings.send((groups, servers));
        }
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.settings = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A group that is watched over, and what ends that.
struct Watched {
    group: Group,
    tasks: Vec<AbortHandle>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

async fn follow(mut settings: mpsc::UnboundedReceiver<(Vec<Group>, Vec<SocketAddr>)>, report: Report) {
    let mut resolver = Rc::new(resolve::Resolver::default());
    // What was said last: it holds for whoever goes on under other settings.
    let known = Rc::new(RefCell::new(Findings::default()));
    let report: Report = Rc::new({
        let known = known.clone();
        move |finding: Finding| {
            known.borrow_mut().learn(&finding);
            report(finding);
        }
    });
    let mut watched: HashMap<String, Watched> = HashMap::new();
    while let Some((groups, servers)) = settings.recv().await {
        if resolver.servers() != servers {
            // Names are asked for anew; what was known of them holds until then.
            let has_names = |group: &Group| {
                group
                    .upstream
                    .members
                    .iter()
                    .any(|member| matches!(member.address, MemberAddress::Name { .. }))
            };
            watched.retain(|_, watched| !has_names(&watched.group));
            resolver = Rc::new(resolve::Resolver::new(servers));
        }
        watched.retain(|_, watched| groups.iter().any(|group| group.is_same_as(&watched.group)));
        let upstreams: Vec<Upstream> = groups.iter().map(|group| group.upstream.clone()).collect();
        known.borrow_mut().retain(&upstreams);
        for group in groups {
            let watch = || watch_over(group.clone(), &resolver, &known.borrow(), &report);
            watched.entry(group.upstream.name.clone()).or_insert_with(watch);
        }
    }
}

fn watch_over(whole: Group, resolver: &Rc<resolve::Resolver>, known: &Findings, report: &Report) -> Watched {
    let mut tasks = Vec::new();
    let Group { upstream, way } = &whole;
    let group: Arc<str> = upstream.name.as_str().into();
    for member in &upstream.members {
        let say = {
            let (report, group, member) = (report.clone(), group.clone(), member.name.clone());
            move |fact| report(Finding { group: group.to_string(), member: member.clone(), fact })
        };
        let (places, mut place) = watch::channel(check::Place::of(&member.address));
        if let MemberAddress::Name { host, port } = &member.address {
            let (resolver, host, port, say) = (resolver.clone(), host.clone(), *port, say.clone());
            let follow = async move {
                resolver
                    .follow(&host, |addresses| {
                        let addresses: Vec<_> =
                            addresses.iter().map(|address| SocketAddr::new(*address, port)).collect();
                        places.send_replace(check::Place::Tcp(addresses.clone()));
                        say(Fact::Addresses(addresses));
                    })
                    .await;
            };
            tasks.push(tokio::task::spawn_local(follow).abort_handle());
        }
        let was_down = known.is_down(&group, &member.name);
        if was_down && upstream.check.is_none() {
            // Nobody asks any more, so nobody would bring it back.
            let back = async move { say(Fact::IsDown(false)) };
            tasks.push(tokio::task::spawn_local(back).abort_handle());
            continue;
        }
        if let Some(settings) = upstream.check.clone() {
            let name = format!("{} of upstream {group}", member.name);
            let (host, way) = (member.name.clone(), way.clone());
            let checks = async move {
                let rules = Rules { rise: settings.rise, fall: settings.fall, ..Rules::default() };
                let mut health = Health::default();
                health.set_down(was_down, 0);
                let began = Instant::now();
                let mut next = began + spread(settings.interval, &name);
                loop {
                    sleep_until(next).await;
                    next += settings.interval;
                    let now_at = place.borrow_and_update().clone();
                    let outcome = check::once(&settings, &now_at, way.as_ref(), &host).await;
                    let now = began.elapsed().as_nanos() as u64;
                    match health.on_check(outcome.is_ok(), now, &rules) {
                        Some(Fitness::Down) => {
                            let why = outcome.err().unwrap_or_default();
                            tidegate_core::log::warn(format_args!("{name} is taken out: {why}"));
                            say(Fact::IsDown(true));
                        }
                        Some(_) => {
                            tidegate_core::log::info(format_args!("{name} is back"));
                            say(Fact::IsDown(false));
                        }
                        None => {}
                    }
                    // After a stop of the machine it does not catch up.
                    next = next.max(Instant::now());
                }
            };
            tasks.push(tokio::task::spawn_local(checks).abort_handle());
        }
    }
    Watched { group: whole, tasks }
}

/// When within an interval a member is asked: members are not all asked at once.
fn spread(interval: Duration, name: &str) -> Duration {
    use std::hash::{BuildHasher, RandomState};
    let part = RandomState::new().hash_one(name) % 1_000;
    interval.min(Duration::from_secs(1)).mul_f64(part as f64 / 1_000.0)
}
