//! Secrets at rest: one encrypted file each, under a key that lies beside them in the home.
//!
//! A file is `ATGSEC1` and a line feed, a random nonce of 24 bytes, and the value sealed with
//! XChaCha20-Poly1305; the secret's name is authenticated with it, so that no file can stand in
//! for another.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use gateway_engine::{SecretError, SecretSource};
use gateway_model::SecretName;

const MAGIC: &[u8] = b"ATGSEC1\n";
const NONCE_BYTES: usize = 24;
const KEY_BYTES: usize = 32;
/// A shorter value could not be told from ordinary text where it has to be taken out of it.
const LEAST_VALUE_BYTES: usize = 8;
const MOST_VALUE_BYTES: usize = 64 << 10;
/// Secrets of one home that are listed.
const MAX_SECRETS: usize = 10_000;

/// The secrets of a home.
#[derive(Debug, Clone)]
pub(crate) struct SecretStore {
    home: PathBuf,
}

/// A secret that cannot be kept or read; holds nothing of its value.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// A file could not be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A file could not be written.
    #[error("{}: cannot be written: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// The machine gave no random bytes.
    #[error("no random bytes: {0}")]
    Random(getrandom::Error),
    /// Others may read the key, so they may have.
    #[error(
        "key {}: others may read or change it (mode {mode:04o}); delete it and set every secret anew",
        path.display()
    )]
    Exposed { path: PathBuf, mode: u32 },
    /// The key's file holds something else.
    #[error("key {}: is not {KEY_BYTES} bytes in hexadecimal digits; restore it, or delete it and set every secret anew", path.display())]
    Key { path: PathBuf },
    /// The file was not sealed under this key and name, or was changed.
    #[error("{}: was not sealed under this home's key and this name, or was changed; set the secret anew", path.display())]
    Sealed { path: PathBuf },
    /// The value cannot be one.
    #[error(
        "the value {fault}; expected {LEAST_VALUE_BYTES} to {MOST_VALUE_BYTES} bytes of UTF-8 without a NUL"
    )]
    Value { fault: String },
}

impl SecretStore {
    /// Returns the store of a home; nothing is made before a secret is set.
    pub(crate) fn of(home: &Path) -> Self {
        Self { home: home.to_owned() }
    }

    /// Returns the store as what the gateway resolves references from.
    pub(crate) fn into_source(self) -> SecretSource {
        SecretSource::new(move |name| match self.read(name) {
            Ok(Some(value)) => Ok(value),
            Ok(None) => Err(SecretError::Absent { name: name.clone() }),
            Err(error) => {
                Err(SecretError::Unreadable { name: name.clone(), reason: error.to_string() })
            }
        })
    }

    /// Keeps a value under a name, in the place of an older one.
    ///
    /// # Errors
    /// Says why it is not kept; an older value is then unchanged.
    pub(crate) fn set(&self, name: &SecretName, value: &[u8]) -> Result<(), StoreError> {
        check_value(value)?;
        let (path, directory) = (self.path(name), self.directory());
        let write = |source| StoreError::Write { path: path.clone(), source };
        for made in [&directory, &self.home.join("keys")] {
            DirBuilder::new().recursive(true).mode(0o700).create(made).map_err(write)?;
        }
        let key = match self.key()? {
            Some(key) => key,
            None => self.make_key()?,
        };
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(StoreError::Random)?;
        let sealed = XChaCha20Poly1305::new((&key).into())
            .encrypt(&XNonce::from(nonce), Payload { msg: value, aad: &authenticated(name) })
            .map_err(|_error| StoreError::Sealed { path: path.clone() })?;
        let whole = [MAGIC, &nonce, &sealed].concat();
        let beside = beside(&path)?;
        write_new(&beside, &whole).map_err(write)?;
        fs::rename(&beside, &path).map_err(write)?;
        File::open(&directory).and_then(|directory| directory.sync_all()).map_err(write)
    }

