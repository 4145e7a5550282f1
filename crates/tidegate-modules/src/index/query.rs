//! What the query of a listing asks for: `sort`, `order`, `page` and `format`.
//!
//! Read once for each request. Nothing here is an error: what is not known falls back to the default, so
//! that links of other servers (`?C=M;O=D`) lead to a listing and not to a refusal.

use std::fmt::Write;

/// What the entries are ordered by. Folders always come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sort {
    /// Natural order of the names.
    #[default]
    Name,
    /// Bytes.
    Size,
    /// Last modification.
    Date,
}

/// Which end of the order comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// A before Z, small before large, old before new.
    #[default]
    Ascending,
    /// The reverse.
    Descending,
}

/// The form of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Html,
    /// For programs.
    Json,
}

/// One view of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// What the entries are ordered by.
    pub sort: Sort,
    /// Which end comes first.
    pub order: Order,
    /// From 1. One that lies behind the last stands for the last.
    pub page: u64,
    /// `None`: the `Accept` field decides.
    pub format: Option<Format>,
}

impl Default for View {
    fn default() -> View {
        View { sort: Sort::Name, order: Order::Ascending, page: 1, format: None }
    }
}

impl View {
    /// Reads a query; the last value of a name counts.
    pub fn of(query: Option<&str>) -> View {
        let mut view = View::default();
        let mut order = None;
        for (name, value) in
            query.unwrap_or_default().split(['&', ';']).filter_map(|pair| pair.split_once('='))
        {
            match (name, value) {
                ("sort", "name") => view.sort = Sort::Name,
                ("sort", "size") => view.sort = Sort::Size,
                ("sort", "date") => view.sort = Sort::Date,
                ("order", "asc") => order = Some(Order::Ascending),
                ("order", "desc") => order = Some(Order::Descending),
                ("page", number) => {
                    view.page = tidegate_http::parse_decimal(number.as_bytes()).unwrap_or(1).max(1);
                }
                ("format", "html") => view.format = Some(Format::Html),
                ("format", "json") => view.format = Some(Format::Json),
                _ => {}
            }
        }
        view.order = order.unwrap_or_default();
        view
    }

    /// The relative reference that leads to this view, not yet escaped for HTML. Defaults are left out,
    /// so that every view has one address.
    pub fn reference(&self) -> String {
        let mut text = String::new();
        let separator = |text: &str| if text.is_empty() { '?' } else { '&' };
        if (self.sort, self.order) != (Sort::Name, Order::Ascending) {
            let _ = write!(text, "?sort={}&order={}", self.sort.word(), self.order.word());
        }
        if self.page > 1 {
            let _ = write!(text, "{}page={}", separator(&text), self.page);
        }
        if let Some(format) = self.format {
            let word = if format == Format::Json { "json" } else { "html" };
            let _ = write!(text, "{}format={word}", separator(&text));
        }
        if text.is_empty() { "./".into() } else { text }
    }
}

impl Sort {
    /// As the query has it.
    pub fn word(self) -> &'static str {
        match self {
            Sort::Name => "name",
            Sort::Size => "size",
            Sort::Date => "date",
        }
    }
}

impl Order {
    /// As the query has it.
    pub fn word(self) -> &'static str {
        match self {
            Order::Ascending => "asc",
            Order::Descending => "desc",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries() {
        let view = |sort, order, page| View { sort, order, page, format: None };
        let plain = View::default();
        let cases = [
            ("", plain),
            ("sort=size", view(Sort::Size, Order::Ascending, 1)),
            ("sort=date&order=desc", view(Sort::Date, Order::Descending, 1)),
            ("order=desc;page=7", view(Sort::Name, Order::Descending, 7)),
            ("page=0", plain),
            ("page=-1", plain),
            ("page=99999999999999999999999", plain),
            ("page=2&page=3", view(Sort::Name, Order::Ascending, 3)),
            ("C=M;O=D", plain),
            ("sort=colour&order=up&page=x&format=pdf&&=;&", plain),
            ("format=json", View { format: Some(Format::Json), ..plain }),
            ("format=html", View { format: Some(Format::Html), ..plain }),
        ];
        for (query, expected) in cases {
            assert_eq!(View::of(Some(query)), expected, "{query}");
        }
        assert_eq!(View::of(None), plain);
    }

    #[test]
    fn references_lead_back_to_their_view() {
        for sort in [Sort::Name, Sort::Size, Sort::Date] {
            for order in [Order::Ascending, Order::Descending] {
                for page in [1, 2, 1000] {
                    for format in [None, Some(Format::Json), Some(Format::Html)] {
                        let view = View { sort, order, page, format };
                        let reference = view.reference();
                        assert_eq!(View::of(reference.strip_prefix('?')), view, "{reference}");
                    }
                }
            }
        }
        assert_eq!(View::default().reference(), "./");
    }
}
