//! How a tool is reached: the part of a registration that no model sees.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::endpoint::HttpBinding;
use crate::id::{SecretName, WorkerId};
use crate::json::{Digest, canonical_json};
use crate::secret::SecretText;

/// How a tool is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolBinding {
    /// A local command in the sandbox.
    Local {
        /// The program, resolved when the tool was registered.
        program: PathBuf,
        /// Hash of the program's bytes, checked before every run.
        program_digest: Digest,
        /// How the input becomes arguments.
        arguments: ArgumentTemplate,
        /// What the program reads on its standard input.
        stdin: StdinMode,
        /// Variables besides the gateway's own, which they replace.
        environment: BTreeMap<String, SecretText>,
    },
    /// A request to an HTTP endpoint.
    Http(HttpBinding),
    /// An executor within this process, by its name.
    Sdk {
        /// The name of the executor; the tool's id.
        executor: String,
    },
    /// A worker that the operator has registered, in the sandbox.
    Subprocess {
        /// The worker's name in the registry of workers.
        worker: WorkerId,
    },
}

impl ToolBinding {
    /// Returns the binding's `tool_type` on the wire.
    pub fn tool_type(&self) -> &'static str {
        match self {
            Self::Local { .. } => "Local",
            Self::Http(_) => "Http",
            Self::Sdk { .. } => "Sdk",
            Self::Subprocess { .. } => "Subprocess",
        }
    }

    /// Returns the secrets that calls of the tool are given.
    pub fn secrets(&self) -> Vec<&SecretName> {
        match self {
            Self::Local { environment, .. } => {
                environment.values().filter_map(SecretText::secret).collect()
            }
            // A worker's are named in the operator's registry.
            Self::Http(_) | Self::Sdk { .. } | Self::Subprocess { .. } => Vec::new(),
        }
    }
}

/// What a local command reads on its standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StdinMode {
    /// Nothing.
    None,
    /// The input as canonical JSON and a line feed.
    Json,
}

/// How an input becomes the arguments of a command. Never a shell line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgumentTemplate {
    arguments: Vec<Argument>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Argument {
    Fixed(String),
    /// The property's value between a prefix and a suffix.
    Property {
        prefix: String,
        name: String,
        may_start_with_dash: bool,
        suffix: String,
    },
}

/// A template that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A placeholder is not closed, empty, or not alone in its argument.
    #[error("args/{position}: {reason}")]
    Malformed {
        /// Position of the argument in the template.
        position: usize,
        /// What is wrong.
        reason: &'static str,
    },
    /// A placeholder names a property that the input schema does not declare.
    #[error("args/{position}: placeholder {name:?} is no property of input_schema")]
    Undeclared {
        /// Position of the argument in the template.
        position: usize,
        /// The name in the placeholder.
        name: String,
    },
}

/// An input that cannot become arguments.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct ExpandError {
    /// JSON Pointer to the value.
    pub path: String,
    /// What is wrong and what was expected.
    pub reason: String,
}

/// The kernel's bound on one argument (`MAX_ARG_STRLEN`), less its terminator.
const MAX_ARGUMENT_BYTES: usize = 128 * 1024 - 1;

impl ArgumentTemplate {
    /// Returns the mapping of a tool without a template: one argument per scalar property, in
    /// this order, which a registration takes from its schema once ([`property_order`]).
    pub fn from_properties(names: &[String]) -> Self {
        let arguments = names
            .iter()
            .map(|name| Argument::Property {
                prefix: String::new(),
                name: name.clone(),
                may_start_with_dash: false,
                suffix: String::new(),
            })
            .collect();
        Self { arguments }
    }

    /// Parses a template such as `["--count={{count}}", "--", "{{path}}"]`.
    ///
    /// A placeholder `{{name}}` stands for a property; `{{name:dash}}` accepts a value that
    /// starts with `-`, and so does every placeholder after a fixed `--` or after a prefix.
    ///
    /// # Errors
    /// Returns the position and the reason of the first argument that cannot be used.
    pub fn parse(texts: &[String], input_schema: &Value) -> Result<Self, TemplateError> {
        let mut arguments = Vec::with_capacity(texts.len());
        let mut is_after_separator = false;
        for (position, text) in texts.iter().enumerate() {
            let argument = parse_argument(text, is_after_separator)
                .map_err(|reason| TemplateError::Malformed { position, reason })?;
            if let Argument::Property { name, .. } = &argument
                && !property_names(input_schema).any(|declared| declared == name)
            {
                return Err(TemplateError::Undeclared { position, name: name.clone() });
            }
            is_after_separator |= text == "--";
            arguments.push(argument);
        }
        Ok(Self { arguments })
    }

