//! The commands, one file a family.

pub(crate) mod act;
pub(crate) mod backup;
pub(crate) mod call;
pub(crate) mod cancel;
pub(crate) mod compact;
pub(crate) mod completions;
pub(crate) mod decide;
pub(crate) mod doctor;
pub(crate) mod doubts;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod forget;
pub(crate) mod guard;
pub(crate) mod init;
pub(crate) mod key;
pub(crate) mod own;
pub(crate) mod reset;
pub(crate) mod resolve;
pub(crate) mod show;
pub(crate) mod signal;
pub(crate) mod steps;
pub(crate) mod threads;
pub(crate) mod verify;

use std::{env, os::unix::ffi::OsStrExt, path::Path};

use crate::text::shell;

/// How a command begins that is printed for somebody to run: with the journal, unless the
/// environment names it.
pub(crate) fn prefix(journal: Option<&Path>) -> String {
    match journal {
        Some(path) if env::var_os("DEEDBOOK_JOURNAL").is_none_or(|set| set != path.as_os_str()) => {
            format!("deedbook --journal {}", shell(path.as_os_str().as_bytes(), "FILE"))
        }
        _ => "deedbook".to_owned(),
    }
}

/// What such a command needs to say who acts, where the environment does not.
pub(crate) fn by_whom() -> &'static str {
    if act::user().is_some() { "" } else { " --by YOU" }
}
