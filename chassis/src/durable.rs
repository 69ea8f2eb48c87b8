//! File names that survive a power failure. The bytes of a file are on disk once the file is synced; its name, once its
//! directory is synced; and the directory's name, once the parent is synced.

use std::io;
use std::path::Path;

/// Makes a directory and its missing parents. All of them survive a power failure.
///
/// # Errors
/// If one of them cannot be made or synced.
pub fn create_directories(path: &Path) -> io::Result<()> {
    if path.as_os_str().is_empty() || path.is_dir() {
        return Ok(());
    }
    let above = path.parent().unwrap_or(Path::new("/"));
    create_directories(above)?;
    match std::fs::create_dir(path) {
        // Another process may have made it meanwhile.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists || !path.is_dir() => return Err(error),
        _ => {}
    }
    sync_names(above)
}

/// Waits until every name in a directory is on disk.
///
/// # Errors
/// If the directory cannot be opened or synced.
pub fn sync_names(directory: &Path) -> io::Result<()> {
    let here = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    std::fs::File::open(here)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_created_once_and_a_file_of_that_name_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/b/c");
        create_directories(&path).unwrap();
        create_directories(&path).unwrap();
        assert!(path.is_dir());
        std::fs::write(path.join("file"), "").unwrap();
        assert_eq!(create_directories(&path.join("file")).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(create_directories(&path.join("file/d")).is_err());
        create_directories(Path::new("")).unwrap();
        sync_names(Path::new("")).unwrap();
        assert_eq!(sync_names(&path.join("gone")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