    /// Returns the value of a secret; `None` where there is none of this name.
    ///
    /// # Errors
    /// Says why it cannot be read.
    pub(crate) fn read(&self, name: &SecretName) -> Result<Option<String>, StoreError> {
        let path = self.path(name);
        let Some(whole) = read_file(&path, MOST_VALUE_BYTES + 256)? else { return Ok(None) };
        let damaged = || StoreError::Sealed { path: path.clone() };
        let key = self.key()?.ok_or_else(damaged)?;
        let (nonce, sealed) = whole
            .strip_prefix(MAGIC)
            .and_then(|rest| rest.split_first_chunk::<NONCE_BYTES>())
            .ok_or_else(damaged)?;
        let value = XChaCha20Poly1305::new((&key).into())
            .decrypt(&XNonce::from(*nonce), Payload { msg: sealed, aad: &authenticated(name) })
            .map_err(|_error| damaged())?;
        String::from_utf8(value).map(Some).map_err(|_error| damaged())
    }

    /// Returns the names of all secrets, sorted.
    ///
    /// # Errors
    /// Returns what the file system said.
    pub(crate) fn names(&self) -> Result<Vec<SecretName>, StoreError> {
        let path = self.directory();
        let read = |source| StoreError::Read { path: path.clone(), source };
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(read(error)),
        };
        let mut names = Vec::new();
        for entry in entries.take(MAX_SECRETS) {
            let name = entry.map_err(read)?.file_name();
            // What a crash left beside has a name that no secret has.
            names.extend(name.to_str().and_then(|name| name.parse::<SecretName>().ok()));
        }
        names.sort();
        Ok(names)
    }

    /// Removes a secret; says whether there was one.
    ///
    /// # Errors
    /// Returns what the file system said.
    pub(crate) fn remove(&self, name: &SecretName) -> Result<bool, StoreError> {
        let path = self.path(name);
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(StoreError::Write { path, source }),
        }
    }

    fn directory(&self) -> PathBuf {
        self.home.join("secrets")
    }

    fn path(&self, name: &SecretName) -> PathBuf {
        self.directory().join(name.as_str())
    }

    /// Returns the key; `None` where none was made yet.
    fn key(&self) -> Result<Option<[u8; KEY_BYTES]>, StoreError> {
        let path = self.key_path();
        let Some(text) = read_file(&path, 2 * KEY_BYTES + 2)? else { return Ok(None) };
        let mode = fs::metadata(&path).map(|metadata| metadata.mode() & 0o7777);
        let mode = mode.map_err(|source| StoreError::Read { path: path.clone(), source })?;
        if mode & 0o077 != 0 {
            return Err(StoreError::Exposed { path, mode });
        }
        let mut key = [0; KEY_BYTES];
        match hex::decode_to_slice(text.trim_ascii_end(), &mut key) {
            Ok(()) => Ok(Some(key)),
            Err(_not_hexadecimal) => Err(StoreError::Key { path }),
        }
    }

    /// Makes the key, or returns the one that another program has made in the meantime.
    fn make_key(&self) -> Result<[u8; KEY_BYTES], StoreError> {
        let mut key = [0; KEY_BYTES];
        getrandom::fill(&mut key).map_err(StoreError::Random)?;
        let path = self.key_path();
        let write = |source| StoreError::Write { path: path.clone(), source };
        let beside = beside(&path)?;
        write_new(&beside, format!("{}\n", hex::encode(key)).as_bytes()).map_err(write)?;
        // A link never replaces: of two programs at once, one makes the key of both.
        let linked = fs::hard_link(&beside, &path);
        fs::remove_file(&beside).map_err(write)?;
        match linked {
            Ok(()) => {
                File::open(self.home.join("keys"))
                    .and_then(|keys| keys.sync_all())
                    .map_err(write)?;
                Ok(key)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.key()?.ok_or(StoreError::Key { path })
            }
            Err(error) => Err(write(error)),
        }
    }

    fn key_path(&self) -> PathBuf {
        self.home.join("keys/secrets.key")
    }
}

