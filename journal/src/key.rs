//! Operation keys.
