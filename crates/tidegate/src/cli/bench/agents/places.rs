//! Where agents are, as `--agents` has it: addresses, hosts that `ssh` reaches, or how many will dial.

use super::super::wrong;
use anyhow::Result;
use tidegate_bench::agent::MOST_AGENTS;

/// An agent that is dialled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Host and port.
    Address(String),
    /// One that is started first.
    Ssh(SshHost),
}

/// A host that `ssh` reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshHost {
    /// As it was written, behind `ssh:`.
    pub text: String,
    /// As ssh takes it.
    pub destination: String,
    /// The host alone, which may be a name of ssh's configuration.
    pub host: String,
}

/// The agents of a list; all of them are dialled.
pub fn dialled(list: &[String]) -> Result<Vec<Place>> {
    if list.len() > MOST_AGENTS {
        return Err(too_many());
    }
    list.iter().map(|text| place(text)).collect()
}

/// How many agents will dial.
pub fn number(list: &[String]) -> Result<usize> {
    let number = match list {
        [number] => number.parse().ok(),
        _ => None,
    };
    let number =
        number.ok_or_else(|| wrong("with --listen-agents, --agents is a number: how many will dial"))?;
    if (1..=MOST_AGENTS).contains(&number) { Ok(number) } else { Err(too_many()) }
}

fn too_many() -> anyhow::Error {
    wrong(format!("a run has 1 to {MOST_AGENTS} agents"))
}

fn place(text: &str) -> Result<Place> {
    if let Some(rest) = text.strip_prefix("ssh:") {
        let host = ssh_host(rest).ok_or_else(|| {
            wrong(format!(
                "--agents {text}: write `ssh:host`, `ssh:user@host` or `ssh:user@host:port`, the port of ssh"
            ))
        })?;
        return Ok(Place::Ssh(host));
    }
    if !text.contains(':') {
        return Err(wrong(format!(
            "--agents {text}: write host and port, `host1:7400`, or `ssh:host1`; a number goes with --listen-agents"
        )));
    }
    Ok(Place::Address(text.to_owned()))
}

fn ssh_host(text: &str) -> Option<SshHost> {
    let (user, rest) = match text.rsplit_once('@') {
        Some((user, rest)) => (Some(user), rest),
        None => (None, text),
    };
    let is_plain = |word: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        !word.is_empty() && !word.starts_with('-') && word.bytes().all(is_plain)
    };
    // An address of IPv6 has brackets, as in a URL.
    let (host, port) = match rest.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (host, port)
        }
        None => {
            let (host, port) = rest.split_at(rest.find(':').unwrap_or(rest.len()));
            (Some(host).filter(|host| is_plain(host))?, port)
        }
    };
    let port = match port.strip_prefix(':') {
        Some(port) => Some(port.parse::<u16>().ok().filter(|port| *port > 0)?),
        None if port.is_empty() => None,
        None => return None,
    };
    if user.is_some_and(|user| !is_plain(user)) {
        return None;
    }
    let user = user.map(|user| format!("{user}@")).unwrap_or_default();
    let destination = match port {
        None => format!("{user}{host}"),
        Some(port) if host.contains(':') => format!("ssh://{user}[{host}]:{port}"),
        Some(port) => format!("ssh://{user}{host}:{port}"),
    };
    Some(SshHost { text: text.to_owned(), destination, host: host.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_agent_may_be() {
        let ssh = |text: &str, destination: &str, host: &str| {
            let (text, destination, host) = (text.to_owned(), destination.to_owned(), host.to_owned());
            Some(Place::Ssh(SshHost { text, destination, host }))
        };
        let table = [
            ("host1:7400", Some(Place::Address("host1:7400".into()))),
            ("[::1]:7400", Some(Place::Address("[::1]:7400".into()))),
            ("3", None),
            ("ssh:web1", ssh("web1", "web1", "web1")),
            ("ssh:bench@web1.test", ssh("bench@web1.test", "bench@web1.test", "web1.test")),
            ("ssh:bench@web1:2222", ssh("bench@web1:2222", "ssh://bench@web1:2222", "web1")),
            ("ssh:[::1]", ssh("[::1]", "::1", "::1")),
            ("ssh:u@[::1]:22", ssh("u@[::1]:22", "ssh://u@[::1]:22", "::1")),
            ("ssh:", None),
            ("ssh:-oProxyCommand=x", None),
            ("ssh:u@-x", None),
            ("ssh:-u@x", None),
            ("ssh:a b", None),
            ("ssh:host:0", None),
            ("ssh:host:99999", None),
            ("ssh:::1", None),
            ("ssh:[::1", None),
            ("ssh:[x]:1", None),
        ];
        for (text, expected) in table {
            assert_eq!(place(text).ok(), expected, "{text}");
        }
        assert!(dialled(&vec!["a:1".to_owned(); MOST_AGENTS + 1]).is_err());
        let number =
            |list: &[&str]| number(&list.iter().map(|&text| text.to_owned()).collect::<Vec<_>>()).ok();
        assert_eq!(
            (number(&["3"]), number(&["0"]), number(&["a:1"]), number(&["1", "2"])),
            (Some(3), None, None, None)
        );
    }
}
