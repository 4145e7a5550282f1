//! What a request asks of the status page: the view, the form, an action; and whether an action may come
//! from where it comes from.

use super::HistoryRange;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use tidegate_core::Exchange;
use tidegate_core::hosts::{Names, host};
use tidegate_http::accept;
use tidegate_stats::{OPENMETRICS_CONTENT_TYPE, PROTOBUF_CONTENT_TYPE, Snapshot};

/// The longest interval of refreshing, seconds.
const REFRESH_MAX: u32 = 3600;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Question {
    pub view: View,
    pub format: Format,
    pub action: Option<Action>,
    /// Seconds.
    pub refresh: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    Server,
    Requests,
    Slow,
    Findings,
    History(HistoryRange),
    Busiest,
    Cache,
    CacheList,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Start,
    Stop,
    Restart,
}

/// The forms of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Format {
    /// A page.
    Html,
    /// For people, on a terminal.
    Text,
    /// For programs.
    Json,
    /// For programs, with the elements of `stats-xml`.
    Xml,
    /// For Prometheus.
    Prometheus,
    /// The same as OpenMetrics.
    OpenMetrics,
    /// The same as protocol buffers, with native histograms.
    Protobuf,
}

impl Question {
    /// Reads the query, the path and `Accept`. Names that mean nothing here are passed over: somebody
    /// else's tool has added them. An error is a sentence for the page.
    pub(super) fn read(exchange: &Exchange<'_>) -> Result<Question, &'static str> {
        let (mut view, mut action, mut refresh, mut format) = (View::Server, None, None, None);
        for pair in exchange.query.unwrap_or_default().split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "cache" if view == View::Server => view = View::Cache,
                "requests" if view == View::Server => view = View::Requests,
                "slow" if view == View::Server => view = View::Slow,
                "findings" if view == View::Server => view = View::Findings,
                "history" if view == View::Server => {
                    let range = if value.is_empty() { "10m" } else { value };
                    let range = HistoryRange::from_name(range).ok_or(
                        "<code>history</code> is one of <code>10m</code>, <code>6h</code>, <code>14d</code> and \
                         <code>days</code>.",
                    )?;
                    view = View::History(range);
                }
                "busiest" if view == View::Server => view = View::Busiest,
                "list" => view = View::CacheList,
                "start" => action = Some(Action::Start),
                "stop" => action = Some(Action::Stop),
                "restart" => action = Some(Action::Restart),
                "refresh" => {
                    let seconds: u32 =
                        value.parse().map_err(|_| "<code>refresh</code> takes a number of seconds.")?;
                    refresh = Some(seconds.min(REFRESH_MAX)).filter(|seconds| *seconds > 0);
                }
                "format" => format = Some(Format::from_name(value)?),
                _ => {}
            }
        }
        if format.is_some_and(|format| !view.has(format)) {
            return Err("This is there as <code>format=text</code> and <code>format=json</code> alone.");
        }
        let format = format.or_else(|| Format::of_path(exchange.path)).unwrap_or_else(|| {
            let accepted = accept::prefers(exchange.fields.all("Accept"), &Format::OFFERED.map(|(o, _)| o));
            accepted.and_then(|index| Format::OFFERED.get(index)).map_or(Format::Html, |(_, format)| *format)
        });
        Ok(Question { view, format, action, refresh })
    }
}

impl View {
    /// Whether it is there in a form that is asked for. Who asks for a page gets text where there is none.
    fn has(self, format: Format) -> bool {
        let is_everywhere = matches!(format, Format::Html | Format::Text | Format::Json);
        is_everywhere || matches!(self, View::Server | View::Cache | View::CacheList)
    }
}

impl Question {
    /// The form of the answer: some views are there as text and JSON alone.
    pub(super) fn form(&self) -> Format {
        match (self.view, self.format) {
            (View::Server | View::Cache | View::CacheList, format) => format,
            (_, Format::Json) => Format::Json,
            _ => Format::Text,
        }
    }

    /// Seconds until the page asks again: not for programs that ask in an order of their own.
    pub(super) fn refresh_shown(&self) -> Option<u32> {
        self.refresh
            .filter(|_| !matches!(self.format, Format::Prometheus | Format::OpenMetrics | Format::Protobuf))
    }
}

