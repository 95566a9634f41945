//! What a tool gave back.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// One piece of content of a result, in the shape of the Model Context Protocol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Content {
    /// Text for the model.
    Text {
        /// The text.
        text: String,
    },
    /// An image.
    Image {
        /// The bytes in base64.
        #[serde(rename = "data")]
        base64: String,
        /// The media type, such as `image/png`.
        #[serde(rename = "mimeType")]
        mime_type: String,
    },
    /// A sound.
    Audio {
        /// The bytes in base64.
        #[serde(rename = "data")]
        base64: String,
        /// The media type, such as `audio/wav`.
        #[serde(rename = "mimeType")]
        mime_type: String,
    },
    /// A resource, embedded.
    Resource {
        /// The resource's contents object, passed on as it came.
        resource: Value,
    },
    /// A reference to a resource.
    ResourceLink {
        /// The address of the resource.
        uri: String,
        /// The name of the resource.
        name: String,
    },
}

/// The result of a tool that ran: a value, pieces of content, or both.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToolOutput {
    /// The structured result.
    pub structured: Option<Value>,
    /// Pieces of content, in order.
    pub content: Vec<Content>,
    /// Metadata that travels beside the result and is not part of it.
    pub meta: Map<String, Value>,
}

impl ToolOutput {
    /// Returns an output that is one structured value.
    pub fn from_value(value: Value) -> Self {
        Self { structured: Some(value), ..Self::default() }
    }

    /// Returns the value that REST shows as `output`.
    ///
    /// That is the structured value; content without one is shown as `{"content": […]}`, and an
    /// empty result as null.
    pub fn to_rest(&self) -> Value {
        match &self.structured {
            Some(value) => value.clone(),
            None if self.content.is_empty() => Value::Null,
            None => json!({ "content": self.content }),
        }
    }

    /// Returns the whole output as one JSON value, from which [`Self::from_json`] restores it.
    pub fn to_json(&self) -> Value {
        let mut whole = Map::new();
        if let Some(value) = &self.structured {
            whole.insert("structured".to_owned(), value.clone());
        }
        if !self.content.is_empty() {
            whole.insert("content".to_owned(), json!(self.content));
        }
        if !self.meta.is_empty() {
            whole.insert("meta".to_owned(), Value::Object(self.meta.clone()));
        }
        Value::Object(whole)
    }

    /// Restores an output from what [`Self::to_json`] wrote.
    ///
    /// # Errors
    /// Returns the reason when the value was not written by [`Self::to_json`].
    pub fn from_json(whole: Value) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Stored {
            #[serde(default, deserialize_with = "present")]
            structured: Option<Value>,
            #[serde(default)]
            content: Vec<Content>,
            #[serde(default)]
            meta: Map<String, Value>,
        }
        let Stored { structured, content, meta } = serde_json::from_value(whole)?;
        Ok(Self { structured, content, meta })
    }
}

/// Keeps an explicit null apart from an absent value.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(output: ToolOutput, rest: Value) {
        assert_eq!(output.to_rest(), rest);
        assert_eq!(ToolOutput::from_json(output.to_json()).unwrap(), output);
    }

    #[test]
    fn outputs_survive_storage_and_show_over_rest() {
        check(ToolOutput::default(), Value::Null);
        check(ToolOutput::from_value(Value::Null), Value::Null);
        check(ToolOutput::from_value(json!({"raw_output": "hi\n"})), json!({"raw_output": "hi\n"}));
        let image = Content::Image { base64: "aGk=".into(), mime_type: "image/png".into() };
        check(
            ToolOutput { content: vec![image], ..ToolOutput::default() },
            json!({"content": [{"type": "image", "data": "aGk=", "mimeType": "image/png"}]}),
        );
    }
}
