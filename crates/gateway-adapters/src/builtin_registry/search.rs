//! The search tools: find files by name, and lines by pattern, without what a project ignores.

pub(super) mod find;
pub(super) mod grep;
mod walk;

use gateway_model::ToolError;
use globset::{GlobBuilder, GlobMatcher};

use super::input::refuse;

/// A glob over paths beneath the directory that is searched; without a `/` it is over names alone.
#[derive(Debug)]
struct PathGlob {
    matcher: GlobMatcher,
    is_over_names: bool,
}

impl PathGlob {
    /// Compiles a glob of the input.
    fn compile(field: &str, glob: &str) -> Result<Self, ToolError> {
        let compiled = GlobBuilder::new(glob)
            .literal_separator(true)
            .backslash_escape(true)
            .build()
            .map_err(|error| refuse(field, format!("is no glob: {}", error.kind())))?;
        Ok(Self { matcher: compiled.compile_matcher(), is_over_names: !glob.contains('/') })
    }

    fn is_match(&self, entry: &walk::Entry<'_>) -> bool {
        self.matcher.is_match(if self.is_over_names { entry.name } else { entry.below_start })
    }
}
