//! Decimal digits, eight at once.

const ONES: u64 = u64::MAX / 255;

/// What each of eight characters is worth as a digit, the first one in the lowest byte; only where
/// it is a digit is that below ten.
#[inline]
fn worths(text: [u8; 8]) -> u64 {
    u64::from_le_bytes(text) ^ (ONES * u64::from(b'0'))
}

/// The high bit of each byte that is no digit.
#[inline]
fn others(worths: u64) -> u64 {
    // Below 128 nothing is carried into the next byte.
    (((worths & (ONES * 0x7f)) + ONES * (0x80 - 10)) | worths) & (ONES * 0x80)
}

/// Takes digits only.
#[inline]
fn in_pairs(worths: u64) -> u64 {
    (worths * 10 + (worths >> 8)) & 0x00ff_00ff_00ff_00ff
}

#[inline]
fn in_one(worths: u64) -> u64 {
    let fours = (in_pairs(worths) * 100 + (in_pairs(worths) >> 16)) & 0x0000_ffff_0000_ffff;
    (fours * 10_000 + (fours >> 32)) & 0xffff_ffff
}

/// The number that eight digits are.
#[inline]
pub(crate) fn eight(text: [u8; 8]) -> Option<u64> {
    let worths = worths(text);
    (others(worths) == 0).then(|| in_one(worths))
}

/// The four numbers that eight digits are two by two.
#[inline]
pub(crate) fn pairs(text: [u8; 8]) -> Option<[u64; 4]> {
    let worths = worths(text);
    (others(worths) == 0).then(|| {
        let pairs = in_pairs(worths);
        [0, 16, 32, 48].map(|bit| pairs >> bit & 0xff)
    })
}

/// How many of the characters, from the first, are digits, and the number that these are.
#[inline]
pub(crate) fn leading(text: [u8; 8]) -> (usize, u64) {
    let worths = worths(text);
    let bits = others(worths).trailing_zeros() / 8 * 8;
    // Zeros before the digits, in the place of what stands behind them.
    let number = worths.checked_shl(64 - bits).map_or(0, in_one);
    (bits as usize / 8, number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn number(text: &[u8]) -> Option<u64> {
        let digits = text.iter().all(u8::is_ascii_digit).then_some(text)?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    }

    fn agrees(text: [u8; 8]) {
        let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
        assert_eq!(leading(text), (digits, number(&text[..digits]).unwrap_or(0)), "{text:?}");
        assert_eq!(eight(text), number(&text), "{text:?}");
        let two = |at: usize| number(&text[at..at + 2]).unwrap();
        let expected = number(&text).map(|_| [two(0), two(2), two(4), two(6)]);
        assert_eq!(pairs(text), expected, "{text:?}");
    }

    #[test]
    fn every_byte_at_every_place_is_a_digit_or_none() {
        for at in 0..8 {
            for byte in 0..=u8::MAX {
                let mut text = *b"90817263";
                text[at] = byte;
                agrees(text);
            }
        }
    }

    proptest! {
        #[test]
        fn they_are_read_as_one_by_one(
            text in prop::array::uniform8(prop_oneof![4 => b'0'..=b'9', 1 => any::<u8>()]),
        ) {
            agrees(text);
        }
    }
}
