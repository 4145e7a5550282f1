//! What a user finds in a page: elements by selector, and what a browser loads with it. One pass of a tokenizer over the
//! bytes; no tree is built.

use html5gum::Tokenizer;
use html5gum::emitters::callback::{CallbackEmitter, CallbackEvent};
use std::convert::Infallible;

/// Elements, as CSS names them: `a`, `.event`, `#top`, `[href^="/e"]`, joined (`a.event`), within each other (`.list a`), and
/// several with commas. No `>`, `+`, `~` and no pseudo-classes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    chains: Vec<Vec<Compound>>,
}

/// What one element must be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Compound {
    name: Option<String>,
    attributes: Vec<(String, Test)>,
}

/// What an attribute must be.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    Present,
    Is(String),
    Begins(String),
    Ends(String),
    Contains(String),
    /// One of the words, as classes are.
    HasWord(String),
}

/// Elements within each other that are followed: what is deeper is not told apart.
const DEPTH: usize = 512;

/// Values of one wish that are kept; a page may hold a million.
const VALUES: u64 = 10_000;

/// Elements whose end tags may be left out (HTML, section 13.1.2.4): what begins, what ends by that, and what it does not reach
/// beyond.
const IMPLIED_ENDS: [(&[&str], &[&str], &[&str]); 6] = [
    (&["li"], &["li"], &["ul", "ol", "menu"]),
    (&["dt", "dd"], &["dt", "dd"], &["dl"]),
    (&["tr"], &["tr", "td", "th"], &["table"]),
    (&["td", "th"], &["td", "th"], &["table", "tr"]),
    (&["tbody", "thead", "tfoot"], &["tbody", "thead", "tfoot", "tr", "td", "th"], &["table"]),
    (&["option", "optgroup"], &["option"], &["select", "datalist"]),
];

/// What ends a paragraph that is open.
const ENDS_PARAGRAPH: [&str; 28] = [
    "address",
    "article",
    "aside",
    "blockquote",
    "details",
    "div",
    "dl",
    "fieldset",
    "figure",
    "footer",
    "form",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "header",
    "hr",
    "main",
    "menu",
    "nav",
    "ol",
    "p",
    "pre",
    "section",
    "table",
    "ul",
];

/// Where an open paragraph is looked for no further.
const HOLDS_PARAGRAPH: [&str; 5] = ["button", "table", "td", "th", "object"];

impl Selector {
    /// Reads a selector. The error is a sentence.
    pub(crate) fn parse(text: &str) -> Result<Selector, String> {
        let mut chains = Vec::new();
        for part in text.split(',') {
            let chain: Vec<Compound> = words(part)?.into_iter().map(compound).collect::<Result<_, _>>()?;
            if chain.is_empty() {
                return Err(format!(
                    "`{text}` names no element; write `a.event`, `#top`, `[href]` or `.list a`"
                ));
            }
            chains.push(chain);
        }
        Ok(Selector { chains })
    }
}

/// Cut at white space outside of brackets.
fn words(text: &str) -> Result<Vec<&str>, String> {
    let (mut words, mut start, mut is_within) = (Vec::new(), 0, false);
    for (at, character) in text.char_indices() {
        match character {
            '[' => is_within = true,
            ']' => is_within = false,
            ' ' | '\t' if !is_within => {
                words.extend(text.get(start..at).filter(|word| !word.is_empty()));
                start = at + 1;
            }
            _ => {}
        }
    }
    if is_within {
        return Err(format!("`{text}` has a `[` without its `]`"));
    }
    words.extend(text.get(start..).filter(|word| !word.is_empty()));
    Ok(words)
}

fn compound(word: &str) -> Result<Compound, String> {
    let mut compound = Compound::default();
    let end = word.find(['.', '#', '[']).unwrap_or(word.len());
    let (name, mut rest) = word.split_at(end);
    let is_name = |name: &str| {
        !name.is_empty() && name.chars().all(|letter| letter.is_alphanumeric() || matches!(letter, '-' | '_'))
    };
    if !name.is_empty() && name != "*" {
        if !is_name(name) {
            return Err(format!(
                "`{word}` is no simple selector; there are names, `.class`, `#id`, `[attribute]` and white space"
            ));
        }
        compound.name = Some(name.to_ascii_lowercase());
    }
    while let Some(sign) = rest.chars().next() {
        rest = rest.get(1..).unwrap_or_default();
        if sign == '[' {
            let (inside, behind) = rest.split_once(']').ok_or_else(|| format!("`{word}` lacks its `]`"))?;
            compound.attributes.push(attribute(inside));
            rest = behind;
            continue;
        }
        let end = rest.find(['.', '#', '[']).unwrap_or(rest.len());
        let (value, behind) = rest.split_at(end);
        if !is_name(value) {
            return Err(format!("`{word}`: a name is due behind `{sign}`"));
        }
        let test = if sign == '.' { Test::HasWord(value.to_owned()) } else { Test::Is(value.to_owned()) };
        compound.attributes.push((if sign == '.' { "class" } else { "id" }.to_owned(), test));
        rest = behind;
    }
    Ok(compound)
}

