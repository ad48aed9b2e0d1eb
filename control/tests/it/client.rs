//! A client that says what it is told to, and a journal to say it to.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use deedbook_control::{Serving, serve};
use deedbook_journal::embedded::{CreateOptions, Embedded};
use serde_json::{Value, json};

/// A journal that is served.
pub(crate) struct Served {
    pub(crate) serving: Option<Serving>,
    pub(crate) home: Arc<Embedded>,
    pub(crate) folder: tempfile::TempDir,
}

pub(crate) fn served() -> Served {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("book.redb");
    let home = Arc::new(Embedded::create(path, CreateOptions::new()).unwrap());
    let serving = Some(serve(Arc::clone(&home)).unwrap());
    Served { serving, home, folder }
}

impl Served {
    pub(crate) fn journal(&self) -> PathBuf {
        self.folder.path().join("book.redb")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.serving.as_ref().unwrap().path().to_owned()
    }

    /// A client that has said hello.
    pub(crate) fn client(&self) -> Client {
        let mut client = Client::new(&self.socket());
        let hello = client.ask(json!({"id": 0, "op": "hello", "args": {"v": 1}}));
        assert_eq!(hello["ok"]["v"], 1, "{hello}");
        client
    }
}

/// One connection.
pub(crate) struct Client {
    pub(crate) read: BufReader<UnixStream>,
    pub(crate) write: UnixStream,
}

impl Client {
    pub(crate) fn new(socket: &Path) -> Self {
        let write = UnixStream::connect(socket).unwrap();
        write.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self { read: BufReader::new(write.try_clone().unwrap()), write }
    }

    /// Says a line. That nobody listens any more is for `hear` to find out.
    pub(crate) fn say(&mut self, line: &str) {
        let _ = self.write.write_all(line.as_bytes()).and_then(|()| self.write.write_all(b"\n"));
    }

    /// The next line, or null at the end.
    pub(crate) fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.read.read_line(&mut line).unwrap();
        if line.is_empty() { Value::Null } else { serde_json::from_str(&line).unwrap() }
    }

    pub(crate) fn ask(&mut self, line: Value) -> Value {
        self.say(&line.to_string());
        self.hear()
    }
}
