//! `users`, `login` and `require`: who people are, and who of them gets in.

use super::gateway::Gateway;
use super::{Directory, OpenId, Origin, ServiceAddress, Shared, Signed, TextPattern, Tokens};
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;
use std::time::Duration;

/// Where users are known: `users "staff" { … }`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UserSource {
    /// What `login` calls it.
    pub name: String,
    /// What they were read from. The master reads them anew whenever they change.
    pub files: AccountFiles,
    /// Of the password files, in order; of a name, the first counts.
    pub accounts: Shared<Vec<Account>>,
    /// The directory that knows users whom no file does.
    pub directory: Option<Directory>,
    /// The application that says who they are.
    pub forward: Option<Forward>,
    /// Tokens that say who they are.
    pub tokens: Option<Tokens>,
    /// The identity provider that says who they are.
    pub openid: Option<OpenId>,
    /// The user cache (R9).
    pub cache: UserCache,
    /// Where it was written.
    pub origin: Origin,
}

impl UserSource {
    /// The services that the server itself asks for it.
    pub fn services(&self) -> impl Iterator<Item = &ServiceAddress> {
        let of_tokens = self.tokens.iter().filter_map(Tokens::service);
        of_tokens.chain(self.openid.iter().flat_map(OpenId::services))
    }

    /// The ways to whoever is asked by HTTP.
    pub fn gateways(&self) -> impl Iterator<Item = &Gateway> {
        let decides = self.forward.iter().map(|forward| &forward.gateway);
        decides.chain(self.services().map(|service| &service.gateway))
    }

    /// How those can log in whom it knows.
    pub fn how(&self) -> How {
        match (&self.forward, &self.tokens, &self.openid) {
            (Some(_), ..) => How::Forward,
            (None, Some(_), _) => How::Token,
            (None, None, Some(_)) => How::Openid,
            (None, None, None) => How::Basic,
        }
    }
}

/// How somebody proves who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    /// By a name and a password (RFC 7617).
    Basic,
    /// An application decides.
    Forward,
    /// By a token (RFC 6750).
    Token,
    /// An identity provider says so (OpenID Connect).
    Openid,
}

impl How {
    /// As `login` has it.
    pub fn word(self) -> &'static str {
        match self {
            How::Basic => "basic",
            How::Forward => "forward",
            How::Token => "token",
            How::Openid => "openid",
        }
    }
}

/// An application that decides who gets in: `forward "http://127.0.0.1:9091/verify" { … }`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Forward {
    /// Where it is.
    pub gateway: Gateway,
    /// What is asked for; begins with a slash.
    pub path: String,
    /// By which name; `None` is that of the client.
    pub host: Option<String>,
    /// Fields of its answer that a request is passed on with, in small letters, sorted.
    pub copy: Vec<String>,
    /// The field that has the name of the user.
    pub user: Option<String>,
    /// The one that has the groups.
    pub groups: Option<String>,
    /// The longest that each step of a decision may take: a place, a connection, the head, a silence in the content.
    pub timeout: Duration,
    /// The most bytes of content that go to a client.
    pub content: u64,
    /// How decisions are remembered.
    pub cache: Option<Remembering>,
}

impl Forward {
    /// The longest that all of a decision may take. It is more than [`Forward::timeout`], so that a member that is silent is
    /// found to be before the decision as a whole is too late.
    pub fn patience(&self) -> Duration {
        self.timeout.saturating_add((self.timeout / 10).min(Duration::from_secs(1)))
    }

    /// Whether two say the same, wherever they stand.
    pub fn is_same_as(&self, other: &Forward) -> bool {
        let plain = |forward: &Forward| {
            let mut plain = forward.clone();
            if let Some(tls) = &mut plain.gateway.tls {
                tls.origin = Origin::default();
            }
            plain
        };
        plain(self) == plain(other)
    }
}

/// How decisions that have let somebody in are remembered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembering {
    /// How long.
    pub lifetime: Duration,
    /// What they depend on, a text with placeholders.
    pub by: String,
}

/// The files of a source, absolute.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AccountFiles {
    /// Names and passwords (`htpasswd`).
    #[serde(with = "crate::path_encoding::paths")]
    pub passwords: Vec<PathBuf>,
    /// Groups.
    #[serde(with = "crate::path_encoding::paths")]
    pub groups: Vec<PathBuf>,
}

/// A user of a password file.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// The name, as it is typed in.
    pub name: String,
    /// What the password is compared with: `$2y$…` and the like, whose kind is known.
    pub hash: String,
    /// Sorted.
    pub groups: Vec<String>,
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // A hash is nothing for a log.
        f.debug_struct("Account").field("name", &self.name).field("groups", &self.groups).finish()
    }
}

/// What is remembered of users who have proved who they are, in each server process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserCache {
    /// How long. Zero: every request is looked into.
    pub lifetime: Duration,
    /// How many users.
    pub users: u32,
    /// How many groups of each; whose further ones are asked for is looked up again.
    pub groups: u32,
}

