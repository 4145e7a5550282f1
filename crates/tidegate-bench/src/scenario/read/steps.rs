//! Operations, their steps, and what is in them.

use super::{
    Body, Clock, Counted, Expect, Operation, Part, Pick, Reader, RegexBuilder, Selector, Step, Take,
    TakeFrom, Template, Upload,
};
use crate::scenario::html::TEXT;
use crate::scenario::template::{is_of_field, is_of_target};
use crate::scenario::{Calls, page};
use std::time::Duration;
use tidegate_config::language::Item;

/// The percentiles that have a property.
const RANKS: [(&str, f64); 3] = [("p90", 90.0), ("p95", 95.0), ("p99", 99.0)];

/// Names of directives that are steps.
const METHODS: [(&str, &str); 6] = [
    ("get", "GET"),
    ("head", "HEAD"),
    ("post", "POST"),
    ("put", "PUT"),
    ("patch", "PATCH"),
    ("delete", "DELETE"),
];

impl Reader {
    pub(super) fn operation(&mut self, item: &Item) -> Option<Operation> {
        let name = item.text(0)?;
        let clock = self.clock(item.block(), false);
        let steps: Vec<Step> = self.steps(item).into_iter().map(|(_, step)| step).collect();
        if steps.is_empty() && !self.had_mistakes {
            self.error(item.error(format!("`op {name}` does nothing")), "add a step: `get \"/\"`");
        }
        let next = item.block().iter().find(|child| child.name() == "next");
        let next = next.and_then(|next| self.function(next));
        Some(Operation { next, ..self.timed(item, name, clock, steps) })
    }

