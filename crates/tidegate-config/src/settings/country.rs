//! Countries by their codes (ISO 3166-1 alpha-2), as databases of addresses name them.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt::{self, Display, Formatter};

/// Those that are assigned, Kosovo (`XK`), which databases call so, and `ZZ`, which is whoever has no known country.
const CODES: &str = "\
    AD AE AF AG AI AL AM AO AQ AR AS AT AU AW AX AZ BA BB BD BE BF BG BH BI BJ BL BM BN BO BQ BR BS BT BV BW BY BZ CA CC CD \
    CF CG CH CI CK CL CM CN CO CR CU CV CW CX CY CZ DE DJ DK DM DO DZ EC EE EG EH ER ES ET FI FJ FK FM FO FR GA GB GD GE GF \
    GG GH GI GL GM GN GP GQ GR GS GT GU GW GY HK HM HN HR HT HU ID IE IL IM IN IO IQ IR IS IT JE JM JO JP KE KG KH KI KM KN \
    KP KR KW KY KZ LA LB LC LI LK LR LS LT LU LV LY MA MC MD ME MF MG MH MK ML MM MN MO MP MQ MR MS MT MU MV MW MX MY MZ NA \
    NC NE NF NG NI NL NO NP NR NU NZ OM PA PE PF PG PH PK PL PM PN PR PS PT PW PY QA RE RO RS RU RW SA SB SC SD SE SG SH SI \
    SJ SK SL SM SN SO SR SS ST SV SX SY SZ TC TD TF TG TH TJ TK TL TM TN TO TR TT TV TW TZ UA UG UM US UY UZ VA VC VE VG VI \
    VN VU WF WS XK YE YT ZA ZM ZW ZZ";

/// Two capital letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Country([u8; 2]);

impl Country {
    /// Of a client whose country the database does not tell.
    pub const UNKNOWN: Country = Country(*b"ZZ");

    /// From a code as a database has it; any two letters.
    pub fn of_database(code: &str) -> Option<Country> {
        let code: [u8; 2] = code.as_bytes().try_into().ok()?;
        code.iter()
            .all(u8::is_ascii_alphabetic)
            .then(|| Country(code.map(|letter| letter.to_ascii_uppercase())))
    }

    /// From a code that somebody has written.
    ///
    /// # Errors
    /// What was meant perhaps.
    pub fn read(text: &str) -> Result<Country, String> {
        let country = Country::of_database(text)
            .filter(|country| CODES.split(' ').any(|known| known == country.as_str()));
        country.ok_or_else(|| match text.to_ascii_uppercase().as_str() {
            "UK" => "the United Kingdom is `GB`".to_owned(),
            "EL" => "Greece is `GR`".to_owned(),
            _ => "countries have two letters (ISO 3166): `DE`, `GB`, `US`; `ZZ` is whoever has none that is known".to_owned(),
        })
    }

    /// Its code.
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.0).unwrap_or("ZZ")
    }
}

impl Display for Country {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Country {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.as_str().serialize(to)
    }
}

impl<'de> Deserialize<'de> for Country {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Country::of_database(&text).ok_or_else(|| serde::de::Error::custom("a country has two letters"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes() {
        for (text, expected) in [
            ("DE", Some("DE")),
            ("gb", Some("GB")),
            ("ZZ", Some("ZZ")),
            ("UK", None),
            ("D", None),
            ("DEU", None),
            ("1A", None),
            ("é", None),
        ] {
            assert_eq!(Country::read(text).ok().as_ref().map(Country::as_str), expected, "{text}");
        }
        assert!(Country::read("UK").unwrap_err().contains("GB"));
    }
}
