//! What the words of a line mean: of checks, fixtures, clients, certificates.

use crate::condition::{Output, TextCheck};
use crate::fixture::{Contents, Fixture, size};
use crate::h2;
use crate::pattern::Pattern;
use crate::process::Signal;
use crate::step::{Action, BodyCheck, Expected, Http2Step, Message, ServerAction};
use crate::tls::{Made, TlsCheck, TlsOptions};
use crate::token::Token;
use std::time::Duration;

/// `<request GET / HTTP/1.1`, `<fastcgi`, `<fastcgi keep`, `<scgi`.
pub(super) fn parse_request(received: &str) -> Result<Option<Message>, String> {
    let words: Vec<&str> = received.trim_end().splitn(2, ' ').collect();
    Ok(match words.as_slice() {
        ["request", line] => Some(Message::Request(Pattern::new(line.as_bytes()))),
        ["fastcgi"] => Some(Message::FastCgi(None)),
        ["fastcgi", flag @ ("keep" | "close")] => Some(Message::FastCgi(Some((*flag).to_owned()))),
        ["scgi"] => Some(Message::Scgi),
        ["request" | "fastcgi" | "scgi", ..] => {
            return Err("expected `<request LINE`, `<fastcgi [keep|close]` or `<scgi`".to_owned());
        }
        _ => None,
    })
}

/// `HTTP/1.1 200 OK`, `HTTP/1.1 200`, `200`, `400|501`.
pub(super) fn parse_status(line: &str) -> Result<Expected, String> {
    let mut words = line.splitn(3, ' ');
    let mut first = words.next().unwrap_or_default();
    let version = first.starts_with("HTTP/").then(|| first.to_owned());
    if version.is_some() {
        first = words.next().unwrap_or_default();
    }
    let parse = |code: &str| match code.parse() {
        Ok(status @ 100..=599) => Ok(status),
        _ => Err(format!("`{code}` is no status code")),
    };
    let statuses = first.split('|').map(parse).collect::<Result<_, _>>()?;
    let reason: Vec<&str> = words.collect();
    let reason = (!reason.is_empty()).then(|| Pattern::new(reason.join(" ").trim().as_bytes()));
    let message = Message::Response;
    Ok(Expected { message, version, statuses, reason, has_body: true, checks: Vec::new() })
}

pub(super) fn parse_body(tokens: &[Token]) -> Result<BodyCheck, String> {
    match tokens {
        [Token::Word(name), Token::Quoted(text)] => {
            let text = text.clone();
            Ok(match name.as_str() {
                "body" => BodyCheck::Exact(text),
                "body-starts" => BodyCheck::Starts(text),
                "body-ends" => BodyCheck::Ends(text),
                "body-contains" => BodyCheck::Contains(text),
                "body-lacks" => BodyCheck::Lacks(text),
                _ => return Err(format!("`<{name}` is no expectation")),
            })
        }
        [Token::Word(name), Token::Word(length)] if name == "body-length" => {
            Ok(BodyCheck::Length(size(length)?))
        }
        [Token::Word(name), Token::Word(digest)] if name == "body-sha256" => {
            Ok(BodyCheck::Sha256(digest.clone()))
        }
        [Token::Word(name), Token::Word(path)] if name == "body-file" => {
            Ok(BodyCheck::File { path: path.clone(), range: None })
        }
        [Token::Word(name), Token::Word(path), Token::Word(range)] if name == "body-file" => {
            let ends = range
                .split_once("..")
                .and_then(|(start, end)| Some((start.parse().ok()?, end.parse().ok()?)));
            let range = ends.ok_or_else(|| format!("`{range}`: expected FROM..TO"))?;
            Ok(BodyCheck::File { path: path.clone(), range: Some(range) })
        }
        _ => Err("this is no expectation".to_owned()),
    }
}