fn attribute(inside: &str) -> (String, Test) {
    let Some((name, value)) = inside.split_once('=') else {
        return (inside.trim().to_ascii_lowercase(), Test::Present);
    };
    let value = value.trim().trim_matches(['"', '\'']).to_owned();
    let (name, test): (_, fn(String) -> Test) = match name.as_bytes().last() {
        Some(b'^') => (name.trim_end_matches('^'), Test::Begins),
        Some(b'$') => (name.trim_end_matches('$'), Test::Ends),
        Some(b'*') => (name.trim_end_matches('*'), Test::Contains),
        Some(b'~') => (name.trim_end_matches('~'), Test::HasWord),
        _ => (name, Test::Is),
    };
    (name.trim().to_ascii_lowercase(), test(value))
}

/// A start tag that is being read. Its buffers are used again.
#[derive(Default)]
struct Tag {
    name: Vec<u8>,
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
    count: usize,
}

impl Tag {
    fn begin(&mut self, name: &[u8]) {
        self.name.clear();
        self.name.extend_from_slice(name);
        self.count = 0;
    }

    fn name_attribute(&mut self, name: &[u8]) {
        if self.attributes.len() <= self.count {
            self.attributes.push(Default::default());
        }
        if let Some((place, value)) = self.attributes.get_mut(self.count) {
            place.clear();
            place.extend_from_slice(name);
            value.clear();
        }
        self.count += 1;
    }

    fn fill_attribute(&mut self, content: &[u8]) {
        if let Some((_, value)) = self.count.checked_sub(1).and_then(|last| self.attributes.get_mut(last)) {
            value.extend_from_slice(content);
        }
    }

    fn attribute(&self, name: &str) -> Option<&[u8]> {
        let known = self.attributes.iter().take(self.count);
        known.into_iter().find(|(known, _)| known == name.as_bytes()).map(|(_, value)| value.as_slice())
    }

    fn is(&self, compound: &Compound) -> bool {
        compound.name.as_ref().is_none_or(|name| name.as_bytes() == self.name)
            && compound.attributes.iter().all(|(name, test)| {
                self.attribute(name).is_some_and(|value| match test {
                    Test::Present => true,
                    Test::Is(due) => value == due.as_bytes(),
                    Test::Begins(due) => value.starts_with(due.as_bytes()),
                    Test::Ends(due) => value.ends_with(due.as_bytes()),
                    Test::Contains(due) => memchr::memmem::find(value, due.as_bytes()).is_some(),
                    Test::HasWord(due) => {
                        value.split(u8::is_ascii_whitespace).any(|word| word == due.as_bytes())
                    }
                })
            })
    }

    /// What a browser loads because of it.
    fn asset(&self) -> Option<&[u8]> {
        match self.name.as_slice() {
            b"img" | b"script" => self.attribute("src"),
            b"input" if self.attribute("type") == Some(b"image") => self.attribute("src"),
            b"link" => {
                let is_loaded = |word: &[u8]| word == b"stylesheet" || word == b"icon";
                let kinds = self.attribute("rel")?;
                let is_wanted = kinds.split(u8::is_ascii_whitespace).any(is_loaded);
                self.attribute("href").filter(|_| is_wanted)
            }
            _ => None,
        }
        .filter(|link| !link.is_empty())
    }

    /// Whether it has no end (HTML, "Void elements").
    fn is_void(&self) -> bool {
        matches!(
            self.name.as_slice(),
            b"area"
                | b"base"
                | b"br"
                | b"col"
                | b"embed"
                | b"hr"
                | b"img"
                | b"input"
                | b"link"
                | b"meta"
                | b"source"
                | b"track"
                | b"wbr"
        )
    }
}

/// What a page holds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// What the wish of this number asked for.
    Value(usize, Vec<u8>),
    /// A link of something that a browser loads with the page.
    Asset(Vec<u8>),
    /// What the links behind it are relative to (HTML, section 4.2.3): the first there is.
    Base(Vec<u8>),
}

/// The word for the text of an element in place of an attribute.
pub(crate) const TEXT: &str = "text";

/// The word for no value at all: the elements are only counted.
pub(crate) const NOTHING: &str = "";

