//! The suite that every checkpointer passes; third parties run it on theirs.
//!
//! Implement [`Subject`] for your checkpointer and run [`run`] in a test:
//!
//! ```ignore
//! let report = deedbook_conformance::run(&MySubject).await;
//! assert!(report.passed(), "{report}");
//! ```
//!
//! Every case makes its own checkpointer through [`Subject::make`], talks to it through the trait
//! only, and closes it. A case that needs something a subject cannot do (to be opened again, to
//! turn its clock) is reported as skipped, never as passed.

mod cases;
mod desk;
mod report;
mod subject;

pub use cases::cases;
pub use report::{Case, Outcome, Report, run, run_case};
pub use subject::{Made, Subject};
