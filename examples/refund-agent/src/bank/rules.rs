//! What the bank itself refuses to do.

use super::wire::{Instruction, Problem};
use crate::money::{Currency, Money};

/// An order whose name holds this is closed: the bank refuses to refund it.
pub const CLOSED_MARKER: &str = "CLOSED";

/// The longest text the bank keeps, in bytes.
const TEXT_BYTES_MAX: usize = 4_096;

/// The currencies that the bank has books in, and the most it refunds at once, in whole units.
const BOOKS: [(&str, u64); 14] = [
    ("AUD", 75_000),
    ("BHD", 20_000),
    ("BRL", 250_000),
    ("CAD", 70_000),
    ("CHF", 50_000),
    ("CNY", 350_000),
    ("EUR", 50_000),
    ("GBP", 40_000),
    ("INR", 4_000_000),
    ("JPY", 8_000_000),
    ("KRW", 70_000_000),
    ("KWD", 15_000),
    ("SEK", 550_000),
    ("USD", 50_000),
];

/// Refuses what nobody could execute. Such instructions are not remembered under their key.
pub(super) fn well_formed(instruction: &Instruction) -> Result<(), Problem> {
    let bad = |detail| Problem::new(400, "bad-instruction", "not an instruction", detail);
    let texts = [
        ("order", &instruction.order),
        ("customer", &instruction.customer),
        ("currency", &instruction.currency),
        ("reason", &instruction.reason),
        ("reference", &instruction.reference),
    ];
    for (member, text) in texts {
        if text.is_empty() || text.len() > TEXT_BYTES_MAX {
            return Err(bad(format!("{member:?} must have 1 to {TEXT_BYTES_MAX} bytes")));
        }
    }
    if instruction.amount_minor == 0 {
        return Err(bad("\"amount_minor\" must be at least 1".to_owned()));
    }
    Ok(())
}

/// Refuses what the bank does not do.
pub(super) fn permitted(instruction: &Instruction) -> Result<(), Problem> {
    let code = instruction.currency.as_str();
    let books = BOOKS.iter().find(|(known, _)| *known == code).and_then(|(known, whole)| {
        let currency = Currency::from_code(known)?;
        Some(Money::new(currency.minor_units_in(*whole)?, currency))
    });
    let Some(limit) = books else {
        return Err(Problem::new(
            422,
            "unknown-currency",
            "no books in this currency",
            format!("the bank has no books in {code:?}: ask for another currency"),
        ));
    };
    if instruction.amount_minor > limit.minor() {
        let amount = Money::new(instruction.amount_minor, limit.currency());
        return Err(Problem::new(
            422,
            "over-limit",
            "more than the bank refunds at once",
            format!("{amount} is more than {limit}: split it, or use a transfer"),
        ));
    }
    if instruction.order.contains(CLOSED_MARKER) {
        return Err(Problem::new(
            422,
            "closed-order",
            "the order is closed",
            format!("order {:?} takes no refunds any more", instruction.order),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instruction(amount_minor: u64, currency: &str) -> Instruction {
        Instruction {
            order: "A-1".into(),
            customer: "Zoë".into(),
            amount_minor,
            currency: currency.into(),
            reason: "broken".into(),
            reference: "rq-1".into(),
        }
    }

    #[test]
    fn limits_are_in_whole_units_of_each_currency() {
        for (currency, most) in [("EUR", 5_000_000), ("JPY", 8_000_000), ("BHD", 20_000_000)] {
            assert_eq!(permitted(&instruction(most, currency)), Ok(()));
            let problem = permitted(&instruction(most + 1, currency)).unwrap_err();
            assert_eq!(problem.code(), "over-limit");
        }
        let problem = permitted(&instruction(5_000_001, "EUR")).unwrap_err();
        assert!(problem.detail.starts_with("50000.01 EUR is more than 50000.00 EUR"));
    }

    #[test]
    fn every_book_is_in_a_known_currency() {
        for (currency, _) in BOOKS {
            assert_eq!(permitted(&instruction(1, currency)), Ok(()));
        }
        assert_eq!(permitted(&instruction(1, "ISK")).unwrap_err().code(), "unknown-currency");
    }

    #[test]
    fn closed_orders_and_empty_members_are_refused() {
        let closed = Instruction { order: "A-1-CLOSED".into(), ..instruction(1, "EUR") };
        assert_eq!(permitted(&closed).unwrap_err().code(), "closed-order");
        assert!(well_formed(&instruction(1, "EUR")).is_ok());
        assert!(well_formed(&instruction(0, "EUR")).is_err());
        let nameless = Instruction { reference: String::new(), ..instruction(1, "EUR") };
        assert!(well_formed(&nameless).unwrap_err().detail.contains("reference"));
        let long = Instruction { reason: "x".repeat(4_097), ..instruction(1, "EUR") };
        assert!(well_formed(&long).is_err());
    }
}
