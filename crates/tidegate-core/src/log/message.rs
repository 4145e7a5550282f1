//! A [`Record`] in the words of a daemon that collects logs: syslog (RFC 5424, or as `syslog(3)` writes it), or the native
//! protocol of the journal of systemd.

use super::record::{self, Record};
use std::io::Write;
use tidegate_config::settings::{Collector, CollectorAddress};

/// Bytes of a message at most: what is longer is cut off. Of UDP more than common daemons take would be lost whole.
const LONGEST: usize = 64 << 10;
const LONGEST_OF_UDP: usize = 8 << 10;
/// Bytes of names in RFC 5424 (section 6).
const LONGEST_TAG: usize = 48;
const LONGEST_HOST: usize = 255;

/// Who speaks, as messages say it.
pub(super) struct Speaker {
    /// Of this machine; `-` where it has none that can be written.
    host: String,
    process: u32,
}

impl Speaker {
    /// This process.
    pub(super) fn this() -> Speaker {
        let system = rustix::system::uname();
        let host = system.nodename().to_string_lossy();
        let is_plain =
            (1..=LONGEST_HOST).contains(&host.len()) && host.bytes().all(|byte| byte.is_ascii_graphic());
        Speaker {
            host: if is_plain { host.into_owned() } else { "-".to_owned() },
            process: std::process::id(),
        }
    }

    /// Writes a message in place of what is in `out`.
    pub(super) fn write(&self, out: &mut Vec<u8>, to: &Collector, record: &Record<'_>) {
        out.clear();
        let tag = to.tag.get(..to.tag.len().min(LONGEST_TAG)).unwrap_or(&to.tag);
        let priority = u16::from(to.facility) * 8 + u16::from(record.severity);
        match &to.at {
            CollectorAddress::Journal(_) => self.write_entry(out, to, tag, record),
            CollectorAddress::Unix { is_rfc5424: false, .. } => {
                // Daemons put the time on what comes from their own machine.
                let _ = write!(out, "<{priority}>{tag}[{}]: ", self.process);
                append_text(out, record, LONGEST);
            }
            CollectorAddress::Unix { .. } => self.write_rfc5424(out, priority, tag, record, LONGEST),
            CollectorAddress::Udp(_) => self.write_rfc5424(out, priority, tag, record, LONGEST_OF_UDP),
            CollectorAddress::Tcp(_) => {
                self.write_rfc5424(out, priority, tag, record, LONGEST);
                // RFC 6587 section 3.4.1.
                let count = format!("{} ", out.len());
                out.splice(..0, count.into_bytes());
            }
        }
    }

    fn write_rfc5424(
        &self,
        out: &mut Vec<u8>,
        priority: u16,
        tag: &str,
        record: &Record<'_>,
        longest: usize,
    ) {
        let _ = write!(out, "<{priority}>1 ");
        out.extend_from_slice(&record.time.unwrap_or_else(record::time));
        let kind = if record.is_access { "access" } else { "-" };
        let _ = write!(out, " {} {tag} {} {kind} - ", self.host, self.process);
        append_text(out, record, longest);
    }

    /// <https://systemd.io/JOURNAL_NATIVE_PROTOCOL/>: nothing of ours has a line feed in it.
    fn write_entry(&self, out: &mut Vec<u8>, to: &Collector, tag: &str, record: &Record<'_>) {
        out.extend_from_slice(b"MESSAGE=");
        out.extend_from_slice(record.text);
        let _ = write!(
            out,
            "\nPRIORITY={}\nSYSLOG_FACILITY={}\nSYSLOG_IDENTIFIER={tag}\nSYSLOG_PID={}\n",
            record.severity, to.facility, self.process
        );
        if let Some(time) = record.time {
            out.extend_from_slice(b"SYSLOG_TIMESTAMP=");
            out.extend_from_slice(&time);
            out.push(b'\n');
        }
        for field in record.fields() {
            out.extend_from_slice(field);
            out.push(b'\n');
        }
    }
}

fn append_text(out: &mut Vec<u8>, record: &Record<'_>, longest: usize) {
    let room = longest.saturating_sub(out.len());
    out.extend_from_slice(record.text.get(..room).unwrap_or(record.text));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::record::Before;
    use std::path::PathBuf;

    fn written(at: CollectorAddress, line: &[u8]) -> String {
        let speaker = Speaker { host: "host.example".into(), process: 7 };
        let to = Collector { at, facility: 23, tag: "web".into() };
        let mut out = b"before".to_vec();
        speaker.write(&mut out, &to, &Record::of(line, Before::default()));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn messages() {
        let unix = |is_rfc5424| CollectorAddress::Unix { path: PathBuf::new(), is_rfc5424 };
        let line = b"2000-10-10T13:55:36.123Z warn: it \"failed\"";
        let rfc5424 = "<188>1 2000-10-10T13:55:36.123Z host.example web 7 - - it \"failed\"";
        assert_eq!(written(unix(false), line), "<188>web[7]: it \"failed\"");
        assert_eq!(written(unix(true), line), rfc5424);
        assert_eq!(written(CollectorAddress::Udp(([192, 0, 2, 1], 514).into()), line), rfc5424);
        let tcp = CollectorAddress::Tcp(([192, 0, 2, 1], 601).into());
        assert_eq!(written(tcp.clone(), line), format!("{} {rfc5424}", rfc5424.len()));
        assert_eq!(
            written(
                CollectorAddress::Journal(PathBuf::new()),
                b"\x1e2000-10-10T13:55:36.123ZGET /\x1fSTATUS=200\x1fSITE=a"
            ),
            "MESSAGE=GET /\nPRIORITY=6\nSYSLOG_FACILITY=23\nSYSLOG_IDENTIFIER=web\nSYSLOG_PID=7\n\
             SYSLOG_TIMESTAMP=2000-10-10T13:55:36.123Z\nSTATUS=200\nSITE=a\n"
        );
        let access = written(tcp, b"\x1e2000-10-10T13:55:36.123ZGET /\x1fSTATUS=200");
        assert!(
            access.ends_with("<190>1 2000-10-10T13:55:36.123Z host.example web 7 access - GET /"),
            "{access}"
        );
        let long = [b"\x1e".as_slice(), &[b'a'; 100_000]].concat();
        assert_eq!(written(unix(false), &long).len(), LONGEST);
        assert_eq!(written(CollectorAddress::Udp(([192, 0, 2, 1], 514).into()), &long).len(), LONGEST_OF_UDP);
    }
}
