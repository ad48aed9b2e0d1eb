//! Tests of the forms together; what concerns one file only stands beside it.

mod canonical_form;
mod differences;
mod hostile;
mod json_text;
mod random;
mod round_trip;
mod vectors;

use super::*;
use crate::limits::ValueLimits;

fn limits() -> ValueLimits {
    ValueLimits::new()
}

fn json(text: &str) -> Vec<u8> {
    view::from_json(text, &limits()).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn view(bytes: &[u8]) -> String {
    let mut text = String::new();
    view::to_json(bytes, &mut text).unwrap();
    text
}