/// `login basic "staff" realm="Staff"`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Login {
    /// How they prove it.
    pub how: How,
    /// Where its users are known.
    pub users: String,
    /// What the browser says is asked for.
    pub realm: String,
    /// Where it was written.
    pub origin: Origin,
}

/// `require group "admins"`: of these, one is enough.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Requirement {
    /// What has to be one of them.
    pub what: Required,
    /// Sorted.
    pub names: Vec<String>,
    /// Where it was written.
    pub origin: Origin,
}

/// What a [`Requirement`] is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Required {
    /// The user.
    User,
    /// A group of the user.
    Group,
}

/// Who has to prove to be whom. The default is nobody.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Identification {
    /// How.
    pub login: Option<Shared<Login>>,
    /// The URL itself has to be signed.
    pub signed: Option<Shared<Signed>>,
    /// What is required of who has; each has to hold.
    pub requirements: Vec<Shared<Requirement>>,
    /// What is required of the certificates of clients; each has to hold.
    pub certificates: Vec<Shared<CertificateRequirement>>,
}

impl Identification {
    /// Whether anybody has to prove anything.
    pub fn is_asked(&self) -> bool {
        self.login.is_some()
            || self.signed.is_some()
            || !self.requirements.is_empty()
            || !self.certificates.is_empty()
    }
}

/// `require certificate "email:*@example.com" issuer="CN=Example CA"`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CertificateRequirement {
    /// Any of them; none: whoever has one.
    pub names: Vec<CertificateName>,
    /// Who has to have signed it.
    pub issuer: Option<DistinguishedPattern>,
    /// Where it was written.
    pub origin: Origin,
}

/// What a client has to be called by its certificate. A kind is asked for by its name alone: an address of mail is never
/// taken for a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum CertificateName {
    /// `cn:`, the common name.
    CommonName(TextPattern),
    /// `dns:`
    Dns(TextPattern),
    /// `email:`
    Email(TextPattern),
    /// `uri:`
    Uri(TextPattern),
    /// `fingerprint:`, of the certificate with SHA-256.
    Fingerprint(String),
    /// `subject:`
    Subject(DistinguishedPattern),
}

impl CertificateName {
    /// Reads one.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(text: &str) -> Result<CertificateName, String> {
        let (kind, name) = text.split_once(':').ok_or("it does not say of which kind the name is")?;
        let name = name.trim();
        if name.is_empty() {
            return Err("the name is missing".to_owned());
        }
        Ok(match kind {
            "cn" => CertificateName::CommonName(TextPattern::glob(name)),
            "dns" => CertificateName::Dns(TextPattern::glob(&name.to_ascii_lowercase())),
            "email" => {
                let lower = name.rsplit_once('@').map(|(local, domain)| (local, domain.to_ascii_lowercase()));
                let name =
                    lower.map_or_else(|| name.to_owned(), |(local, domain)| format!("{local}@{domain}"));
                CertificateName::Email(TextPattern::glob(&name))
            }
            "uri" => CertificateName::Uri(TextPattern::glob(name)),
            "subject" => CertificateName::Subject(DistinguishedPattern::read(name)?),
            "fingerprint" => {
                let digits: String = name.chars().filter(|digit| *digit != ':').collect();
                let is_one = digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                if !is_one {
                    return Err("a fingerprint is that of SHA-256, 64 hexadecimal digits".to_owned());
                }
                CertificateName::Fingerprint(digits.to_ascii_lowercase())
            }
            _ => return Err(format!("`{kind}:` is no kind of name")),
        })
    }
}

impl Display for CertificateName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (kind, pattern) = match self {
            CertificateName::CommonName(pattern) => ("cn", pattern),
            CertificateName::Dns(pattern) => ("dns", pattern),
            CertificateName::Email(pattern) => ("email", pattern),
            CertificateName::Uri(pattern) => ("uri", pattern),
            CertificateName::Fingerprint(digits) => return write!(f, "fingerprint:{digits}"),
            CertificateName::Subject(pattern) => return write!(f, "subject:{pattern}"),
        };
        match pattern {
            TextPattern::Glob(pieces) => write!(f, "{kind}:{}", pieces.join("*")),
            TextPattern::Regex(regex) => write!(f, "{kind}:{}", regex.as_str()),
        }
    }
}

impl Display for CertificateRequirement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("require certificate")?;
        self.names.iter().try_for_each(|name| write!(f, " \"{name}\""))?;
        self.issuer.as_ref().map_or(Ok(()), |issuer| write!(f, " issuer=\"{issuer}\""))
    }
}

/// What a distinguished name (RFC 4514) has to be, part by part: `CN=*,OU=Staff,O=Example`. A star stands for characters
/// within its part, so that no comma in a name makes it another one; a part that is a star alone is any number of parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DistinguishedPattern {
    text: String,
    parts: Vec<TextPattern>,
}