/// Reads a page for all wishes at once, each a selector and the attribute that is wanted ([`TEXT`] is what stands directly
/// behind the start tag), and for assets. With how many elements each wish has found.
pub(crate) fn search(
    page: &[u8],
    wishes: &[(&Selector, &str)],
    wants_assets: bool,
) -> (Vec<Found>, Vec<u64>) {
    let mut search = Search {
        counts: vec![0; wishes.len()],
        wishes,
        wants_assets,
        has_base: false,
        tag: Tag::default(),
        is_start: false,
        text_of: Vec::new(),
        open: Vec::new(),
        is_nested: wishes.iter().any(|(selector, _)| selector.chains.iter().any(|chain| chain.len() > 1)),
        found: Vec::new(),
    };
    let mut emitter = CallbackEmitter::new(|event: CallbackEvent<'_>, _span: html5gum::Span<()>| {
        search.take(event);
        None::<Infallible>
    });
    emitter.naively_switch_states(true);
    let Ok(()) = Tokenizer::new_with_emitter(page, emitter).finish();
    (search.found, search.counts)
}

struct Search<'s> {
    wishes: &'s [(&'s Selector, &'s str)],
    wants_assets: bool,
    has_base: bool,
    tag: Tag,
    is_start: bool,
    /// Wishes that want the text that comes next.
    text_of: Vec<usize>,
    /// Open elements: the name, and of each chain of each wish how many compounds are met on the way there.
    open: Vec<(Vec<u8>, Vec<usize>)>,
    is_nested: bool,
    found: Vec<Found>,
    /// Of each wish, the elements.
    counts: Vec<u64>,
}

