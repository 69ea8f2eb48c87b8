//! The log of `up`: a file and older files, with a bound on their total bytes.
//!
//! A flood of refusals can fill a file in minutes, so files rotate by size, not by day. With a full disk a line is
//! dropped and counted (`edge_log_dropped_lines`); requests do not wait.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Most bytes of a file.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Most files, including the current one: half a gibibyte in total.
const FILES_MAX: usize = 8;

/// Bounds of one log.
#[derive(Clone, Copy)]
struct Bounds {
    file_bytes: u64,
    files: usize,
}

/// The log. Every call of `write` passes whole lines.
pub(super) struct LogFile {
    folder: PathBuf,
    file: File,
    bytes: u64,
    bounds: Bounds,
}

impl LogFile {
    /// Opens the log in this folder and appends to it.
    pub(super) fn open(folder: &Path) -> std::io::Result<Self> {
        Self::bounded(folder, Bounds { file_bytes: FILE_BYTES_MAX, files: FILES_MAX })
    }

    fn bounded(folder: &Path, bounds: Bounds) -> std::io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let file = File::options().append(true).create(true).open(current(folder))?;
        let bytes = file.metadata()?.len();
        let log = Self { folder: folder.to_owned(), file, bytes, bounds };
        log.remove_oldest()?;
        Ok(log)
    }

    /// Rotates: renames the current file and starts a new one.
    fn rotate(&mut self) -> std::io::Result<()> {
        let newest = finished(&self.folder)?.last().map_or(0, |(number, _)| *number);
        let rotated = self.folder.join(format!("tollhouse.{:06}.log", newest + 1));
        std::fs::rename(current(&self.folder), rotated)?;
        self.file = File::options().append(true).create(true).open(current(&self.folder))?;
        self.bytes = 0;
        self.remove_oldest()
    }

    fn remove_oldest(&self) -> std::io::Result<()> {
        let finished = finished(&self.folder)?;
        let surplus = finished.len().saturating_sub(self.bounds.files.saturating_sub(1));
        finished.iter().take(surplus).try_for_each(|(_, path)| std::fs::remove_file(path))
    }
}

impl Write for LogFile {
    fn write(&mut self, lines: &[u8]) -> std::io::Result<usize> {
        if self.bytes >= self.bounds.file_bytes {
            self.rotate()?;
        }
        // Writes as much as fits; the next call writes the rest to the next file.
        let room = usize::try_from(self.bounds.file_bytes - self.bytes).unwrap_or(usize::MAX);
        let fits = match lines.get(..room) {
            None => lines.len(),
            Some(start) => match start.iter().rposition(|byte| *byte == b'\n') {
                Some(end) => end + 1,
                None if self.bytes > 0 => {
                    self.rotate()?;
                    return self.write(lines);
                }
                None => room,
            },
        };
        let written = self.file.write(lines.get(..fits).unwrap_or(lines))?;
        self.bytes += u64::try_from(written).unwrap_or(u64::MAX);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

fn current(folder: &Path) -> PathBuf {
    folder.join("tollhouse.log")
}

/// Rotated files, oldest first. Daily files of older versions come first.
fn finished(folder: &Path) -> std::io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some(middle) = name.strip_prefix("tollhouse.").and_then(|rest| rest.strip_suffix(".log")) {
            found.push((middle.parse().unwrap_or(0), path));
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Bounds = Bounds { file_bytes: 100, files: 3 };

    /// Every file of the folder by name, with its text.
    fn files(folder: &Path) -> Vec<(String, String)> {
        let mut files: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| {
                let path = entry.unwrap().path();
                (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(&path).unwrap())
            })
            .collect();
        files.sort();
        files
    }

    #[test]
    fn a_flood_of_lines_keeps_the_newest_within_the_bounds() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("tollhouse.2026-06-15.log"), "of an older version").unwrap();
        for start in [0, 500] {
            // The second round is like a restart.
            let mut log = LogFile::bounded(folder.path(), SMALL).unwrap();
            for number in start..start + 500 {
                log.write_all(format!("line {number:>4}\n").as_bytes()).unwrap();
                let bytes: usize = files(folder.path()).iter().map(|(_, text)| text.len()).sum();
                assert!(bytes <= 300, "{bytes} bytes");
            }
        }
        let files = files(folder.path());
        assert_eq!(files.len(), 3, "{files:?}");
        let text: String = files.iter().map(|(_, text)| text.as_str()).collect();
        assert!(text.ends_with("line  998\nline  999\n") && text.lines().all(|line| line.len() == 9), "{files:?}");
    }

    #[test]
    fn a_line_longer_than_a_file_is_split_over_files_within_the_bounds() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = LogFile::bounded(folder.path(), SMALL).unwrap();
        log.write_all(&[b'x'; 1_000]).unwrap();
        log.write_all(b"last\n").unwrap();
        let files = files(folder.path());
        assert!(files.len() == 3 && files.iter().all(|(_, text)| text.len() <= 100), "{files:?}");
        assert!(files.last().unwrap().1.ends_with("last\n"), "{files:?}");
    }
}