pub(super) fn parse_fixture(name: &str, arguments: &[Token]) -> Result<Fixture, String> {
    let (arguments, modified) = match arguments.split_last() {
        Some((Token::Word(option), before)) if option.starts_with("mtime=") => {
            let seconds = option.trim_start_matches("mtime=");
            (
                before,
                Some(seconds.parse().map_err(|_| format!("`{seconds}`: mtime is in seconds since 1970"))?),
            )
        }
        _ => (arguments, None),
    };
    match (name, arguments) {
        ("file", [path, contents]) => {
            let contents = match contents {
                Token::Quoted(text) => Contents::Text(text.clone()),
                Token::Word(word) => Contents::parse(word)?,
            };
            Ok(Fixture::File { path: text(path)?, contents, modified })
        }
        ("dir", [Token::Word(path)]) => Ok(Fixture::Folder { path: path.clone(), modified }),
        ("link", [path, target]) => Ok(Fixture::Link { path: text(path)?, target: text(target)? }),
        ("remove", [Token::Word(path)]) => Ok(Fixture::Remove { path: path.clone() }),
        ("mode", [Token::Word(path), Token::Word(mode)]) => {
            let mode = u32::from_str_radix(mode, 8).map_err(|_| format!("`{mode}`: a mode is octal"))?;
            Ok(Fixture::Mode { path: path.clone(), mode })
        }
        ("rename", [Token::Word(from), Token::Word(to)]) => {
            Ok(Fixture::Rename { from: from.clone(), to: to.clone() })
        }
        _ => Err(format!("`{name}` has other arguments")),
    }
}

pub(super) fn parse_client(name: &str, options: &[Token]) -> Result<Action, String> {
    let (mut listener, mut receive_buffer) = (None, None);
    let mut h2: Option<h2::Options> = None;
    let mut tls: Option<TlsOptions> = None;
    for option in options {
        let option = text(option)?;
        if parse_h2_option(&option, &mut h2)? {
            continue;
        }
        if parse_tls_option(&option, &mut tls) {
            continue;
        }
        match option.split_once('=') {
            Some(("listener", number)) => {
                let number: Option<usize> = number.parse().ok().filter(|number| *number > 0);
                listener = Some(number.ok_or("listeners are numbered from 1")?);
            }
            Some(("receive-buffer", bytes)) => {
                receive_buffer = Some(usize::try_from(size(bytes)?).map_err(|error| error.to_string())?);
            }
            _ => return Err(format!("`{option}` is no option of a client")),
        }
    }
    Ok(Action::Client { name: name.to_owned(), listener, receive_buffer, tls, h2 })
}

/// `h2`, and behind it `window=BYTES`, `silent`. Whether it was one of these.
fn parse_h2_option(option: &str, h2: &mut Option<h2::Options>) -> Result<bool, String> {
    let Some(options) = h2 else {
        if option == "h2" {
            *h2 = Some(h2::Options::default());
        }
        return Ok(option == "h2");
    };
    match option.split_once('=') {
        Some(("window", bytes)) => {
            options.window = Some(u32::try_from(size(bytes)?).map_err(|error| error.to_string())?);
        }
        None if option == "silent" => options.is_silent = true,
        _ => return Ok(false),
    }
    Ok(true)
}

/// `>frame PING 0 0 "12345678"`, and how often.
pub(super) fn parse_frame(arguments: &[Token]) -> Result<Action, String> {
    let usage = "expected `>frame TYPE FLAGS STREAM \"payload\" [TIMES]`";
    let [Token::Word(kind), Token::Word(flags), Token::Word(stream), Token::Quoted(payload), rest @ ..] =
        arguments
    else {
        return Err(usage.to_owned());
    };
    let times = match rest {
        [] => 1,
        [Token::Word(times)] => size(times)?,
        _ => return Err(usage.to_owned()),
    };
    Ok(Action::Http2(Http2Step::Frame {
        kind: h2::kind_of(kind).ok_or_else(|| format!("`{kind}` is no type of frame"))?,
        flags: flags.parse().map_err(|_| usage)?,
        stream: stream.parse().map_err(|_| usage)?,
        payload: payload.clone(),
        times,
    }))
}