impl Search<'_> {
    fn take(&mut self, event: CallbackEvent<'_>) {
        match event {
            CallbackEvent::OpenStartTag { name } => {
                self.tag.begin(name);
                self.is_start = true;
                self.text_of.clear();
            }
            CallbackEvent::AttributeName { name } if self.is_start => self.tag.name_attribute(name),
            CallbackEvent::AttributeValue { value } if self.is_start => self.tag.fill_attribute(value),
            CallbackEvent::CloseStartTag { .. } => {
                self.is_start = false;
                self.start();
            }
            CallbackEvent::EndTag { name } => {
                self.text_of.clear();
                if let Some(at) = self.open.iter().rposition(|(open, _)| open == name) {
                    self.open.truncate(at);
                }
            }
            CallbackEvent::String { value } => {
                for wish in self.text_of.drain(..) {
                    self.found.push(Found::Value(wish, value.trim_ascii().to_vec()));
                }
            }
            _ => {}
        }
    }

    /// Ends the open elements that the tag ends without an end tag of theirs.
    fn end_what_is_implied(&mut self) {
        let is_one = |names: &[&str], name: &[u8]| names.iter().any(|known| known.as_bytes() == name);
        let name = self.tag.name.as_slice();
        let rows = IMPLIED_ENDS.iter().filter(|(begins, ..)| is_one(begins, name));
        let rows = rows.map(|(_, ends, holds)| (*ends, *holds));
        let paragraph = is_one(&ENDS_PARAGRAPH, name).then_some((&["p"][..], &HOLDS_PARAGRAPH[..]));
        for (ends, holds) in rows.chain(paragraph) {
            let mut outermost = None;
            for (place, (open, _)) in self.open.iter().enumerate().rev() {
                if is_one(holds, open) {
                    break;
                }
                if is_one(ends, open) {
                    outermost = Some(place);
                }
            }
            if let Some(place) = outermost {
                self.open.truncate(place);
            }
        }
    }

    /// A start tag is complete.
    fn start(&mut self) {
        if !self.has_base
            && self.tag.name == b"base"
            && let Some(link) = self.tag.attribute("href")
        {
            self.has_base = true;
            self.found.push(Found::Base(link.to_vec()));
        }
        if self.wants_assets
            && let Some(link) = self.tag.asset()
        {
            self.found.push(Found::Asset(link.to_vec()));
        }
        if self.is_nested {
            self.end_what_is_implied();
        }
        let before = self.open.last().map(|(_, met)| met.as_slice()).unwrap_or_default();
        let mut met = Vec::new();
        let mut place = 0;
        for (wish, (selector, attribute)) in self.wishes.iter().enumerate() {
            let mut is_found = false;
            for chain in &selector.chains {
                let steps = before.get(place).copied().unwrap_or(0);
                place += 1;
                // The last compound is this element; those before it are met by elements around it, the outermost first.
                is_found |= steps + 1 >= chain.len() && chain.last().is_some_and(|last| self.tag.is(last));
                if self.is_nested {
                    let goes_on =
                        steps + 1 < chain.len() && chain.get(steps).is_some_and(|due| self.tag.is(due));
                    met.push(steps + usize::from(goes_on));
                }
            }
            if !is_found {
                continue;
            }
            let Some(count) = self.counts.get_mut(wish) else { continue };
            *count += 1;
            if *attribute == NOTHING || *count > VALUES {
                continue;
            }
            if *attribute == TEXT {
                self.text_of.push(wish);
            } else if let Some(value) = self.tag.attribute(attribute) {
                self.found.push(Found::Value(wish, value.to_vec()));
            }
        }
        if self.is_nested && !self.tag.is_void() && self.open.len() < DEPTH {
            self.open.push((self.tag.name.clone(), met));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &[u8] = b"<!doctype html><link rel='stylesheet' href=/s.css><script>\"<a href=no>\"</script>\
        <ul class='list wide'><li><a class=event href='/events/1?a=1&amp;b=2'> One </a><li><a class='old event' href=/events/2>\
        Two</a></ul><a class=event>Three</a><img class=thumb src=/t.png><img><!-- <img src=/no.png> -->\
        <input type=hidden name=csrf value=x7>";

    fn values(selector: &str, attribute: &str) -> Vec<String> {
        let selector = Selector::parse(selector).unwrap();
        let (found, _) = search(PAGE, &[(&selector, attribute)], false);
        found
            .into_iter()
            .map(|found| match found {
                Found::Value(0, value) => String::from_utf8(value).unwrap(),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn elements_are_found() {
        let both = ["/events/1?a=1&b=2", "/events/2"];
        let table: [(&str, &str, &[&str]); 10] = [
            ("a.event", "href", &both),
            (".list a", "href", &both),
            ("ul.wide .old", "href", &["/events/2"]),
            (".old a", "href", &[]),
            ("a", "text", &["One", "Two", "Three"]),
            ("[href^=\"/events\"]", "class", &["event", "old event"]),
            ("input[name=csrf]", "value", &["x7"]),
            ("img, .old", "class", &["old event", "thumb"]),
            ("script", "text", &["\"<a href=no>\""]),
            ("#none", "id", &[]),
        ];
        for (selector, attribute, expected) in table {
            assert_eq!(values(selector, attribute), expected, "{selector}");
        }
    }

    #[test]
    fn assets_are_what_a_browser_loads() {
        let (found, _) = search(PAGE, &[], true);
        assert_eq!(found, [Found::Asset(b"/s.css".to_vec()), Found::Asset(b"/t.png".to_vec())]);
    }

    #[test]
    fn elements_are_counted_and_values_bounded() {
        let selectors = ["a.event", "img, .old", "#none", "a"].map(|text| Selector::parse(text).unwrap());
        let wishes: Vec<(&Selector, &str)> = selectors.iter().map(|selector| (selector, NOTHING)).collect();
        let (found, counts) = search(PAGE, &wishes, false);
        assert_eq!((found, counts), (Vec::new(), vec![3, 3, 0, 3]));
        let many = b"<a href=/x>".repeat(VALUES as usize + 5);
        let (found, counts) = search(&many, &[(&selectors[3], "href")], false);
        assert_eq!((found.len() as u64, counts), (VALUES, vec![VALUES + 5]));
    }

    #[test]
    fn end_tags_may_be_left_out() {
        let page = b"<ul><li class=x><a href=1></a><li><a href=2></a><ul><li class=x><a href=3></a></ul></ul><p class=x>text\
            <div><a href=4></a></div><table><tr class=x><td><a href=5></a><tr><td class=x><td><a href=6></a></table>";
        let selector = Selector::parse(".x a").unwrap();
        let (found, _) = search(page, &[(&selector, "href")], false);
        let due = ["1", "3", "5"].map(|value| Found::Value(0, value.as_bytes().to_vec()));
        assert_eq!(found, due);
        // A long table is no deep one.
        let long = [&b"<table>"[..], &b"<tr><td>1".repeat(2_000), b"<tr class=x><td><a href=7>"].concat();
        assert_eq!(search(&long, &[(&selector, "href")], false).0, [Found::Value(0, b"7".to_vec())]);
    }

    #[test]
    fn what_is_no_selector_says_why() {
        for (text, part) in
            [("", "no element"), ("a > b", "no simple"), ("a[b", "without"), ("a..b", "name is due")]
        {
            let message = Selector::parse(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_page_panics(page in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
            let selector = Selector::parse("a.b c[d]").unwrap();
            let _ = search(&page, &[(&selector, "text")], true);
        }
    }
}
