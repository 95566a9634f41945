//! The endpoint of an Http tool: an address whose path and query may hold placeholders.
//!
//! INVARIANT: a value fills the place of its placeholder and nothing else. It is percent-encoded,
//! adds no segment, no dot segment and no parameter, and cannot reach scheme, host or port.

use serde_json::{Map, Value};

use crate::binding::{ExpandError, property_names};
use crate::host::Host;
use crate::url::{
    HttpUrl, InvalidUrl, MAX_URL_BYTES, dots, is_literal, push_encoded, read_authority,
    split_scheme,
};

/// How an Http tool is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpBinding {
    /// Where the request goes.
    pub endpoint: EndpointTemplate,
    /// The method of the request.
    pub method: HttpMethod,
    /// What the request carries.
    pub body: HttpBody,
}

/// The method of an Http tool's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpMethod {
    /// Reads.
    Get,
    /// Has the peer process the body.
    Post,
    /// Replaces what is at the address.
    Put,
    /// Changes a part of what is at the address.
    Patch,
    /// Removes what is at the address.
    Delete,
}

impl HttpMethod {
    /// Every method, in the order of the wire contract.
    pub const ALL: [Self; 5] = [Self::Get, Self::Post, Self::Put, Self::Patch, Self::Delete];

    /// Returns the method's name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    /// Returns what a request carries where the registration does not say.
    pub fn usual_body(self) -> HttpBody {
        match self {
            Self::Post => HttpBody::Envelope,
            Self::Put | Self::Patch => HttpBody::Input,
            Self::Get | Self::Delete => HttpBody::None,
        }
    }
}

/// What an Http tool's request carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpBody {
    /// The input within the gateway's envelope, as JSON.
    Envelope,
    /// The input alone, as JSON.
    Input,
    /// Nothing.
    None,
}

impl HttpBody {
    /// Every form, in the order of the wire contract.
    pub const ALL: [Self; 3] = [Self::Envelope, Self::Input, Self::None];

    /// Returns the form's name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Envelope => "envelope",
            Self::Input => "input",
            Self::None => "none",
        }
    }
}

/// An address such as `https://api.example.org/items/{{id}}?lang={{lang}}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointTemplate {
    is_tls: bool,
    host: Host,
    port: u16,
    /// The segments of the path, each after its slash.
    path: Vec<Vec<Piece>>,
    /// The parameters of the query, each after `?` or `&`.
    query: Vec<Vec<Piece>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    /// Text that stands in the address as it is.
    Fixed(String),
    /// The value of a property of the input.
    Property(String),
}

impl EndpointTemplate {
    /// Parses an endpoint; every placeholder must be a property of the input's schema.
    ///
    /// # Errors
    /// Says what is no address, or which placeholder cannot be filled.
    pub fn parse(text: &str, input_schema: &Value) -> Result<Self, InvalidUrl> {
        if text.len() > MAX_URL_BYTES {
            return refuse(format!("has {} bytes, expected at most {MAX_URL_BYTES}", text.len()));
        }
        let (is_tls, rest) = split_scheme(text)?.ok_or_else(|| {
            InvalidUrl("has no scheme; expected http://… or https://…".to_owned())
        })?;
        let (authority, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.contains(['{', '}']) {
            return refuse("holds a placeholder before its path; a call never chooses the host");
        }
        let (host, port) = read_authority(is_tls, authority)?;
        let (path, query) = rest.split_once('?').map_or((rest, None), |(p, q)| (p, Some(q)));
        let path = path.strip_prefix('/').unwrap_or(path).split('/').map(pieces);
        let query = query.into_iter().flat_map(|query| query.split('&')).map(pieces);
        let template = Self {
            is_tls,
            host,
            port,
            path: path.collect::<Result<_, _>>()?,
            query: query.collect::<Result<_, _>>()?,
        };
        template.check(input_schema)?;
        Ok(template)
    }

    /// Returns the host, which no call can change.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Returns the port, which no call can change.
    pub fn port(&self) -> u16 {
        self.port
    }

    fn check(&self, input_schema: &Value) -> Result<(), InvalidUrl> {
        for segment in &self.path {
            if let [Piece::Fixed(text)] = segment.as_slice()
                && dots(text).is_some()
            {
                return refuse(format!(
                    "holds the segment {text:?}; expected the path it leads to"
                ));
            }
        }
        for parameter in &self.query {
            let is_after_name =
                matches!(parameter.first(), Some(Piece::Fixed(text)) if text.contains('='));
            if !is_after_name && parameter.iter().any(|piece| matches!(piece, Piece::Property(_))) {
                return refuse(
                    "holds a placeholder for a parameter's name; expected name={{value}}",
                );
            }
        }
        for piece in self.path.iter().chain(&self.query).flatten() {
            if let Piece::Property(name) = piece
                && !property_names(input_schema).any(|declared| declared == name)
            {
                return refuse(format!("placeholder {name:?} is no property of input_schema"));
            }
        }
        Ok(())
    }

    /// Returns the address of a call; values are encoded in one pass and never scanned again.
    ///
    /// A parameter of the query whose value is absent or null is left out; one whose whole value
    /// is a list is repeated for each item. The path needs every value.
    ///
    /// # Errors
    /// Returns the path and the reason of the first value that cannot stand in the address.
    pub fn expand(&self, input: &Map<String, Value>) -> Result<HttpUrl, ExpandError> {
        let mut path = String::new();
        for segment in &self.path {
            path.push('/');
            path.push_str(&expand_segment(segment, input)?);
        }
        let mut parameters = Vec::new();
        for parameter in &self.query {
            parameters.extend(expand_parameter(parameter, input)?);
        }
        let query = (!parameters.is_empty()).then(|| parameters.join("&"));
        let url =
            HttpUrl { is_tls: self.is_tls, host: self.host.clone(), port: self.port, path, query };
        let length = url.to_string().len();
        if length > MAX_URL_BYTES {
            let reason =
                format!("makes an address of {length} bytes, expected at most {MAX_URL_BYTES}");
            return Err(ExpandError { path: String::new(), reason });
        }
        Ok(url)
    }
}

fn refuse<T>(reason: impl Into<String>) -> Result<T, InvalidUrl> {
    Err(InvalidUrl(reason.into()))
}

/// Splits one segment or parameter at its placeholders.
fn pieces(text: &str) -> Result<Vec<Piece>, InvalidUrl> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((fixed, after)) = rest.split_once("{{") {
        let Some((name, after)) = after.split_once("}}") else {
            return refuse("holds a placeholder that is not closed by }}");
        };
        if name.is_empty() {
            return refuse("holds a placeholder without a name");
        }
        if !fixed.is_empty() {
            pieces.push(fixed_piece(fixed)?);
        }
        pieces.push(Piece::Property(name.to_owned()));
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(fixed_piece(rest)?);
    }
    Ok(pieces)
}