/// `tls`, and behind it `name=a.test`, `version=1.2`, `alpn=h2,http/1.1`, `certificate=alice`, `fails`.
fn parse_tls_option(option: &str, tls: &mut Option<TlsOptions>) -> bool {
    let Some(options) = tls else {
        if option == "tls" {
            *tls = Some(TlsOptions::default());
        }
        return option == "tls";
    };
    match option.split_once('=') {
        Some(("name", name)) => options.name = Some(name.to_owned()),
        Some(("version", version)) => options.version = Some(version.to_owned()),
        Some(("alpn", list)) => options.protocols = list.split(',').map(str::to_owned).collect(),
        Some(("certificate", name)) => options.certificate = Some(name.to_owned()),
        None if option == "fails" => options.must_fail = true,
        None if option == "early" => options.is_early = true,
        _ => return false,
    }
    true
}

/// `certificate NAME "host" ...` and `authority NAME`, with `by=AUTHORITY`, `rsa`, `expired`, `seconds=LIFE`.
pub(super) fn parse_certificate(is_authority: bool, arguments: &[Token]) -> Result<Made, String> {
    let [name, options @ ..] = arguments else { return Err("a certificate needs a name".to_owned()) };
    let (name, mut hosts, mut by) = (text(name)?, Vec::new(), None);
    let (mut is_rsa, mut life) = (false, None);
    for option in options {
        match option {
            Token::Quoted(_) => hosts.push(text(option)?),
            Token::Word(word) => match word.as_str() {
                "rsa" => is_rsa = true,
                "expired" => life = Some(Duration::ZERO),
                word => match word.split_once('=') {
                    Some(("by", name)) => by = Some(name.to_owned()),
                    Some(("seconds", seconds)) => {
                        let seconds =
                            seconds.parse().map_err(|_| format!("`{word}`: seconds are a number"))?;
                        life = Some(Duration::from_secs(seconds));
                    }
                    _ => return Err(format!("`{word}` is no option of a certificate")),
                },
            },
        }
    }
    Ok(Made { name, hosts, by, is_authority, is_rsa, life })
}

pub(super) fn parse_tls_check(words: &[&str]) -> Result<TlsCheck, String> {
    match words {
        ["version", version] => Ok(TlsCheck::Version((*version).to_owned())),
        ["alpn", name] => Ok(TlsCheck::Protocol((*name).to_owned())),
        ["certificate", name] => Ok(TlsCheck::Certificate((*name).to_owned())),
        ["resumed"] => Ok(TlsCheck::Resumed),
        ["full"] => Ok(TlsCheck::Full),
        ["early"] => Ok(TlsCheck::Early),
        _ => {
            Err("expected `<tls version|alpn|certificate VALUE`, `<tls resumed`, `<tls full` or `<tls early`"
                .to_owned())
        }
    }
}

pub(super) fn parse_server(arguments: &[Token]) -> Result<ServerAction, String> {
    match texts(arguments)?.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["start"] => Ok(ServerAction::Start),
        ["hup"] => Ok(ServerAction::Signal(Signal::Hangup)),
        ["term"] => Ok(ServerAction::Signal(Signal::Terminate)),
        ["exit", code] => {
            code.parse().map(ServerAction::Exit).map_err(|_| format!("`{code}` is no exit code"))
        }
        _ => Err("expected server start, hup, term or exit CODE".to_owned()),
    }
}

pub(super) fn parse_output(name: &str, arguments: &[Token]) -> Result<Output, String> {
    match (name, arguments) {
        ("exit", [Token::Word(code)]) => {
            code.parse().map(Output::Exit).map_err(|_| format!("`{code}` is no exit code"))
        }
        ("stdout", check) => TextCheck::parse(check).map(Output::Stdout),
        ("stderr", check) => TextCheck::parse(check).map(Output::Stderr),
        _ => Err("expected `exit CODE`".to_owned()),
    }
}

pub(super) fn text(token: &Token) -> Result<String, String> {
    match token {
        Token::Word(word) => Ok(word.clone()),
        Token::Quoted(bytes) => String::from_utf8(bytes.clone()).map_err(|_| "not valid UTF-8".to_owned()),
    }
}

pub(super) fn texts(tokens: &[Token]) -> Result<Vec<String>, String> {
    tokens.iter().map(text).collect()
}