impl DistinguishedPattern {
    /// Reads one.
    ///
    /// # Errors
    /// A part is no `NAME=VALUE`.
    pub fn read(text: &str) -> Result<DistinguishedPattern, String> {
        let parts = parts_of(text).map(|part| {
            let part = part.trim_start();
            match part == "*" || part.split_once('=').is_some_and(|(name, _)| !name.is_empty()) {
                true => Ok(TextPattern::glob(part)),
                false => Err(format!("`{part}` is no part of a distinguished name, such as `CN=anna`")),
            }
        });
        Ok(DistinguishedPattern { text: text.to_owned(), parts: parts.collect::<Result<_, _>>()? })
    }

    /// Whether a name is so. One that was too long to be told whole is none.
    pub fn fits(&self, name: &str) -> bool {
        let is_any = |part: &TextPattern| matches!(part, TextPattern::Glob(pieces) if pieces.len() == 2 && pieces.concat().is_empty());
        let parts: Vec<&str> = parts_of(name).collect();
        // Of several ways in which stars may be meant, the shortest for all but the last is as good as any.
        let (mut at, mut part, mut star) = (0, 0, None);
        while part < parts.len() {
            match self.parts.get(at) {
                Some(pattern) if is_any(pattern) => {
                    star = Some((at, part));
                    at += 1;
                }
                Some(pattern) if pattern.fits(parts[part].as_bytes()) => {
                    at += 1;
                    part += 1;
                }
                _ => {
                    let Some((starred, begin)) = star else { return false };
                    star = Some((starred, begin + 1));
                    (at, part) = (starred + 1, begin + 1);
                }
            }
        }
        !name.ends_with('\u{2026}') && self.parts.iter().skip(at).all(is_any)
    }
}

/// The parts of a distinguished name, between commas that are not escaped.
fn parts_of(name: &str) -> impl Iterator<Item = &str> {
    let mut is_escaped = false;
    name.split(move |character| {
        let parts = character == ',' && !is_escaped;
        is_escaped = character == '\\' && !is_escaped;
        parts
    })
}

impl Display for DistinguishedPattern {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TryFrom<String> for DistinguishedPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        DistinguishedPattern::read(&text)
    }
}

impl From<DistinguishedPattern> for String {
    fn from(pattern: DistinguishedPattern) -> String {
        pattern.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguished_names_part_by_part() {
        for (pattern, name, expected) in [
            ("CN=anna,O=Corp", "CN=anna,O=Corp", true),
            ("CN=anna, O=Corp", "CN=anna,O=Corp", true),
            ("CN=anna", "CN=anna,O=Corp", false),
            ("CN=*,O=Corp", "CN=anna,O=Corp", true),
            ("CN=*,O=Corp", "CN=anna,OU=x,O=Corp", false),
            ("CN=*,*,O=Corp", "CN=anna,OU=x,OU=y,O=Corp", true),
            ("CN=*,*,O=Corp", "CN=anna,O=Corp", true),
            ("*,O=Corp", "O=Corp", true),
            ("CN=anna,*", "CN=anna", true),
            ("CN=anna,*", "CN=annabel,O=x", false),
            // A comma in a name is no comma between names.
            ("CN=*,O=Corp", "CN=eve\\,O=Corp", false),
            ("*,O=Corp", "CN=eve\\,O=Corp", false),
            ("CN=eve\\,O=Corp", "CN=eve\\,O=Corp", true),
            ("CN=*,O=Corp", "CN=eve\\\\,O=Corp", true),
            ("*", "CN=a\u{2026}", false),
            ("cn=anna", "CN=anna", false),
        ] {
            assert_eq!(
                DistinguishedPattern::read(pattern).unwrap().fits(name),
                expected,
                "{pattern} of {name}"
            );
        }
        let (many, name) = ("*,A=a,".repeat(30), "A=a,".repeat(60));
        assert!(!DistinguishedPattern::read(&format!("{many}B=b")).unwrap().fits(name.trim_end_matches(',')));
    }

    #[test]
    fn names_of_certificates() {
        let digits = "ab".repeat(32);
        for (text, expected) in [
            ("dns:*.Corp.Example", Ok("dns:*.corp.example".to_owned())),
            ("email:Anna@Example.COM", Ok("email:Anna@example.com".to_owned())),
            ("uri:spiffe://corp/a", Ok("uri:spiffe://corp/a".to_owned())),
            ("subject:CN=a,O=b", Ok("subject:CN=a,O=b".to_owned())),
            (&format!("fingerprint:{}", digits.to_uppercase()), Ok(format!("fingerprint:{digits}"))),
            ("fingerprint:ab", Err(())),
            ("anna", Err(())),
            ("san:anna", Err(())),
            ("cn:", Err(())),
            ("subject:anna", Err(())),
        ] {
            assert_eq!(
                CertificateName::read(text).map(|name| name.to_string()).map_err(drop),
                expected,
                "{text}"
            );
        }
    }
}
