//! HTTP addresses: parsed strictly, joined as RFC 3986 says, and compared by their parts.

use std::fmt;
use std::str::FromStr;

use crate::host::{Host, split_port};

/// The longest address, in bytes.
pub(crate) const MAX_URL_BYTES: usize = 8_192;

/// An absolute `http` or `https` address without user information and fragment.
///
/// INVARIANT: path and query are what a request line takes: visible ASCII, percent-encoded
/// where they must be, and the path starts with `/` and has no dot segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpUrl {
    pub(crate) is_tls: bool,
    pub(crate) host: Host,
    pub(crate) port: u16,
    pub(crate) path: String,
    pub(crate) query: Option<String>,
}

/// A text that is no address a request can be sent to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidUrl(pub(crate) String);

impl HttpUrl {
    /// Says whether the connection is encrypted.
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Returns the host.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Returns the port; the scheme's own where none is written.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns path and query, as they stand in a request line.
    pub fn path_and_query(&self) -> String {
        match &self.query {
            Some(query) => format!("{}?{query}", self.path),
            None => self.path.clone(),
        }
    }

    /// Returns the host, with the port where it is not the scheme's own.
    pub fn authority(&self) -> String {
        if self.port == default_port(self.is_tls) {
            return self.host.to_string();
        }
        format!("{}:{}", self.host, self.port)
    }

    /// Returns scheme, host and port: whom a request is for.
    pub fn origin(&self) -> String {
        let scheme = if self.is_tls { "https" } else { "http" };
        format!("{scheme}://{}", self.authority())
    }

    /// Says whether both addresses have the same scheme, host and port.
    pub fn has_origin_of(&self, other: &Self) -> bool {
        (self.is_tls, &self.host, self.port) == (other.is_tls, &other.host, other.port)
    }

    /// Returns the address that a reference such as a `Location` stands for from here.
    ///
    /// Dot segments are removed, a fragment is dropped, and characters that a request line does
    /// not take are percent-encoded.
    ///
    /// # Errors
    /// Refuses other schemes, user information, and what is no host or port.
    pub fn join(&self, reference: &str) -> Result<Self, InvalidUrl> {
        check_length(reference)?;
        let reference = reference.split('#').next().unwrap_or_default();
        if let Some((is_tls, rest)) = split_scheme(reference)? {
            return with_authority(is_tls, rest);
        }
        if let Some(rest) = reference.strip_prefix("//") {
            return with_authority(self.is_tls, rest);
        }
        let (path, query) = split_query(reference);
        let mut joined = Self { query: query.map(encode), ..self.clone() };
        if path.is_empty() {
            if query.is_none() {
                joined.query.clone_from(&self.query);
            }
            return Ok(joined);
        }
        joined.path = if path.starts_with('/') {
            remove_dot_segments(&encode(path))
        } else {
            let directory = self.path.rsplit_once('/').map_or("", |(directory, _)| directory);
            remove_dot_segments(&format!("{directory}/{}", encode(path)))
        };
        Ok(joined)
    }
}

impl FromStr for HttpUrl {
    type Err = InvalidUrl;

    fn from_str(text: &str) -> Result<Self, InvalidUrl> {
        check_length(text)?;
        match split_scheme(text)? {
            Some((is_tls, rest)) => with_authority(is_tls, rest.split('#').next().unwrap_or(rest)),
            None => Err(InvalidUrl("has no scheme; expected http://… or https://…".to_owned())),
        }
    }
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin(), self.path_and_query())
    }
}

/// Splits `scheme://rest`; `None` for a reference without a scheme.
pub(crate) fn split_scheme(text: &str) -> Result<Option<(bool, &str)>, InvalidUrl> {
    let head = text.split(['/', '?', '#']).next().unwrap_or_default();
    let Some((scheme, _)) = head.split_once(':') else { return Ok(None) };
    let is_tls = match scheme.to_ascii_lowercase().as_str() {
        "http" => false,
        "https" => true,
        _ => {
            let scheme = crate::bounded_text(scheme, 40);
            return Err(InvalidUrl(format!("has scheme {scheme:?}; expected http or https")));
        }
    };
    match text.get(scheme.len() + 1..).and_then(|rest| rest.strip_prefix("//")) {
        Some(rest) => Ok(Some((is_tls, rest))),
        None => Err(InvalidUrl("has no // after its scheme".to_owned())),
    }
}

/// Reads host and port of an authority.
pub(crate) fn read_authority(is_tls: bool, authority: &str) -> Result<(Host, u16), InvalidUrl> {
    if authority.contains('@') {
        return Err(InvalidUrl("holds user information before @; expected none".to_owned()));
    }
    let (host, port) = split_port(authority)
        .ok_or_else(|| InvalidUrl("has no port from 1 to 65535 after its colon".to_owned()))?;
    let host = host.parse::<Host>().map_err(|error| InvalidUrl(format!("host {error}")))?;
    Ok((host, port.unwrap_or(default_port(is_tls))))
}

fn with_authority(is_tls: bool, rest: &str) -> Result<HttpUrl, InvalidUrl> {
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    let (host, port) = read_authority(is_tls, authority)?;
    let (path, query) = split_query(rest);
    let path = if path.is_empty() { "/".to_owned() } else { remove_dot_segments(&encode(path)) };
    Ok(HttpUrl { is_tls, host, port, path, query: query.map(encode) })
}