fn check_value(value: &[u8]) -> Result<(), StoreError> {
    let fault = if !(LEAST_VALUE_BYTES..=MOST_VALUE_BYTES).contains(&value.len()) {
        format!("has {} bytes", value.len())
    } else if value.contains(&0) {
        "holds a NUL".to_owned()
    } else if std::str::from_utf8(value).is_err() {
        "is not UTF-8".to_owned()
    } else {
        return Ok(());
    };
    Err(StoreError::Value { fault })
}

fn authenticated(name: &SecretName) -> Vec<u8> {
    format!("allternit secret\n{name}").into_bytes()
}

/// Returns a fresh name beside a path, which no secret can have.
fn beside(path: &Path) -> Result<PathBuf, StoreError> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(StoreError::Random)?;
    Ok(path.with_extension(format!("{}.new", hex::encode(random))))
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Returns a file's bytes, at most so many; `None` where it is missing.
fn read_file(path: &Path, most: usize) -> Result<Option<Vec<u8>>, StoreError> {
    let read = |source| StoreError::Read { path: path.to_owned(), source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(read(error)),
    };
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes).map_err(read)?;
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn name(text: &str) -> SecretName {
        text.parse().unwrap()
    }

    #[test]
    fn a_value_is_kept_sealed_and_for_its_owner_alone() {
        let home = tempfile::tempdir().unwrap();
        let store = SecretStore::of(home.path());
        assert_eq!(store.read(&name("A")).unwrap(), None);
        assert!(store.names().unwrap().is_empty());
        store.set(&name("B"), b"sentinel-value").unwrap();
        store.set(&name("A"), "漢字 and\nmore".as_bytes()).unwrap();
        store.set(&name("A"), b"another-value").unwrap();
        assert_eq!(store.read(&name("A")).unwrap().as_deref(), Some("another-value"));
        assert_eq!(store.read(&name("B")).unwrap().as_deref(), Some("sentinel-value"));
        assert_eq!(store.names().unwrap(), [name("A"), name("B")]);
        for path in ["secrets/A", "secrets/B", "keys/secrets.key"] {
            let path = home.path().join(path);
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
            let bytes = fs::read(&path).unwrap();
            assert!(!bytes.windows(5).any(|window| window == b"value"), "{}", path.display());
        }
        assert!(store.remove(&name("A")).unwrap());
        assert!(!store.remove(&name("A")).unwrap());
        assert_eq!(store.names().unwrap(), [name("B")]);
    }

    #[test]
    fn a_file_that_was_changed_or_moved_and_a_key_that_others_know_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let store = SecretStore::of(home.path());
        store.set(&name("A"), b"sentinel-value").unwrap();
        let path = home.path().join("secrets/A");
        let whole = fs::read(&path).unwrap();
        fs::copy(&path, home.path().join("secrets/B")).unwrap();
        assert!(matches!(store.read(&name("B")), Err(StoreError::Sealed { .. })));
        for position in [0, MAGIC.len(), MAGIC.len() + NONCE_BYTES, whole.len() - 1] {
            let mut changed = whole.clone();
            changed[position] ^= 1;
            let mut file = File::create(&path).unwrap();
            file.write_all(&changed).unwrap();
            assert!(matches!(store.read(&name("A")), Err(StoreError::Sealed { .. })), "{position}");
        }
        let key = home.path().join("keys/secrets.key");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(store.read(&name("A")), Err(StoreError::Exposed { mode: 0o640, .. })));
        fs::remove_file(&key).unwrap();
        assert!(matches!(store.read(&name("A")), Err(StoreError::Sealed { .. })));
    }

    #[test]
    fn what_could_not_be_a_value_is_not_kept() {
        let home = tempfile::tempdir().unwrap();
        let store = SecretStore::of(home.path());
        let long = vec![b'x'; MOST_VALUE_BYTES + 1];
        for value in
            [b"".as_slice(), b"1234567", b"with\0a NUL", b"\xff\xfe\xff\xfe\xff\xfe\xff\xfe", &long]
        {
            assert!(matches!(store.set(&name("A"), value), Err(StoreError::Value { .. })));
        }
        assert_eq!(store.read(&name("A")).unwrap(), None);
    }
}