    /// Returns the arguments for an input, in one pass; values are never scanned again.
    ///
    /// An absent or null property leaves its argument out; a list yields one argument per item.
    ///
    /// # Errors
    /// Returns the path and the reason of the first value that cannot be an argument: an
    /// object, a NUL, a leading `-` where it could become an option, or too many bytes.
    pub fn expand(&self, input: &Map<String, Value>) -> Result<Vec<String>, ExpandError> {
        let mut expanded = Vec::new();
        for argument in &self.arguments {
            match argument {
                Argument::Fixed(text) => expanded.push(text.clone()),
                Argument::Property { prefix, name, may_start_with_dash, suffix } => {
                    let path = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
                    for (path, text) in texts_of(input.get(name), path)? {
                        check_argument(&path, &text, *may_start_with_dash)?;
                        expanded.push(format!("{prefix}{}{suffix}", text.text));
                    }
                }
            }
        }
        Ok(expanded)
    }
}

/// Returns the names of a schema's properties in the order in which it declares them.
pub fn property_order(input_schema: &Value) -> Vec<String> {
    property_names(input_schema).map(str::to_owned).collect()
}

pub(crate) fn property_names(input_schema: &Value) -> impl Iterator<Item = &str> {
    input_schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(|properties| properties.keys().map(String::as_str))
}

fn parse_argument(text: &str, is_after_separator: bool) -> Result<Argument, &'static str> {
    let Some((prefix, rest)) = text.split_once("{{") else {
        if text.contains('\0') {
            return Err("holds a NUL");
        }
        return Ok(Argument::Fixed(text.to_owned()));
    };
    let (placeholder, suffix) = rest.split_once("}}").ok_or("placeholder is not closed by }}")?;
    if suffix.contains("{{") {
        return Err("holds more than one placeholder; expected at most one an argument");
    }
    let (name, is_marked) = match placeholder.strip_suffix(":dash") {
        Some(name) => (name, true),
        None => (placeholder, false),
    };
    if name.is_empty() {
        return Err("placeholder has no name");
    }
    Ok(Argument::Property {
        prefix: prefix.to_owned(),
        name: name.to_owned(),
        may_start_with_dash: is_marked || is_after_separator || !prefix.is_empty(),
        suffix: suffix.to_owned(),
    })
}

struct ArgumentText {
    text: String,
    is_number: bool,
}

fn texts_of(
    value: Option<&Value>,
    path: String,
) -> Result<Vec<(String, ArgumentText)>, ExpandError> {
    match value {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => {
            let mut texts = Vec::with_capacity(items.len());
            for (position, item) in items.iter().enumerate() {
                let path = format!("{path}/{position}");
                texts.push((path.clone(), scalar(item, path)?));
            }
            Ok(texts)
        }
        Some(value) => Ok(vec![(path.clone(), scalar(value, path)?)]),
    }
}

fn scalar(value: &Value, path: String) -> Result<ArgumentText, ExpandError> {
    let (text, is_number) = match value {
        Value::String(text) => (text.clone(), false),
        // As it is committed to in the receipt: `1`, where the caller wrote `1.0`.
        Value::Number(_) => (String::from_utf8_lossy(&canonical_json(value)).into_owned(), true),
        Value::Bool(flag) => (flag.to_string(), false),
        Value::Null | Value::Array(_) | Value::Object(_) => {
            let reason =
                "cannot be an argument; expected a string, a number or a boolean".to_owned();
            return Err(ExpandError { path, reason });
        }
    };
    Ok(ArgumentText { text, is_number })
}