fn check_length(text: &str) -> Result<(), InvalidUrl> {
    if text.len() <= MAX_URL_BYTES {
        return Ok(());
    }
    Err(InvalidUrl(format!("has {} bytes, expected at most {MAX_URL_BYTES}", text.len())))
}

fn split_query(text: &str) -> (&str, Option<&str>) {
    text.split_once('?').map_or((text, None), |(path, query)| (path, Some(query)))
}

fn default_port(is_tls: bool) -> u16 {
    if is_tls { 443 } else { 80 }
}

/// Says whether a byte stands for itself in a path or a query (RFC 3986, `pchar`, `/` and `?`).
pub(crate) fn is_literal(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?".contains(&byte)
}

/// Encodes what a request line does not take; what is encoded already stays as it is.
fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte == b'%' || is_literal(byte) {
            encoded.push(char::from(byte));
        } else {
            push_encoded(&mut encoded, byte);
        }
    }
    encoded
}

/// Appends one byte as `%XX`.
pub(crate) fn push_encoded(text: &mut String, byte: u8) {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];
    text.push('%');
    for nibble in [byte >> 4, byte & 15] {
        text.extend(DIGITS.get(usize::from(nibble)));
    }
}

/// Removes `.` and `..` (RFC 3986, section 5.2.4), also where their dots are percent-encoded.
fn remove_dot_segments(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut ends_in_dots = false;
    for segment in path.split('/').skip(1) {
        ends_in_dots = false;
        match dots(segment) {
            Some(1) => ends_in_dots = true,
            Some(_two) => {
                kept.pop();
                ends_in_dots = true;
            }
            None => kept.push(segment),
        }
    }
    if ends_in_dots {
        kept.push("");
    }
    format!("/{}", kept.join("/"))
}

/// Returns how many dots a dot segment has; `None` for every other segment.
pub(crate) fn dots(segment: &str) -> Option<usize> {
    match segment.to_ascii_lowercase().replace("%2e", ".").as_str() {
        "." => Some(1),
        ".." => Some(2),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<&str, &str>) {
        compare(text, text.parse(), expected);
    }

    #[track_caller]
    fn check_join(reference: &str, expected: Result<&str, &str>) {
        let base: HttpUrl = "https://example.org/a/b?q".parse().unwrap();
        compare(reference, base.join(reference), expected);
    }

    #[track_caller]
    fn compare(text: &str, url: Result<HttpUrl, InvalidUrl>, expected: Result<&str, &str>) {
        match (url, expected) {
            (Ok(url), Ok(expected)) => assert_eq!(url.to_string(), expected, "{text:?}"),
            (Err(error), Err(expected)) => {
                assert!(error.to_string().contains(expected), "{text:?} gave {error}");
            }
            (got, _) => panic!("{text:?} gave {got:?}"),
        }
    }

    #[test]
    fn an_address_is_read_strictly() {
        check("HTTPS://Example.ORG:443", Ok("https://example.org/"));
        check("http://example.org:8080/a?b=c#d", Ok("http://example.org:8080/a?b=c"));
        check("http://[::1]:80/", Ok("http://[::1]/"));
        check("http://example.org/a/../b/./c", Ok("http://example.org/b/c"));
        check("http://example.org/%2e%2E/b", Ok("http://example.org/b"));
        check("ftp://example.org/", Err("scheme \"ftp\""));
        check("example.org/", Err("no scheme"));
        check("http:example.org", Err("no //"));
        check("http://user:secret@example.org/", Err("user information"));
        check("http://good.org\\@evil.org/", Err("user information"));
        check("http://example.org:/", Err("no port"));
        check("http://example.org:99999/", Err("no port"));
        check("http:///path", Err("no host name"));
        check("http://0x7f.1/", Err("could be read as an address"));
        check("http://a b/", Err("no host name"));
        check(&format!("http://a.org/{}", "x".repeat(9_000)), Err("expected at most 8192"));
    }

    #[test]
    fn a_reference_is_joined_as_rfc_3986_says() {
        check_join("c", Ok("https://example.org/a/c"));
        check_join("./c/", Ok("https://example.org/a/c/"));
        check_join("..", Ok("https://example.org/"));
        check_join("../../../c", Ok("https://example.org/c"));
        check_join("/c?d", Ok("https://example.org/c?d"));
        check_join("?d", Ok("https://example.org/a/b?d"));
        check_join("#f", Ok("https://example.org/a/b?q"));
        check_join("//other.org/c", Ok("https://other.org/c"));
        check_join("http://127.0.0.1:9/", Ok("http://127.0.0.1:9/"));
        check_join("/a b\u{e9}\"", Ok("https://example.org/a%20b%C3%A9%22"));
        check_join("/a\r\nHost: evil", Ok("https://example.org/a%0D%0AHost:%20evil"));
        check_join("javascript:alert(1)", Err("scheme"));
        check_join("file:///etc/passwd", Err("scheme"));
        check_join("//user@evil.org/", Err("user information"));
        check_join("http://2130706433/", Err("could be read as an address"));
    }
}
