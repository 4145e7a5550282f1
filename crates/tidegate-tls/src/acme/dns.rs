//! Records for the DNS-01 challenge (RFC 8555 section 8.4): by a dynamic update of the zone, or by a command of
//! the operator's, which knows the provider.
//!
//! The command gets three arguments: `present` or `cleanup`, the full name of the record
//! (`_acme-challenge.example.com`), and its value.

use super::dns_update::{Change, DnsUpdate};
use super::manager::IssueError;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// How long a command may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// How records are set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dns {
    /// By a command.
    Hook(DnsHook),
    /// By a dynamic update, of whichever zone the record belongs to.
    Update(Vec<DnsUpdate>),
}

impl Dns {
    /// Sets the record, and waits until it is to be seen.
    ///
    /// # Errors
    /// As [`DnsHook::present`] or [`DnsUpdate::change`]; or the record belongs to no zone of the updates.
    pub async fn present(&self, name: &str, value: &str, now: i64) -> Result<(), IssueError> {
        match self {
            Dns::Hook(hook) => hook.present(name, value).await,
            Dns::Update(zones) => zone_of(zones, name)?.change(Change::Add, name, value, now).await,
        }
    }

    /// Takes the record away.
    ///
    /// # Errors
    /// As [`Dns::present`].
    pub async fn clean_up(&self, name: &str, value: &str, now: i64) -> Result<(), IssueError> {
        match self {
            Dns::Hook(hook) => hook.clean_up(name, value).await,
            Dns::Update(zones) => zone_of(zones, name)?.change(Change::Remove, name, value, now).await,
        }
    }
}

/// The narrowest zone.
fn zone_of<'a>(zones: &'a [DnsUpdate], name: &str) -> Result<&'a DnsUpdate, IssueError> {
    let covering = zones.iter().filter(|zone| zone.covers(name));
    let none = || IssueError::new(format!("no `dns-update` names a zone that {name} belongs to"));
    covering.max_by_key(|zone| zone.zone.len()).ok_or_else(none)
}

/// A command that sets and removes records; see the module for its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsHook {
    /// The program and what goes before the three arguments.
    pub command: Vec<OsString>,
    /// All that its environment holds.
    pub environment: Vec<(String, String)>,
    /// What it is called in messages.
    pub shown: PathBuf,
    /// How long the record needs until every server of the zone has it.
    pub settle: Duration,
}

impl DnsHook {
    /// Sets the record, and waits until it is to be seen.
    ///
    /// # Errors
    /// The command is empty, cannot be run, does not end in time, or ends with a failure.
    pub async fn present(&self, name: &str, value: &str) -> Result<(), IssueError> {
        self.run("present", name, value).await?;
        tokio::time::sleep(self.settle).await;
        Ok(())
    }

    /// Takes the record away.
    ///
    /// # Errors
    /// As [`DnsHook::present`].
    pub async fn clean_up(&self, name: &str, value: &str) -> Result<(), IssueError> {
        self.run("cleanup", name, value).await
    }

    async fn run(&self, what: &str, name: &str, value: &str) -> Result<(), IssueError> {
        let shown = self.shown.display();
        let failed = |why: String| IssueError::new(format!("the command {shown} {what} {name}: {why}"));
        let Some((program, first)) = self.command.split_first() else {
            return Err(failed("no program is named".into()));
        };
        let mut command = Command::new(program);
        command
            .args(first)
            .args([what, name, value])
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command.kill_on_drop(true);
        let output = tokio::time::timeout(PATIENCE, command.output())
            .await
            .map_err(|_| failed(format!("it did not end within {} s", PATIENCE.as_secs())))?
            .map_err(|error| failed(error.to_string()))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said: String =
            said.trim().chars().filter(|character| !character.is_control()).take(300).collect();
        Err(failed(format!("{}; {said}", output.status)))
    }
}

/// The name of the record for a host name, wildcards included.
pub fn record_name(host: &str) -> String {
    format!("_acme-challenge.{}", host.strip_prefix("*.").unwrap_or(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the server itself was given may hold what only root is to know.
    #[test]
    fn a_command_has_the_environment_that_it_is_given_and_no_more() {
        let path = std::env::temp_dir().join(format!("tidegate-dns-hook-{}", std::process::id()));
        let script = "env > \"$0\"; echo \"$1 $2 $3\" >> \"$0\"";
        let hook = DnsHook {
            command: ["/bin/sh".as_ref(), "-c".as_ref(), script.as_ref(), path.as_os_str()]
                .map(Into::into)
                .into(),
            environment: vec![("PATH".into(), "/usr/bin:/bin".into()), ("HOME".into(), "/home/dns".into())],
            shown: "hook".into(),
            settle: Duration::ZERO,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(hook.present("_acme-challenge.a.test", "proof")).unwrap();
        let said = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        // What a shell sets by itself.
        let own = ["PWD=", "SHLVL=", "_="];
        let mut lines: Vec<&str> =
            said.lines().filter(|line| !own.iter().any(|own| line.starts_with(own))).collect();
        lines.sort_unstable();
        assert_eq!(
            lines,
            ["HOME=/home/dns", "PATH=/usr/bin:/bin", "present _acme-challenge.a.test proof"],
            "{said}"
        );
    }
}