fn fixed_piece(text: &str) -> Result<Piece, InvalidUrl> {
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let is_taken = match byte {
            b'%' => [rest.next(), rest.next()]
                .into_iter()
                .all(|digit| digit.is_some_and(|digit| digit.is_ascii_hexdigit())),
            _ => is_literal(byte),
        };
        if is_taken {
            continue;
        }
        let shown = crate::bounded_text(text, 60);
        return refuse(match byte {
            b'{' | b'}' | b'$' => format!(
                "holds {shown:?}; a placeholder is {{{{name}}}}, and neither {{name}} nor ${{NAME}} is expanded"
            ),
            b'#' => format!("holds a fragment in {shown:?}; expected none"),
            _ => format!("holds {shown:?}; expected it percent-encoded"),
        });
    }
    Ok(Piece::Fixed(text.to_owned()))
}

fn expand_segment(segment: &[Piece], input: &Map<String, Value>) -> Result<String, ExpandError> {
    let mut expanded = String::new();
    let mut last = String::new();
    for piece in segment {
        match piece {
            Piece::Fixed(text) => expanded.push_str(text),
            Piece::Property(name) => {
                let path = pointer(name);
                let text = match input.get(name).filter(|value| !value.is_null()) {
                    Some(value) => scalar(value, &path)?,
                    None => return Err(missing(path)),
                };
                check_path_value(&text, &path)?;
                push_value(&mut expanded, &text);
                last = path;
            }
        }
    }
    // Two values that are harmless alone, such as "." and ".", may be a dot segment together.
    if dots(&expanded).is_some() {
        let reason = "makes a dot segment of the path, which would leave it".to_owned();
        return Err(ExpandError { path: last, reason });
    }
    Ok(expanded)
}

/// Refuses a value that a server which decodes once more would read as another path.
fn check_path_value(text: &str, path: &str) -> Result<(), ExpandError> {
    let refuse =
        |reason: &str| Err(ExpandError { path: path.to_owned(), reason: reason.to_owned() });
    if text.is_empty() {
        return refuse("is empty, and the path of the endpoint needs it");
    }
    if text.chars().any(char::is_control) {
        return refuse("holds a control character, which no path can hold");
    }
    if text.split(['/', '\\']).any(|part| matches!(part, "." | "..")) {
        return refuse("holds a dot segment, which would leave its place in the path");
    }
    Ok(())
}

fn expand_parameter(
    parameter: &[Piece],
    input: &Map<String, Value>,
) -> Result<Vec<String>, ExpandError> {
    if let [Piece::Fixed(name), Piece::Property(property)] = parameter
        && let Some(Value::Array(items)) = input.get(property)
    {
        let path = pointer(property);
        let each = items.iter().enumerate().map(|(position, item)| {
            let mut text = name.clone();
            push_value(&mut text, &scalar(item, &format!("{path}/{position}"))?);
            Ok(text)
        });
        return each.collect();
    }
    let mut expanded = String::new();
    for piece in parameter {
        match piece {
            Piece::Fixed(text) => expanded.push_str(text),
            Piece::Property(name) => match input.get(name) {
                None | Some(Value::Null) => return Ok(Vec::new()),
                Some(value) => push_value(&mut expanded, &scalar(value, &pointer(name))?),
            },
        }
    }
    Ok(vec![expanded])
}

fn pointer(name: &str) -> String {
    format!("/{}", name.replace('~', "~0").replace('/', "~1"))
}

fn missing(path: String) -> ExpandError {
    ExpandError { path, reason: "is absent, and the path of the endpoint needs it".to_owned() }
}

fn scalar(value: &Value, path: &str) -> Result<String, ExpandError> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(flag) => Ok(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => Err(ExpandError {
            path: path.to_owned(),
            reason: "cannot stand in an address; expected a string, a number or a boolean"
                .to_owned(),
        }),
    }
}

/// Appends a value with every byte encoded that is not unreserved (RFC 3986, section 2.3).
fn push_value(text: &mut String, value: &str) {
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            text.push(char::from(byte));
        } else {
            push_encoded(text, byte);
        }
    }
}

#[cfg(test)]
mod tests;
