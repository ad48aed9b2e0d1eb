//! Where the letters to customers go: a file of JSON lines, each under its operation key.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// A letter that was sent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Letter {
    /// The operation key under which it was written.
    pub key: String,
    /// The thread that it is about.
    pub thread: String,
    /// What it says.
    pub text: String,
}

/// The outbox does not work.
#[derive(Debug, thiserror::Error)]
#[error("outbox {}: {source}", path.display())]
pub struct OutboxError {
    /// The outbox's file.
    pub path: PathBuf,
    /// What the file system said.
    pub source: io::Error,
}

/// An open outbox. Like most of the world it does not look for repeats by itself: whoever writes
/// twice has sent two letters.
#[derive(Debug)]
pub struct Outbox {
    path: PathBuf,
    file: Arc<Mutex<File>>,
}

impl Outbox {
    /// Opens an outbox, creating it when there is none. Blocks on the disk.
    ///
    /// # Errors
    /// What the file system said.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OutboxError> {
        let path = path.as_ref();
        let mut options = OpenOptions::new();
        let file = options.read(true).append(true).create(true).open(path);
        let file = file.map_err(|source| fault(path, source))?;
        Ok(Self { path: path.to_owned(), file: Arc::new(Mutex::new(file)) })
    }

    /// Sends a letter: it is durable when this returns. Dropped, it is sent or not.
    ///
    /// # Errors
    /// What the file system said; the letter may have been sent.
    pub async fn write(&self, key: &str, thread: &str, text: &str) -> Result<(), OutboxError> {
        let letter =
            Letter { key: key.to_owned(), thread: thread.to_owned(), text: text.to_owned() };
        self.with(move |file| append(file, &letter)).await
    }

    /// Whether a letter with this key was sent.
    ///
    /// # Errors
    /// What the file system said.
    pub async fn holds(&self, key: &str) -> Result<bool, OutboxError> {
        let letters = self.with(letters).await?;
        Ok(letters.iter().any(|letter| letter.key == key))
    }

    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut File) -> io::Result<T> + Send + 'static,
    ) -> Result<T, OutboxError> {
        let file = Arc::clone(&self.file);
        let done = tokio::task::spawn_blocking(move || {
            work(&mut file.lock().unwrap_or_else(PoisonError::into_inner))
        });
        let done = done.await.unwrap_or_else(|gone| Err(io::Error::other(gone)));
        done.map_err(|source| fault(&self.path, source))
    }
}

/// The letters in this file; none if there is no file.
///
/// # Errors
/// What the file system said.
pub fn read(path: impl AsRef<Path>) -> Result<Vec<Letter>, OutboxError> {
    let path = path.as_ref();
    let read = match File::open(path) {
        Ok(mut file) => letters(&mut file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    };
    read.map_err(|source| fault(path, source))
}

fn letters(file: &mut File) -> io::Result<Vec<Letter>> {
    file.seek(SeekFrom::Start(0))?;
    let lines = BufReader::new(file).split(b'\n');
    // A line cut off by a crash is not a letter.
    let letters = lines.map(|line| Ok(serde_json::from_slice(&line?).ok()));
    Ok(letters.collect::<io::Result<Vec<_>>>()?.into_iter().flatten().collect())
}

fn append(file: &mut File, letter: &Letter) -> io::Result<()> {
    let mut line = Vec::new();
    if file.seek(SeekFrom::End(0))? > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            line.push(b'\n');
        }
    }
    serde_json::to_writer(&mut line, letter)?;
    line.push(b'\n');
    file.write_all(&line)?;
    file.sync_data()
}

fn fault(path: &Path, source: io::Error) -> OutboxError {
    OutboxError { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn letters_are_found_by_key_and_a_torn_line_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("outbox.jsonl");
        let outbox = Outbox::open(&path).unwrap();
        assert!(!outbox.holds("k1").await.unwrap());
        outbox.write("k1", "t 1", "Dear 李,\nyes").await.unwrap();
        assert!(outbox.holds("k1").await.unwrap());
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, [whole.as_slice(), br#"{"key":"k2","#].concat()).unwrap();
        let outbox = Outbox::open(&path).unwrap();
        assert!(!outbox.holds("k2").await.unwrap());
        outbox.write("k3", "t 3", "x").await.unwrap();
        let keys: Vec<_> = read(&path).unwrap().into_iter().map(|l| l.key).collect();
        assert_eq!(keys, ["k1", "k3"]);
    }
}