    /// The steps of a block, each with where it stands. What is called between them is of the one that follows.
    fn steps<'i>(&mut self, item: &'i Item) -> Vec<(&'i Item, Step)> {
        let mut steps = Vec::new();
        let mut before = Vec::new();
        let mut last = None;
        for child in item.block() {
            if child.name() == "call" {
                before.extend(self.call(child));
                last = Some(child);
            } else if let Some(mut step) = self.step(child) {
                step.calls.before = std::mem::take(&mut before);
                steps.push((child, step));
                last = None;
            }
        }
        if let Some(last) = last {
            let message = "`call` stands behind the last step, where no request follows";
            self.error(last.error(message), "put it into the block of that step: it gets the answer there");
        }
        steps
    }

    fn timed(&mut self, item: &Item, name: String, clock: Option<Clock>, mut steps: Vec<Step>) -> Operation {
        let counts = steps.iter_mut().flat_map(|step| &mut step.counts);
        counts.enumerate().for_each(|(place, counted)| counted.place = place);
        let targets = RANKS.iter().filter_map(|(name, rank)| Some((*rank, item.duration_of(name)?)));
        let targets = targets.collect();
        let min_cycle = item.duration_of("min-cycle").unwrap_or(Duration::ZERO);
        let conforming = item.number_of("conforming").map(|millionths| millionths as f64 / 1e6);
        if conforming.is_some() && !self.had_mistakes && steps.iter().all(|step| step.min_speed.is_none()) {
            let message = format!("`{name}`: no step has a bit rate that answers could conform to");
            self.error(item.error_of("conforming", message), "add `min-bitrate \"40000B/s\"` to a step");
        }
        Operation { name, steps, clock, min_cycle, targets, conforming, next: None }
    }

    /// Each step an operation of its own, called by method and path.
    pub(super) fn flow(&mut self, item: &Item) -> Vec<Operation> {
        let mut operations: Vec<Operation> = Vec::new();
        for (written, step) in self.steps(item) {
            let path = written.text(0).unwrap_or_default();
            let name = format!("{} {path}", written.name());
            let same = operations.iter().filter(|known| known.name.starts_with(&name)).count();
            let name = if same == 0 { name } else { format!("{name} ({})", same + 1) };
            operations.push(self.timed(written, name, None, vec![step]));
        }
        if operations.is_empty() && !self.had_mistakes {
            self.error(item.error("`flow` does nothing"), "add a step: `get \"/\"`");
        }
        operations
    }

    /// `None` for what is no step.
    fn step(&mut self, item: &Item) -> Option<Step> {
        let (_, method) = METHODS.iter().find(|(name, _)| *name == item.name())?;
        // Where there is none that has been said.
        let path = item.text(0).map_or_else(Template::default, |text| self.request_target(item, &text));
        let mut step = Step {
            method: (*method).to_owned(),
            path,
            fields: Vec::new(),
            body: Body::None,
            expect: Expect::default(),
            takes: Vec::new(),
            calls: Calls::default(),
            counts: Vec::new(),
            assets: false,
            is_cached: false,
            min_speed: None,
        };
        for child in item.block() {
            self.part_of_step(child, &mut step);
        }
        self.body(item, &mut step);
        Some(step)
    }

    /// What is asked for: a path, a URL of the target, or what a variable holds.
    fn request_target(&mut self, item: &Item, text: &str) -> Template {
        let name = item.name();
        if !text.starts_with(['/', '{']) && !text.contains("://") {
            if !item.has_faults() {
                self.error(
                    item.error_at(0, format!("`{name}`: `{text}` is no path")),
                    "write `/path`, `{variable}` where one holds a path, or a URL of the target",
                );
            }
            return Template::default();
        }
        let template = self.template(item, Ok(0), text);
        let written = template.shown_encoded(&self.variables);
        let is_sendable = |character: char| u8::try_from(character).is_ok_and(is_of_target);
        match template.first_other(is_sendable) {
            Some('#') => {
                let message = format!("`{name}`: what follows `#` is for the browser alone, and is not sent");
                let help = format!("take it out, or write `{name} \"{written}\"` where `#` itself is meant");
                self.error(item.error_at(0, message), help);
            }
            Some(character) => {
                let message = format!("`{name}`: {character:?} cannot stand in a path as it is");
                self.error(item.error_at(0, message), format!("write `{name} \"{written}\"`"));
            }
            None => self.of_the_target(item, &template),
        }
        template
    }

    /// A host that is written out is that of the target.
    fn of_the_target(&mut self, item: &Item, template: &Template) {
        let beginning = template.beginning();
        let authority = beginning.split_once("//").map(|(_, rest)| rest);
        let is_path = beginning.starts_with('/') && !beginning.starts_with("//");
        let is_whole =
            authority.is_some_and(|rest| rest.contains(['/', '?']) || template.constant().is_some());
        let Some(target) = self.target.as_ref().filter(|_| !is_path && is_whole) else { return };
        if page::resolve(target, "/", beginning.as_bytes()).is_none() {
            let message = format!("`{}`: {beginning} is not of the target {target}", item.name());
            self.error(item.error_at(0, message), "write the path alone; all requests go to the target");
        }
    }

    fn part_of_step(&mut self, item: &Item, step: &mut Step) {
        match item.name() {
            "assets" => step.assets = true,
            "cached" => step.is_cached = true,
            "take" => step.takes.extend(self.take(item)),
            "call" | "check" => step.calls.after.extend(self.call(item)),
            "count" => step.counts.extend(self.count(item)),
            "min-bitrate" => step.min_speed = item.number(0),
            "expect" => self.expect(item, &mut step.expect),
            "header" => {
                if let (Some(name), Some(value)) = (item.text(0), item.text(1)) {
                    if ["host", "content-length", "transfer-encoding", "connection", "cookie"]
                        .iter()
                        .any(|framing| name.eq_ignore_ascii_case(framing))
                    {
                        let message = format!("`header`: {name} is set by the user's browser");
                        self.error(item.error_at(0, message), "take it out");
                    }
                    let value = self.template(item, Ok(1), &value);
                    let is_sendable = |character: char| u8::try_from(character).map_or(true, is_of_field);
                    if value.first_other(is_sendable).is_some() {
                        let message = format!("`header`: the value of {name} holds a control character");
                        self.error(item.error_at(1, message), "a field is one line of text; take it out");
                    }
                    step.fields.push((name, value));
                }
            }
            "part" => {
                if let (Some(name), Some(value)) = (item.text(0), item.text(1)) {
                    let part = Part::Field(name, self.template(item, Ok(1), &value));
                    add_part(&mut step.body, part);
                }
            }
            "upload" => {
                let Some(name) = item.text(0) else { return };
                let size = item.number_of("size").unwrap_or(0);
                let upload = Upload {
                    name,
                    file_name: item.text_of("file").unwrap_or_default(),
                    media_type: item.text_of("type").unwrap_or_default(),
                    content: self.made_up(item, usize::try_from(size).unwrap_or(usize::MAX)),
                };
                add_part(&mut step.body, Part::File(upload));
            }
            _ => {}
        }
    }

    fn body(&mut self, item: &Item, step: &mut Step) {
        let (form, text) = (item.text_of("form"), item.text_of("body"));
        let has_parts = matches!(step.body, Body::Parts(_));
        let ways = u8::from(form.is_some()) + u8::from(text.is_some()) + u8::from(has_parts);
        if ways > 1 {
            let message = format!("`{}` has its content in two ways", item.name());
            self.error(item.error(message), "keep one of `form=`, `body=`, and `part` with `upload`");
        }
        if has_parts && step.fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
            let message =
                format!("`{}` has parts, and a `Content-Type` that does not say where they end", item.name());
            self.error(
                item.error(message),
                "take the `header` out; `multipart/form-data` is said with its boundary",
            );
        }
        if has_parts && matches!(step.method.as_str(), "GET" | "HEAD") {
            let message = format!("`{}` carries no content", item.name());
            self.error(item.error(message), "use `post`");
        }
        if let Some(form) = form {
            step.body = Body::Form(self.template(item, Err("form"), &form));
        } else if let Some(text) = text {
            let said = step.fields.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
            let said = said.map(|(_, value)| value.clone());
            let is_said = said.is_some();
            let media_type = said.unwrap_or_else(|| {
                let media_type = item.text_of("type").unwrap_or_else(|| "text/plain".to_owned());
                self.template(item, Err("type"), &media_type)
            });
            let text = self.template(item, Err("body"), &text);
            step.body = if is_json(media_type.beginning()) { Body::Json(text) } else { Body::Text(text) };
            if !is_said {
                step.fields.push(("Content-Type".to_owned(), media_type));
            }
        }
    }

    fn take(&mut self, item: &Item) -> Option<Take> {
        let name = item.text(0)?;
        let variable = self.place(&name)?;
        let ways = ["css", "regex", "json", "header"].map(|way| (way, item.text_of(way)));
        let mut ways = ways.into_iter().filter_map(|(way, text)| Some((way, text?)));
        let (first, second) = (ways.next(), ways.next());
        let (Some((way, text)), None) = (first, second) else {
            if !item.has_faults() {
                let message = format!("`take {name}` does not say in one way where the value is");
                self.error(
                    item.error(message),
                    "one of `css=`, `regex=`, `json=` and `header=` stands there",
                );
            }
            return None;
        };
        let written = format!("{way}={text:?}");
        let from = match way {
            "css" => match Selector::parse(&text) {
                Ok(selector) => {
                    let attribute = item.text_of("attribute").unwrap_or_else(|| TEXT.to_owned());
                    TakeFrom::Css(selector, attribute.to_ascii_lowercase())
                }
                Err(fault) => return self.bad_take(item, way, &fault, "write `css=\"a.event\"`"),
            },
            // Of bytes, as in settings: a page is whatever the server sends.
            "regex" => match RegexBuilder::new(&text).unicode(false).size_limit(1 << 20).build() {
                Ok(regex) => TakeFrom::Regex(regex),
                Err(fault) => {
                    let fault = fault.to_string();
                    let last =
                        fault.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
                    return self.bad_take(
                        item,
                        way,
                        &last,
                        "a right one is `regex=#\"id=(\\d+)\"#`; `\\w`, `\\d` and `(?i)` are of ASCII",
                    );
                }
            },
            "json" if !text.is_empty() && !text.starts_with('/') => {
                let help = "a place in JSON begins with `/`: `/items/0/id`";
                return self.bad_take(item, way, &format!("`{text}` is no JSON pointer"), help);
            }
            "json" => TakeFrom::Json(text),
            _ => TakeFrom::Header(text.to_ascii_lowercase()),
        };
        let pick = match item.text_of("pick").as_deref() {
            Some("first") => Pick::First,
            Some("last") => Pick::Last,
            _ => Pick::Random,
        };
        Some(Take { variable, from, written, pick, is_optional: item.text(1).is_some() })
    }

    fn count(&mut self, item: &Item) -> Option<Counted> {
        let css = item.text(0)?;
        let Some(mean) = item.number_of("mean") else {
            if !item.has_faults() {
                let message = format!("`count` does not say how many `{css}` there should be");
                self.error(item.error(message), "write `count \"img.thumb\" mean=10 within=0.5`");
            }
            return None;
        };
        let within = item.number_of("within").unwrap_or(0);
        match Selector::parse(&css) {
            Ok(selector) => Some(Counted { selector, css, mean, within, place: 0 }),
            Err(fault) => {
                let help = "write `count \"img.thumb\" mean=10 within=0.5`";
                self.error(item.error_at(0, format!("`count`: {fault}")), help);
                None
            }
        }
    }

    fn bad_take(&mut self, item: &Item, property: &str, fault: &str, help: &str) -> Option<Take> {
        self.error(item.error_of(property, format!("`take`: {fault}")), help);
        None
    }

    fn expect(&mut self, item: &Item, expect: &mut Expect) {
        if ["status", "contains", "header"].iter().all(|name| item.text_of(name).is_none()) {
            let message = "`expect` says nothing that an answer has to be".to_owned();
            let help = "add `status=200`, `contains=\"text\"` or `header=\"Name: part of its value\"`";
            self.error(item.error(message), help);
        }
        if let Some(statuses) = item.text_of("status").and_then(|text| Expect::statuses(&text)) {
            expect.statuses.extend(statuses);
        }
        if let Some(text) = item.text_of("contains") {
            expect.contains.push(self.template(item, Err("contains"), &text));
        }
        if let Some(text) = item.text_of("header") {
            match text.split_once(':') {
                Some((name, value)) if !name.trim().is_empty() => {
                    let value = self.template(item, Err("header"), value.trim());
                    expect.fields.push((name.trim().to_ascii_lowercase(), value));
                }
                _ => {
                    let message = format!("`expect`: `{text}` is no field");
                    self.error(
                        item.error_of("header", message),
                        "write `header=\"Name: part of its value\"`",
                    );
                }
            }
        }
    }
}

/// Whether a media type is one of JSON (RFC 8259, and the suffix of RFC 6839).
fn is_json(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    matches!(essence.as_str(), "application/json" | "text/json") || essence.ends_with("+json")
}

fn add_part(body: &mut Body, part: Part) {
    match body {
        Body::Parts(parts) => parts.push(part),
        _ => *body = Body::Parts(vec![part]),
    }
}
