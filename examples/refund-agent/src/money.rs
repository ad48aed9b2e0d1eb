//! Amounts of money in minor units, with the decimals of their currency and no floats.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The currencies in use (ISO 4217) whose smallest unit is a hundredth.
const TWO_DECIMALS: &str = "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BRL BSD BTN \
    BWP BYN BZD CAD CDF CHF CNY COP CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL \
    GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR \
    LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD PAB \
    PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP \
    SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD UYU UZS VES WST XCD YER ZAR ZMW";

/// The currencies without a smaller unit.
const NO_DECIMALS: &str = "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF";

/// The currencies whose smallest unit is a thousandth.
const THREE_DECIMALS: &str = "BHD IQD JOD KWD LYD OMR TND";

/// A currency in use, by its three-letter code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Currency {
    code: &'static str,
    decimals: u8,
}

impl Currency {
    /// The currency with this code, in capitals: `EUR`, not `eur`.
    #[must_use]
    pub fn from_code(code: &str) -> Option<Self> {
        [(TWO_DECIMALS, 2), (NO_DECIMALS, 0), (THREE_DECIMALS, 3)].into_iter().find_map(
            |(codes, decimals)| {
                let code = codes.split_ascii_whitespace().find(|known| *known == code)?;
                Some(Self { code, decimals })
            },
        )
    }

    /// The three letters, such as `EUR`.
    #[must_use]
    pub fn code(self) -> &'static str {
        self.code
    }

    /// How many decimals an amount is written with: 2 for euros, 0 for yen, 3 for dinars.
    #[must_use]
    pub fn decimals(self) -> u8 {
        self.decimals
    }

    /// This many whole units (euros, yen) in minor units, or `None` beyond `u64`.
    #[must_use]
    pub fn minor_units_in(self, whole: u64) -> Option<u64> {
        whole.checked_mul(10_u64.pow(u32::from(self.decimals)))
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.code)
    }
}

impl fmt::Debug for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code)
    }
}

impl Serialize for Currency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.code)
    }
}

impl<'de> Deserialize<'de> for Currency {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Owned: a reader that cannot lend its text (a socket, MessagePack) is welcome too.
        let code = String::deserialize(deserializer)?;
        Self::from_code(&code)
            .ok_or_else(|| serde::de::Error::custom(format!("unknown currency {code:?}")))
    }
}

/// An amount in one currency, shown as `49.90 EUR`, `1200 JPY` or `0.005 BHD`.
///
/// ```
/// use refund_agent::money::{Currency, Money};
///
/// let dinar = Currency::from_code("BHD").unwrap();
/// assert_eq!(Money::new(12_005, dinar).to_string(), "12.005 BHD");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Money {
    minor: u64,
    currency: Currency,
}

impl Money {
    /// So many minor units (cents, fils, whole yen) of a currency.
    #[must_use]
    pub fn new(minor: u64, currency: Currency) -> Self {
        Self { minor, currency }
    }

    /// The amount in minor units.
    #[must_use]
    pub fn minor(self) -> u64 {
        self.minor
    }

    /// The currency.
    #[must_use]
    pub fn currency(self) -> Currency {
        self.currency
    }

    /// The sum, or `None` for two currencies or beyond `u64`.
    #[must_use]
    pub fn checked_add(self, other: Self) -> Option<Self> {
        if self.currency != other.currency {
            return None;
        }
        Some(Self::new(self.minor.checked_add(other.minor)?, self.currency))
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = 10_u64.pow(u32::from(self.currency.decimals));
        let (whole, rest) = (self.minor / unit, self.minor % unit);
        let text = match usize::from(self.currency.decimals) {
            0 => format!("{whole} {}", self.currency.code),
            width => format!("{whole}.{rest:0width$} {}", self.currency.code),
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn money(minor: u64, code: &str) -> Money {
        Money::new(minor, Currency::from_code(code).unwrap())
    }

    #[test]
    fn amounts_are_shown_with_the_decimals_of_their_currency() {
        assert_eq!(money(4990, "EUR").to_string(), "49.90 EUR");
        assert_eq!(money(5, "USD").to_string(), "0.05 USD");
        assert_eq!(money(0, "GBP").to_string(), "0.00 GBP");
        assert_eq!(money(1200, "JPY").to_string(), "1200 JPY");
        assert_eq!(money(5, "BHD").to_string(), "0.005 BHD");
        assert_eq!(money(u64::MAX, "KWD").to_string(), "18446744073709551.615 KWD");
        assert_eq!(format!("{:>12}|", money(100, "EUR")), "    1.00 EUR|");
    }

    #[test]
    fn sums_neither_mix_currencies_nor_overflow() {
        assert_eq!(money(1, "EUR").checked_add(money(2, "EUR")), Some(money(3, "EUR")));
        assert_eq!(money(1, "EUR").checked_add(money(2, "USD")), None);
        assert_eq!(money(u64::MAX, "EUR").checked_add(money(1, "EUR")), None);
    }

    #[test]
    fn only_codes_in_capitals_are_known() {
        for unknown in ["eur", "EURO", "", "XXX", "EU", "EUR USD", " "] {
            assert_eq!(Currency::from_code(unknown), None, "{unknown:?}");
        }
        let yen = Currency::from_code("JPY").unwrap();
        assert_eq!(yen.minor_units_in(1200), Some(1200));
        assert_eq!(Currency::from_code("OMR").unwrap().minor_units_in(u64::MAX), None);
    }

    #[test]
    fn every_code_stands_in_one_list_once() {
        let mut codes: Vec<_> = [TWO_DECIMALS, NO_DECIMALS, THREE_DECIMALS]
            .iter()
            .flat_map(|codes| codes.split_ascii_whitespace())
            .collect();
        let listed = codes.len();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), listed);
        assert!(codes.iter().all(|code| code.len() == 3));
    }

    #[test]
    fn a_currency_travels_as_its_code() {
        let euro = Currency::from_code("EUR").unwrap();
        assert_eq!(serde_json::to_string(&euro).unwrap(), "\"EUR\"");
        assert_eq!(serde_json::from_str::<Currency>("\"EUR\"").unwrap(), euro);
        assert!(serde_json::from_str::<Currency>("\"EURO\"").is_err());
    }
}
