//! Automatic certificates in the master: a thread that gets and renews them, and what the master does with what
//! it says.
//!
//! The thread has a run-time of its own, since what it does waits for servers far away; the master never does.

use super::{Event, Master};
use crate::certificates::day;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;
use tidegate_config::Settings;
use tidegate_config::settings::{self, Acme as AcmeSettings, AcmeChallenge};
use tidegate_core::log;
use tidegate_core::tls::{TlsUpdate, automatic_names};
use tidegate_io::clock::wall_seconds;
use tidegate_modules::gateway::supervise::launch::{Launch, environment_of_hook};
use tidegate_tls::Pair;
use tidegate_tls::acme::authority::base64;
use tidegate_tls::acme::dns::{Dns, DnsHook};
use tidegate_tls::acme::dns_update::DnsUpdate;
use tidegate_tls::acme::local::is_local;
use tidegate_tls::acme::manager::Local;
use tidegate_tls::acme::{
    AcmeAuthority, AcmeOptions, ChallengeKind, ChallengeServers, Clock, Issue, IssueError, LocalAuthority,
    Manager, Order, Outcome, Storage, Window,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

/// What workers get to hear of an answer before the authority is told that it is there.
const SETTLE: Duration = Duration::from_millis(200);
/// How often the answers of other nodes are looked for.
const LOOK: Duration = Duration::from_secs(1);

/// What the thread says.
pub enum AcmeEvent {
    /// For the server processes; whoever waits for it hears when they have been told.
    Update(TlsUpdate, Option<oneshot::Sender<()>>),
    /// Of a name.
    Outcome(Outcome),
}

/// What the thread is told: names, and how to get their certificates.
struct Wanted {
    names: Vec<String>,
    settings: AcmeSettings,
    storage: PathBuf,
}

/// The way to the thread; it is started when there is something for it to do.
#[derive(Default)]
pub struct Acme {
    wanted: Option<UnboundedSender<Wanted>>,
}

/// Where certificates are kept unless the settings say.
pub fn default_storage() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return Path::new("/var/lib/tidegate/acme").to_owned();
    }
    let home = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = home("XDG_DATA_HOME").or_else(|| home("HOME").map(|home| home.join(".local/share")));
    data.unwrap_or_else(std::env::temp_dir).join("tidegate/acme")
}

impl Acme {
    /// New settings are in force.
    pub fn adopt(&mut self, settings: &Settings, events: &Sender<Event>) {
        let names = automatic_names(settings);
        if names.is_empty() && self.wanted.is_none() {
            return;
        }
        let storage = settings.acme.storage.clone().unwrap_or_else(default_storage);
        let mut wanted = Wanted { names, settings: settings.acme.clone(), storage };
        if let Some(sender) = &self.wanted {
            match sender.send(wanted) {
                Ok(()) => return,
                Err(back) => wanted = back.0, // the thread has ended
            }
        }
        match start(events.clone()) {
            Ok(sender) => {
                let _ = sender.send(wanted);
                self.wanted = Some(sender);
            }
            Err(error) => log::error(format_args!("automatic certificates: cannot start a thread: {error}")),
        }
    }
}

impl Master {
    /// What the thread has said.
    pub(super) fn hear_acme(&mut self, said: AcmeEvent) {
        match said {
            AcmeEvent::Update(update, told) => {
                self.give_automatic(&update);
                if let Some(told) = told {
                    let _ = told.send(());
                }
            }
            AcmeEvent::Outcome(Outcome::Ready { name, pair, issuer }) => {
                let until = tidegate_tls::Certificate::new(&pair).map_or(0, |made| made.about.not_after);
                let automatic = vec![(name.clone(), pair)];
                self.give_automatic(&TlsUpdate { automatic, ..TlsUpdate::default() });
                match issuer {
                    Some(issuer) => log::info(format_args!(
                        "automatic certificate for {name}: issued by {issuer}, good until {}",
                        day(until)
                    )),
                    None => {
                        log::info(format_args!("automatic certificate for {name}: good until {}", day(until)))
                    }
                }
            }
            AcmeEvent::Outcome(Outcome::Failed { name, why, next, has_other }) => {
                let minutes = (next - wall_seconds()).max(0) / 60;
                let meanwhile =
                    if has_other { "the present one stays in use" } else { "there is none meanwhile" };
                log::error(format_args!(
                    "automatic certificate for {name}: {why}; {meanwhile}; trying again in {} min",
                    minutes.max(1)
                ));
            }
        }
    }
}

struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> i64 {
        wall_seconds()
    }
}

fn start(events: Sender<Event>) -> std::io::Result<UnboundedSender<Wanted>> {
    let (sender, wanted) = unbounded_channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("tidegate-acme".into()).spawn(move || {
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, work(wanted, events));
    })?;
    Ok(sender)
}

async fn work(mut wanted: UnboundedReceiver<Wanted>, events: Sender<Event>) {
    let (orders, received) = unbounded_channel();
    let report = events.clone();
    let manager = Manager::new(WallClock, move |outcome| {
        let _ = report.send(Event::Acme(AcmeEvent::Outcome(outcome)));
    });
    tokio::task::spawn_local(manager.run(received));
    let mut storage: Option<Rc<Storage>> = None;
    let mut known: Vec<(String, String)> = Vec::new();
    loop {
        let next = tokio::select! {
            next = wanted.recv() => next,
            () = tokio::time::sleep(LOOK), if storage.is_some() => {
                look_for_answers(storage.as_deref(), &mut known, &events);
                continue;
            }
        };
        let Some(next) = next else { return };
        match Storage::open(&next.storage) {
            Ok(opened) => {
                let opened = Rc::new(opened);
                let servers: Rc<dyn ChallengeServers> = Rc::new(ToWorkers(events.clone()));
                let order = Order::Serve {
                    issuers: issuers(&next, &opened, &servers),
                    names: next.names,
                    storage: opened.clone(),
                };
                storage = Some(opened);
                if orders.send(order).is_err() {
                    return;
                }
            }
            Err(error) => log::error(format_args!(
                "automatic certificates: cannot use the folder {}: {error}; name another with `acme {{ storage }}`",
                next.storage.display()
            )),
        }
    }
}

