//! Secrets: bytes that cannot be printed and are wiped when dropped.
//!
//! A platform has one secret per purpose, each in a file readable only by its owner. Keys for single uses are derived
//! from them by HMAC-SHA-256 with a label, so that no two uses share a key.

use std::fmt;
use std::fs::Metadata;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use anyhow::Context as _;
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use zeroize::Zeroizing;

/// The fewest bytes a secret may have: 128 bits.
pub const SECRET_BYTES_MIN: usize = 16;

/// The largest secret file in bytes.
pub const FILE_BYTES_MAX: u64 = 64 * 1024;

/// Secret bytes.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// From bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// 32 fresh random bytes.
    ///
    /// # Errors
    /// If the operating system returns no randomness.
    pub fn generate() -> anyhow::Result<Self> {
        Ok(Self::new(crate::random::bytes::<32>()?.to_vec()))
    }

    /// Parses text: base64 if it is base64, else the bytes of the text. Surrounding white space is ignored.
    ///
    /// # Errors
    /// If there are fewer than [`SECRET_BYTES_MIN`] bytes.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let text = text.trim();
        let bytes = STANDARD.decode(text).unwrap_or_else(|_| text.as_bytes().to_vec());
        anyhow::ensure!(
            bytes.len() >= SECRET_BYTES_MIN,
            "a secret needs at least {SECRET_BYTES_MIN} bytes; make one with: openssl rand -base64 32"
        );
        Ok(Self::new(bytes))
    }

    /// The text of a password that another server compares, never decoded. Surrounding white space is ignored.
    ///
    /// # Errors
    /// If the text is empty.
    pub fn parse_password(text: &str) -> anyhow::Result<Self> {
        let text = text.trim();
        anyhow::ensure!(!text.is_empty(), "the password is empty");
        Ok(Self::new(text.as_bytes().to_vec()))
    }

    /// Reads a secret file.
    ///
    /// # Errors
    /// If the file cannot be read, is readable by others, or holds too few bytes.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        Self::load_with(path, Self::parse)
    }

    /// Reads a secret file with `parse`.
    ///
    /// # Errors
    /// If the file cannot be read, is readable by others, is not a regular file, is larger than [`FILE_BYTES_MAX`], or
    /// `parse` refuses its contents.
    pub fn load_with<T>(path: &Path, parse: fn(&str) -> anyhow::Result<T>) -> anyhow::Result<T> {
        let place = || format!("secret file {}", path.display());
        let (bytes, file) = read_regular(path, FILE_BYTES_MAX).with_context(place)?;
        anyhow::ensure!(
            file.permissions().mode() & 0o007 == 0,
            "all users can read the secret file {}; run: chmod 600 {}",
            path.display(),
            path.display()
        );
        parse(std::str::from_utf8(&bytes).with_context(place)?).with_context(place)
    }

    /// Reads a secret file, or makes it with 32 random bytes.
    ///
    /// # Errors
    /// Like [`Secret::load`], or if the file cannot be written.
    pub fn load_or_create(path: &Path) -> anyhow::Result<Self> {
        if path.exists() {
            return Self::load(path);
        }
        let secret = Self::generate()?;
        let text = Zeroizing::new(STANDARD.encode(&*secret.0) + "\n");
        write_private(path, text.as_bytes())?;
        Ok(secret)
    }

    /// Derives a key for one use.
    #[must_use]
    pub fn derive(&self, label: &str) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        Self::new(hmac::sign(&key, label.as_bytes()).as_ref().to_vec())
    }

    /// The bytes.
    pub fn reveal(&self) -> &[u8] {
        &self.0
    }

    /// The bytes as text that [`Secret::parse`] takes.
    pub fn to_text(&self) -> Zeroizing<String> {
        Zeroizing::new(STANDARD.encode(&*self.0))
    }

    /// The bytes as text for a header: unpadded base64url.
    pub fn to_token(&self) -> Zeroizing<String> {
        Zeroizing::new(URL_SAFE_NO_PAD.encode(&*self.0))
    }

    /// Whether `text` is this secret's token; takes constant time.
    pub fn matches_token(&self, text: &str) -> bool {
        aws_lc_rs::constant_time::verify_slices_are_equal(text.as_bytes(), self.to_token().as_bytes()).is_ok()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The bytes of a regular file, at most `bytes_max`, and its metadata. A pipe is refused: a read would wait for its
/// writer.
///
/// # Errors
/// When the file cannot be read, is not a regular file, or is larger.
pub fn read_regular(path: &Path, bytes_max: u64) -> anyhow::Result<(Zeroizing<Vec<u8>>, Metadata)> {
    // Without this flag, opening a pipe waits as well.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    let mut bytes = Zeroizing::new(Vec::new());
    let is_readable = metadata.is_file() && metadata.len() <= bytes_max;
    if is_readable {
        file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    }
    anyhow::ensure!(
        is_readable && bytes.len() as u64 <= bytes_max,
        "{} is not a regular file of at most {bytes_max} bytes",
        path.display()
    );
    Ok((bytes, metadata))
}

/// Like [`read_regular`]; `None` if the path does not exist. A broken link is an error.
///
/// # Errors
/// When the file cannot be read, is not a regular file, or is larger.
pub fn read_if_there(path: &Path, bytes_max: u64) -> anyhow::Result<Option<Zeroizing<Vec<u8>>>> {
    match read_regular(path, bytes_max) {
        Ok((bytes, _)) => Ok(Some(bytes)),
        Err(_) if path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a file that only its owner may read, durably and all at once (a crash leaves the old file or the new one).
///
/// # Errors
/// When the directory or the file cannot be written.
pub fn write_private(path: &Path, contents: &[u8]) -> anyhow::Result<()> {
    let place = || format!("writing {}", path.display());
    let directory = path.parent().unwrap_or(Path::new("."));
    crate::durable::create_directories(directory).with_context(place)?;
    let unfinished = path.with_extension(format!("{}.new", std::process::id()));
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&unfinished)
        .with_context(place)?;
    file.write_all(contents).with_context(place)?;
    file.sync_all().with_context(place)?;
    std::fs::rename(&unfinished, path).with_context(place)?;
    crate::durable::sync_names(directory).with_context(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_file_is_created_once_and_readable_only_by_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secrets/edge.key");
        let first = Secret::load_or_create(&path).unwrap();
        let again = Secret::load_or_create(&path).unwrap();
        assert_eq!(first.reveal(), again.reveal());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_password_is_not_decoded_even_if_it_is_base64() {
        let hex = "0123456789abcdef0123456789abcdef";
        assert_eq!(Secret::parse_password(&format!("{hex}\n")).unwrap().reveal(), hex.as_bytes());
        assert_ne!(Secret::parse(hex).unwrap().reveal(), hex.as_bytes(), "so passwords are read differently");
        assert!(Secret::parse_password(" \n").is_err());
    }

    #[test]
    fn a_secret_others_can_read_is_refused_with_the_command_that_fixes_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("edge.key");
        std::fs::write(&path, "0123456789abcdef0123456789abcdef").unwrap();
        let load = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            Secret::load(&path)
        };
        for mode in [0o644, 0o604, 0o602, 0o601] {
            assert!(load(mode).unwrap_err().to_string().contains("chmod 600"), "{mode:o}");
        }
        for mode in [0o600, 0o640, 0o660] {
            assert!(load(mode).is_ok(), "{mode:o}: group access is allowed");
        }
    }

    #[test]
    fn a_large_file_a_pipe_and_a_device_are_refused_without_reading() {
        let directory = tempfile::tempdir().unwrap();
        let (pipe, large) = (directory.path().join("pipe.key"), directory.path().join("large.key"));
        assert!(std::process::Command::new("mkfifo").args(["-m", "600"]).arg(&pipe).status().unwrap().success());
        write_private(&large, b"").unwrap();
        std::fs::File::options().write(true).open(&large).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();
        for path in [pipe, large] {
            // The pipe has no writer: reading it would block.
            let error = format!("{:#}", Secret::load(&path).unwrap_err());
            assert!(error.contains("not a regular file of at most 65536 bytes"), "{error}");
        }
    }

    #[test]
    fn a_private_file_is_whole_and_has_its_name_after_a_power_failure() {
        let left = crate::power::fails_after(
            "secret::tests::a_private_file_is_whole_and_has_its_name_after_a_power_failure",
            |directory| {
                let path = directory.join("data/secrets/edge.key");
                write_private(&path, b"the first secret").unwrap();
                write_private(&path, b"the second secret").unwrap();
            },
        );
        let directory = left.path().join("data/secrets");
        assert_eq!(std::fs::read(directory.join("edge.key")).unwrap(), b"the second secret");
        assert_eq!(std::fs::read_dir(directory).unwrap().count(), 1, "nothing half done lies beside it");
    }

    // Platforms keep their secrets for years: every version must derive the same keys from them.
    #[test]
    fn key_derivation_never_changes() {
        let secret = Secret::new(vec![7; 32]);
        assert_eq!(&**secret.derive("edge feed").to_token(), "LpnV3U-srjVvcVKasJvLug797JcGff-Gl3PPlmONNNw");
        assert_eq!(Secret::parse("BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=\n").unwrap().reveal(), secret.reveal());
    }

    #[test]
    fn secrets_do_not_print_and_labels_give_different_keys() {
        let secret = Secret::new(vec![1; 32]);
        assert_eq!(format!("{secret:?}"), "Secret(…)");
        assert_ne!(secret.derive("identity").reveal(), secret.derive("feed").reveal());
        assert!(secret.matches_token(&secret.to_token()));
        assert!(!secret.matches_token("other"));
    }
}