impl Format {
    const OFFERED: [(&'static str, Format); 9] = [
        ("text/html", Format::Html),
        ("text/plain", Format::Text),
        ("application/json", Format::Json),
        ("application/xml", Format::Xml),
        ("text/xml", Format::Xml),
        ("text/plain; version=0.0.4", Format::Prometheus),
        ("application/openmetrics-text; version=1.0.0", Format::OpenMetrics),
        ("application/openmetrics-text; version=0.0.1", Format::OpenMetrics),
        (PROTOBUF_CONTENT_TYPE, Format::Protobuf),
    ];

    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Format::Html => "text/html; charset=utf-8",
            Format::Text => "text/plain; charset=utf-8",
            Format::Json => "application/json",
            Format::Xml => "application/xml; charset=utf-8",
            Format::Prometheus => Snapshot::PROMETHEUS_CONTENT_TYPE,
            Format::OpenMetrics => OPENMETRICS_CONTENT_TYPE,
            Format::Protobuf => PROTOBUF_CONTENT_TYPE,
        }
    }

    /// Whether the file cache has a report in this form.
    pub(super) fn has_cache(self) -> bool {
        matches!(self, Format::Html | Format::Text | Format::Json)
    }

    fn from_name(name: &str) -> Result<Format, &'static str> {
        Ok(match name {
            "html" => Format::Html,
            "text" => Format::Text,
            "json" => Format::Json,
            "xml" => Format::Xml,
            "prometheus" => Format::Prometheus,
            "openmetrics" => Format::OpenMetrics,
            "protobuf" => Format::Protobuf,
            _ => {
                return Err("<code>format</code> is one of <code>html</code>, <code>text</code>, \
                    <code>json</code>, <code>xml</code>, <code>prometheus</code>, <code>openmetrics</code> and \
                    <code>protobuf</code>.");
            }
        })
    }

    fn of_path(path: &[u8]) -> Option<Format> {
        const ENDINGS: [(&[u8], Format); 5] = [
            (b".html", Format::Html),
            (b".txt", Format::Text),
            (b".json", Format::Json),
            (b".xml", Format::Xml),
            (b"/metrics", Format::Prometheus),
        ];
        ENDINGS.iter().find(|(ending, _)| path.ends_with(ending)).map(|(_, format)| *format)
    }
}

impl Action {
    pub(super) const ALL: [Action; 3] = [Action::Start, Action::Stop, Action::Restart];

    /// In queries, questions and sentences.
    pub(super) fn word(self) -> &'static str {
        match self {
            Action::Start => "start",
            Action::Stop => "stop",
            Action::Restart => "restart",
        }
    }
}

/// Whether the host that is asked for is this server's by itself: an address, this machine, or a name of the settings.
/// Any other name may be a stranger's that leads here for a moment only, so that a page of that name reads what is meant
/// for this machine (DNS rebinding). Who names none is no browser.
pub(crate) fn is_our_host(authority: &str, names: &Names) -> bool {
    let host = host(authority);
    host.is_empty()
        || host.starts_with('[')
        || host.parse::<Ipv4Addr>().is_ok()
        || host == "localhost"
        || host.ends_with(".localhost")
        || names.find(authority).is_ok()
}

/// Whether a browser that sends this does so for a page of this very host. Who is no browser sends neither
/// field, and cannot be tricked into sending the request either.
pub(crate) fn is_same_site(exchange: &Exchange<'_>) -> bool {
    let is_near = |value: &[u8]| value == b"same-origin" || value == b"none";
    let is_ours = |origin: &[u8]| {
        std::str::from_utf8(origin).ok().and_then(|origin| origin.split_once("://")).is_some_and(
            |(scheme, authority)| {
                let port = if scheme.eq_ignore_ascii_case("https") { ":443" } else { ":80" };
                let bare =
                    |authority: &str| authority.strip_suffix(port).unwrap_or(authority).to_ascii_lowercase();
                bare(authority) == bare(exchange.authority)
            },
        )
    };
    exchange.fields.all("Sec-Fetch-Site").all(is_near) && exchange.fields.all("Origin").all(is_ours)
}
