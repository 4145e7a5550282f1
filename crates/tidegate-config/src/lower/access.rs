//! What an `allow` is worth inside of other rules: every level has to let a client in, so that one that an outer
//! level refuses is not let in by an inner `allow`.

use super::login;
use crate::check::{Checker, File};
use crate::diagnostic::Diagnostic;
use crate::include::TopNode;
use crate::settings::{
    AccessRule, AccessRules, Clause, Condition, Network, Origin, Settings, Shared, Site, Whom,
};
use crate::syntax::document::Node;

/// The rule of a level that refuses all of a network, or nearly all: of `all` whatever no `allow` names.
pub(super) fn refusing(levels: &[Shared<AccessRules>], network: Network) -> Option<&AccessRule> {
    levels.iter().find_map(|rules| rules.refusing(network))
}

/// What is said of an `allow` that a rule of an outer level makes worthless.
pub(super) fn warning(network: Network, rule: &AccessRule) -> Diagnostic {
    let origin = &rule.origin;
    let message = if network == Network::All {
        format!("this lets nobody in whom the rules around it refuse ({origin})")
    } else if rule.allows {
        format!("this lets nobody in: `{network}` is not among those that `allow` names in {origin}")
    } else {
        format!("this lets nobody in: `{network}` is refused by `deny` in {origin}")
    };
    Diagnostic::warning(message).help(
        "rules add up, and each level has to let a client in; write `access off` beside this one to do away with \
         the rules around it",
    )
}

/// What is said of an `allow` behind a `deny` of the same level that fits all whom it names.
pub(super) fn too_late(network: Network, rule: &AccessRule) -> Diagnostic {
    let origin = &rule.origin;
    let message =
        format!("this lets nobody in: `{rule}` ({origin}) comes first, and the first rule that fits decides");
    Diagnostic::warning(message).help(format!("put `allow \"{network}\"` in front of it"))
}

/// What is said of a `deny` behind an `allow` of the same level that fits all whom it names.
pub(super) fn never_denies(whom: &str, rule: &AccessRule) -> Diagnostic {
    let origin = &rule.origin;
    let message =
        format!("this refuses nobody: `{rule}` ({origin}) comes first, and the first rule that fits decides");
    Diagnostic::warning(message).help(format!("put `deny {whom}` in front of it"))
}

/// Says so where a site asks for countries and nothing tells them: nobody would be of any. Here of what is written in the
/// site itself, whose `node` this is; the rules around it are everybody's.
pub(super) fn without_database(
    checker: &mut Checker<'_>,
    settings: &Settings,
    file: &File,
    node: &Node,
    site: &Site,
) {
    if settings.country_database.is_some() {
        return;
    }
    for origin in asking_for_countries(site) {
        if origin.file == file.source.name
            && let Some(range) =
                file.source.written_at(origin).filter(|range| node.range.contains(&range.start))
        {
            checker.diagnostics.push(no_database().at(&file.source, range));
        }
    }
}

/// The same of what is written around sites.
pub(super) fn without_database_around(checker: &mut Checker<'_>, settings: &Settings, nodes: &[TopNode]) {
    if settings.country_database.is_some() {
        return;
    }
    let mut origins: Vec<&Origin> = Vec::new();
    for origin in settings.sites.iter().flat_map(|site| asking_for_countries(site)) {
        if !origins.contains(&origin) {
            origins.push(origin);
        }
    }
    let sources = login::sources_by_name(nodes);
    for origin in origins {
        login::point_at(checker, &sources, origin, no_database());
    }
}

/// Where it is written that a site asks for countries, each place once.
fn asking_for_countries(site: &Site) -> Vec<&Origin> {
    let mut origins: Vec<&Origin> = Vec::new();
    for route in &site.routes {
        let rules = route.access.levels.iter().flat_map(|rules| rules.others());
        let rules = rules.filter(|rule| matches!(rule.whom, Whom::Countries(_))).map(|rule| &rule.origin);
        let asks = |clause: &&Clause| {
            clause.condition.parts().into_iter().any(|part| matches!(part, Condition::Country(_)))
        };
        let clauses = route.conditions.iter().filter(asks).map(|clause| &clause.origin);
        for origin in rules.chain(clauses) {
            if !origins.contains(&origin) {
                origins.push(origin);
            }
        }
    }
    origins
}

fn no_database() -> Diagnostic {
    Diagnostic::error("nothing tells the countries of clients")
        .help("add `country-database \"/var/lib/GeoIP/GeoLite2-Country.mmdb\"` at the top level")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Origin;

    fn network(text: &str) -> Network {
        crate::value::read_network(text).unwrap()
    }

    #[test]
    fn what_an_outer_level_refuses() {
        for (outer, inner, refused) in [
            ("-all", "10.0.0.0/8", true),
            ("-all", "all", true),
            ("+10.0.0.0/8", "10.1.0.0/16", false),
            ("+10.1.0.0/16", "10.0.0.0/8", false),
            ("+10.0.0.0/8", "192.0.2.1", true),
            ("+10.0.0.0/8", "all", true),
            ("+10.0.0.0/8", "::1", true),
            ("+all", "all", false),
            ("-10.0.0.5", "10.0.0.0/8", false),
            ("-10.0.0.0/8 +all", "10.0.0.5", true),
            ("-10.0.0.0/8", "192.0.2.1", false),
            ("+127.0.0.1", "local", false),
            ("+10.0.0.0/8", "local", true),
            ("+local", "unix", false),
            ("+local", "127.0.0.1", false),
            ("+local", "10.0.0.1", true),
        ] {
            let rules = outer
                .split(' ')
                .map(|rule| AccessRule::of(rule.starts_with('+'), network(&rule[1..]), Origin::default()));
            let levels = [AccessRules::from(rules.collect::<Vec<_>>()).into()];
            assert_eq!(refusing(&levels, network(inner)).is_some(), refused, "{inner} within {outer}");
        }
    }
}