/// What another node has to answer may be asked of this one.
fn look_for_answers(storage: Option<&Storage>, known: &mut Vec<(String, String)>, events: &Sender<Event>) {
    let present = storage.map(Storage::answers).unwrap_or_default();
    if present == *known {
        return;
    }
    let gone = known.iter().filter(|(token, _)| !present.iter().any(|(other, _)| other == token));
    let gone = gone.map(|(token, _)| (token.clone(), None));
    let new = present.iter().map(|(token, answer)| (token.clone(), Some(answer.clone())));
    let update = TlsUpdate { tokens: gone.chain(new).collect(), ..TlsUpdate::default() };
    let _ = events.send(Event::Acme(AcmeEvent::Update(update, None)));
    *known = present;
}

fn issuers(wanted: &Wanted, storage: &Rc<Storage>, servers: &Rc<dyn ChallengeServers>) -> Vec<Rc<dyn Issue>> {
    let settings = &wanted.settings;
    let mut issuers: Vec<Rc<dyn Issue>> = Vec::new();
    if wanted.names.iter().any(|name| is_local(name)) {
        issuers.push(Rc::new(Own(storage.clone())));
    }
    for authority in &settings.authorities {
        let kind = |challenge: &AcmeChallenge| match challenge {
            AcmeChallenge::Http01 => ChallengeKind::Http01,
            AcmeChallenge::TlsAlpn01 => ChallengeKind::TlsAlpn01,
            AcmeChallenge::Dns01 => ChallengeKind::Dns01,
        };
        let options = AcmeOptions {
            directory: authority.directory.clone(),
            roots: authority.roots.clone(),
            email: settings.email.clone(),
            external_account: authority.external_account.clone(),
            profile: authority.profile.clone(),
            challenges: settings.challenges.iter().map(kind).collect(),
            dns: dns_of(settings),
        };
        issuers.push(Rc::new(AcmeAuthority::new(options, storage.clone(), servers)));
    }
    issuers
}

fn dns_of(settings: &AcmeSettings) -> Option<Dns> {
    if settings.dns_updates.is_empty() {
        let hook = settings.dns_hook.as_ref()?;
        let mut command = vec![hook.command.clone().into_os_string()];
        if hook.user.is_some() || !hook.sealed.paths.is_empty() {
            let (user, group) = (hook.user.clone(), hook.group.clone());
            let launch = Launch { user, group, ..Launch::default() }.keeping(&hook.sealed);
            let through = launch.command(&command);
            command =
                std::iter::once(through.get_program()).chain(through.get_args()).map(Into::into).collect();
        }
        let environment = environment_of_hook(hook.user.as_deref());
        let (shown, settle) = (hook.command.clone(), hook.settle);
        return Some(Dns::Hook(DnsHook { command, environment, shown, settle }));
    }
    let zone = |update: &settings::DnsUpdate| {
        let Some(key) = base64(&update.key) else {
            log::error(format_args!(
                "automatic certificates: the key of `dns-update` {} is not base64",
                update.zone
            ));
            return None;
        };
        Some(DnsUpdate {
            server: update.server,
            zone: update.zone.clone(),
            key_name: update.key_name.clone(),
            key,
            settle: update.settle,
        })
    };
    Some(Dns::Update(settings.dns_updates.iter().filter_map(zone).collect()))
}

/// Answers to challenges, by way of the master.
struct ToWorkers(Sender<Event>);

impl ToWorkers {
    async fn tell(&self, update: TlsUpdate) {
        let (told, heard) = oneshot::channel();
        if self.0.send(Event::Acme(AcmeEvent::Update(update, Some(told)))).is_ok() {
            let _ = heard.await;
            tokio::time::sleep(SETTLE).await;
        }
    }
}

impl ChallengeServers for ToWorkers {
    fn set_token<'a>(&'a self, token: &'a str, answer: Option<&'a str>) -> Local<'a, ()> {
        let tokens = vec![(token.to_owned(), answer.map(str::to_owned))];
        Box::pin(self.tell(TlsUpdate { tokens, ..TlsUpdate::default() }))
    }

    fn set_challenge<'a>(&'a self, name: &'a str, pair: Option<Pair>) -> Local<'a, ()> {
        let challenges = vec![(name.to_owned(), pair)];
        Box::pin(self.tell(TlsUpdate { challenges, ..TlsUpdate::default() }))
    }
}

/// The authority of our own.
struct Own(Rc<Storage>);

impl Issue for Own {
    fn name(&self) -> String {
        "the local authority (`tidegate trust` makes this system trust it)".into()
    }

    fn issues_for(&self, name: &str) -> bool {
        is_local(name)
    }

    fn obtain<'a>(
        &'a self,
        name: &'a str,
        _: Option<&'a Pair>,
    ) -> Local<'a, Result<(String, String), IssueError>> {
        Box::pin(async move {
            let now = wall_seconds();
            LocalAuthority::open(&self.0, now)?.issue(name, now)
        })
    }

    fn window<'a>(&'a self, _: &'a Pair) -> Local<'a, Option<(Window, Option<i64>)>> {
        Box::pin(async { None })
    }
}

/// Shared by the master's threads: nothing. This keeps the compiler's word for it.
const _: fn() = || {
    fn is_send<T: Send>() {}
    is_send::<AcmeEvent>();
    is_send::<Arc<Settings>>();
};
