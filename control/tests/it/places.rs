//! Where the socket is, and whose.

use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    process::{Command, Stdio},
    sync::Arc,
};

use deedbook_control::{ConnectError, Remote, ServeError, serve};
use deedbook_journal::{
    checkpointer::Checkpointer,
    embedded::{CreateOptions, Embedded},
};

use super::client::served;

#[tokio::test]
async fn a_path_of_two_hundred_characters_works_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let deep = folder.path().join("d".repeat(90)).join("e".repeat(90));
    fs::create_dir_all(&deep).unwrap();
    let path = deep.join("refunds.redb");
    assert!(path.as_os_str().len() > 200);
    let home = Arc::new(Embedded::create(&path, CreateOptions::new()).unwrap());
    let serving = serve(Arc::clone(&home)).unwrap();
    assert!(!serving.path().starts_with(folder.path()));
    let parent = fs::symlink_metadata(serving.path().parent().unwrap()).unwrap();
    assert_eq!(parent.mode() & 0o777, 0o700);
    let remote = Remote::connect(&path).await.unwrap();
    assert_eq!(remote.identity(), home.identity());
    let socket = serving.path().to_owned();
    drop(serving);
    assert!(!socket.exists());
    assert!(matches!(Remote::connect(&path).await, Err(ConnectError::NotServed)));
}

#[tokio::test]
async fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
    let mut book = served();
    let socket = book.socket();
    assert!(matches!(serve(Arc::clone(&book.home)), Err(ServeError::AlreadyServed { .. })));
    drop(book.serving.take());
    assert!(!socket.exists());
    // A process that was killed leaves its socket behind, with nobody behind it.
    drop(UnixListener::bind(&socket).unwrap());
    assert!(socket.exists());
    assert!(matches!(Remote::connect(book.journal()).await, Err(ConnectError::NotServed)));
    book.serving = Some(serve(Arc::clone(&book.home)).unwrap());
    Remote::connect(book.journal()).await.unwrap();
}

#[tokio::test]
async fn what_is_no_socket_is_left_alone() {
    let mut book = served();
    let socket = book.socket();
    drop(book.serving.take());
    fs::write(&socket, "mine").unwrap();
    assert!(matches!(serve(Arc::clone(&book.home)), Err(ServeError::InTheWay { .. })));
    assert!(matches!(Remote::connect(book.journal()).await, Err(ConnectError::NotSafe { .. })));
    assert_eq!(fs::read_to_string(&socket).unwrap(), "mine");
    fs::remove_file(&socket).unwrap();
    // Nor is a link followed, wherever it leads.
    let elsewhere = book.folder.path().join("elsewhere");
    let _listener = UnixListener::bind(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &socket).unwrap();
    assert!(matches!(serve(Arc::clone(&book.home)), Err(ServeError::InTheWay { .. })));
    assert!(matches!(Remote::connect(book.journal()).await, Err(ConnectError::NotSafe { .. })));
}

#[tokio::test]
async fn a_journal_that_was_replaced_under_its_owner_is_not_confused_with_it() {
    let book = served();
    let other = book.folder.path().join("other.redb");
    let made = Embedded::create(&other, CreateOptions::new()).unwrap();
    made.close().await.unwrap();
    drop(made);
    fs::rename(&other, book.journal()).unwrap();
    let error = Remote::connect(book.journal()).await.unwrap_err();
    assert!(matches!(error, ConnectError::OtherFile { .. }), "{error}");
}

/// As far as this can be tried: only root can act as somebody else.
#[test]
fn another_user_is_refused_also_where_the_files_would_let_them_in() {
    let book = served();
    let socket = book.socket();
    assert_eq!(fs::symlink_metadata(&socket).unwrap().mode() & 0o777, 0o600);
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return;
    }
    let program = "import socket, sys\n\
                   s = socket.socket(socket.AF_UNIX)\n\
                   s.connect(sys.argv[1])\n\
                   try:\n  s.sendall(b'{\"id\":0,\"op\":\"hello\",\"args\":{\"v\":1}}\\n')\n\
                   except BrokenPipeError: pass\n\
                   print(s.makefile().readline())\n";
    let mut as_nobody = Command::new("setpriv");
    as_nobody.args(["--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-c"]);
    as_nobody.arg(program).arg(&socket).env_clear().stdin(Stdio::null());
    let Ok(closed) = as_nobody.output() else {
        return;
    };
    let said = String::from_utf8_lossy(&closed.stderr).into_owned();
    assert!(!closed.status.success() && said.contains("PermissionError"), "{said}");
    // Somebody has opened folder and socket to all: the server still looks who it is.
    for path in [book.folder.path(), &socket] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let opened = as_nobody.output().unwrap();
    let said = String::from_utf8_lossy(&opened.stdout).into_owned();
    let errors = String::from_utf8_lossy(&opened.stderr).into_owned();
    assert!(said.contains("\"forbidden\""), "{said} {errors}");
    assert!(!said.contains("secret"), "{said}");
    UnixStream::connect(&socket).unwrap();
}