fn check_argument(
    path: &str,
    argument: &ArgumentText,
    may_start_with_dash: bool,
) -> Result<(), ExpandError> {
    let refuse = |reason: String| Err(ExpandError { path: path.to_owned(), reason });
    if argument.text.contains('\0') {
        return refuse("holds a NUL, which no argument can hold".to_owned());
    }
    if argument.text.starts_with('-') && !argument.is_number && !may_start_with_dash {
        return refuse(
            "starts with '-' and could be read as an option; put \"--\" before it in args, or mark the placeholder {{name:dash}}"
                .to_owned(),
        );
    }
    if argument.text.len() > MAX_ARGUMENT_BYTES {
        return refuse(format!(
            "has {} bytes, expected at most {MAX_ARGUMENT_BYTES}",
            argument.text.len()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> Value {
        json!({"type": "object", "properties": {"b": {}, "a": {}, "list": {}}})
    }

    #[track_caller]
    fn check(template: &[&str], input: Value, expected: Result<&[&str], &str>) {
        let texts: Vec<String> = template.iter().map(|text| (*text).to_owned()).collect();
        let template = ArgumentTemplate::parse(&texts, &schema()).unwrap();
        compare(&template, input, expected);
    }

    #[track_caller]
    fn compare(template: &ArgumentTemplate, input: Value, expected: Result<&[&str], &str>) {
        let Value::Object(input) = input else { panic!("input is no object") };
        match (template.expand(&input), expected) {
            (Ok(arguments), Ok(expected)) => assert_eq!(arguments, expected),
            (Err(error), Err(expected)) => {
                assert!(format!("{} {error}", error.path).contains(expected), "{error}");
            }
            (got, _) => panic!("{got:?}"),
        }
    }

    #[test]
    fn without_a_template_scalars_follow_the_schema_order() {
        let template = ArgumentTemplate::from_properties(&property_order(&schema()));
        compare(&template, json!({"a": 1, "b": "x y", "other": "no"}), Ok(&["x y", "1"]));
        compare(&template, json!({"a": -1, "b": true}), Ok(&["true", "-1"]));
        compare(&template, json!({"b": "--version"}), Err("/b starts with '-'"));
        compare(&template, json!({"b": "a\0b"}), Err("/b holds a NUL"));
        compare(&template, json!({"b": {"x": 1}}), Err("/b cannot be an argument"));
    }

    #[test]
    fn a_placeholder_is_one_argument_and_never_scanned_again() {
        check(
            &["--n={{a}}", "--", "{{b}}"],
            json!({"a": "-1", "b": "--x"}),
            Ok(&["--n=-1", "--", "--x"]),
        );
        check(
            &["{{b}}"],
            json!({"b": "$(touch x); `y` {{a}}\n&& z"}),
            Ok(&["$(touch x); `y` {{a}}\n&& z"]),
        );
        check(&["{{b}}"], json!({"b": "--version"}), Err("starts with '-'"));
        check(&["{{b:dash}}"], json!({"b": "--version"}), Ok(&["--version"]));
        check(
            &["-v", "{{list}}", "end"],
            json!({"list": ["x", 2, false]}),
            Ok(&["-v", "x", "2", "false", "end"]),
        );
        check(&["{{list}}"], json!({"list": ["x", "-y"]}), Err("/list/1 starts with '-'"));
        check(&["{{list}}"], json!({"list": [["x"]]}), Err("/list/0 cannot be"));
        check(&["--n={{a}}"], json!({}), Ok(&[]));
        check(&["--n={{a}}"], json!({"a": null}), Ok(&[]));
        check(&["{{a}}", "{{b}}"], json!({"a": 1.0, "b": 1e2}), Ok(&["1", "100"]));
        check(&["{{a}}"], json!({"a": 9_007_199_254_740_993_u64}), Ok(&["9007199254740993"]));
        check(&["{{b}}"], json!({"b": "x".repeat(200_000)}), Err("200000 bytes"));
    }

    #[test]
    fn a_template_that_cannot_work_is_refused_at_registration() {
        for (text, expected) in [
            ("{{a", "not closed"),
            ("{{}}", "no name"),
            ("{{a}}{{b}}", "more than one placeholder"),
            ("{{missing}}", "no property of input_schema"),
            ("x\0", "holds a NUL"),
        ] {
            let error = ArgumentTemplate::parse(&[text.to_owned()], &schema()).unwrap_err();
            assert!(error.to_string().contains(expected), "{text:?} gave {error}");
        }
    }
}
