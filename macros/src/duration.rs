//! Times as people write them.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, Expr, ExprLit, Lit, LitStr, Result};

/// The units, and their milliseconds.
const UNITS: &[(&str, u64)] = &[
    ("ms", 1),
    ("s", 1000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
    ("w", 604_800_000),
];

/// A text such as `"1h30m"`, or an expression that is a duration already.
pub(crate) fn duration(value: &Expr) -> Result<TokenStream> {
    let Expr::Lit(ExprLit { lit, .. }) = value else { return Ok(quote!(#value)) };
    let millis = match lit {
        Lit::Str(text) => parse(text)?,
        other => return Err(Error::new_spanned(other, HOW)),
    };
    Ok(quote!(::core::time::Duration::from_millis(#millis)))
}

const HOW: &str = "a time is a text such as \"90s\", \"24h\" or \"1h30m\" (ms, s, m, h, d, w), or \
                   an expression that is a `Duration`";

fn parse(text: &LitStr) -> Result<u64> {
    let value = text.value();
    let wrong = || Error::new(text.span(), HOW);
    let mut rest = value.as_str();
    let mut millis = 0u64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let (_, unit) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let part = number.checked_mul(*unit).ok_or_else(wrong)?;
        millis = millis.checked_add(part).ok_or_else(wrong)?;
        rest = after;
    }
    if millis == 0 {
        return Err(Error::new(text.span(), "a time longer than nothing is needed"));
    }
    Ok(millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_nothing_else_is() {
        let read = |text: &str| parse(&LitStr::new(text, proc_macro2::Span::call_site())).ok();
        assert_eq!(read("24h"), Some(86_400_000));
        assert_eq!(read("1h30m"), Some(5_400_000));
        assert_eq!(read("250ms"), Some(250));
        assert_eq!(read("2w1d"), Some(15 * 86_400_000));
        for wrong in ["", "h", "24", "24 h", "1.5h", "-1s", "1y", "0s", "99999999999999999999s"] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
        assert_eq!(read("30500568904943w"), None);
    }
}
