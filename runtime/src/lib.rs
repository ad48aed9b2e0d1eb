//! Deedbook.
