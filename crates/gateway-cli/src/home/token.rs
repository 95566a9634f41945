//! The operator's token: made once, read by nobody else.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const NAME: &str = "operator.token";
/// 32 random bytes, in hexadecimal digits.
const TOKEN_CHARACTERS: usize = 64;

/// A token that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenError {
    /// The file could not be read.
    #[error("operator token {}: cannot be read", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The file could not be made.
    #[error("operator token {}: cannot be written", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// The machine gave no random bytes.
    #[error("operator token: no random bytes")]
    Random(#[source] getrandom::Error),
    /// Others may read it, so they may have.
    #[error(
        "operator token {}: others may read or change it (mode {mode:04o}); delete it, and the next \
         start makes a new one",
        path.display()
    )]
    Exposed { path: PathBuf, mode: u32 },
    /// The file holds something else.
    #[error(
        "operator token {}: is not {TOKEN_CHARACTERS} hexadecimal digits; delete it, and the next \
         start makes a new one",
        path.display()
    )]
    Malformed { path: PathBuf },
}

/// Returns the token of a home, made where there is none. The caller holds the home's lock.
///
/// # Errors
/// Refuses a token that others could know.
pub(crate) fn operator_token(home: &Path) -> Result<String, TokenError> {
    if let Some(token) = read_operator_token(home)? {
        return Ok(token);
    }
    let mut bytes = [0; TOKEN_CHARACTERS / 2];
    getrandom::fill(&mut bytes).map_err(TokenError::Random)?;
    let token = hex::encode(bytes);
    let path = home.join(NAME);
    write_whole(home, &path, &token).map_err(|source| TokenError::Write { path, source })?;
    Ok(token)
}

/// Returns the token of a home; `None` where none was made yet.
///
/// # Errors
/// Refuses a token that others could know.
pub(crate) fn read_operator_token(home: &Path) -> Result<Option<String>, TokenError> {
    let path = home.join(NAME);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(TokenError::Read { path, source }),
    };
    let read = |source: io::Error| TokenError::Read { path: path.clone(), source };
    let mode = file.metadata().map_err(read)?.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(TokenError::Exposed { path, mode });
    }
    let mut text = String::new();
    let limit = TOKEN_CHARACTERS as u64 + 2;
    file.take(limit).read_to_string(&mut text).map_err(read)?;
    let token = text.trim_end_matches('\n');
    if token.len() == TOKEN_CHARACTERS && token.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        Ok(Some(token.to_owned()))
    } else {
        Err(TokenError::Malformed { path })
    }
}

/// Writes beside and renames, so that a crash leaves a whole token or none.
fn write_whole(home: &Path, path: &Path, token: &str) -> io::Result<()> {
    let beside = path.with_extension("token.new");
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(format!("{token}\n").as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    File::open(home)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_token_is_made_once_and_for_its_owner_alone() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(read_operator_token(home.path()).unwrap(), None);
        let token = operator_token(home.path()).unwrap();
        assert_eq!(token.len(), 64);
        assert_eq!(operator_token(home.path()).unwrap(), token);
        let mode = fs::metadata(home.path().join(NAME)).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o600);
        let other = tempfile::tempdir().unwrap();
        assert_ne!(operator_token(other.path()).unwrap(), token);
    }

    #[test]
    fn a_token_that_others_may_read_or_that_is_none_is_refused() {
        let home = tempfile::tempdir().unwrap();
        operator_token(home.path()).unwrap();
        let path = home.path().join(NAME);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = operator_token(home.path()).unwrap_err();
        assert!(matches!(error, TokenError::Exposed { mode: 0o640, .. }), "{error}");

        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        for text in ["", "short", &"g".repeat(64), &"a".repeat(65)] {
            OpenOptions::new()
                .write(true)
                .truncate(true)
                .open(&path)
                .unwrap()
                .write_all(text.as_bytes())
                .unwrap();
            let error = operator_token(home.path()).unwrap_err();
            assert!(matches!(error, TokenError::Malformed { .. }), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_half_written_token_of_a_crash_does_not_stand_in_the_way() {
        let home = tempfile::tempdir().unwrap();
        File::create(home.path().join("operator.token.new")).unwrap();
        assert_eq!(operator_token(home.path()).unwrap().len(), 64);
    }
}
