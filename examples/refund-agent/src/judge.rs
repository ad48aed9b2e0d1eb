//! Who decides about a refund: a model, or the rules that stand in for one here.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::money::{Currency, Money};
use crate::requests::Refund;

/// What was decided, with the reason in words that can be shown to a customer or an auditor.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Refund it.
    Approve {
        /// Why.
        why: String,
    },
    /// Do not refund it.
    Reject {
        /// Why not.
        why: String,
    },
    /// A person has to say yes first.
    NeedsHuman {
        /// What the person should look at.
        why: String,
    },
}

impl Verdict {
    /// The reason.
    #[must_use]
    pub fn why(&self) -> &str {
        match self {
            Self::Approve { why } | Self::Reject { why } | Self::NeedsHuman { why } => why,
        }
    }

    /// Whether a person has to say yes first.
    #[must_use]
    pub fn needs_human(&self) -> bool {
        matches!(self, Self::NeedsHuman { .. })
    }

    /// Whether the refund was turned down.
    #[must_use]
    pub fn is_rejection(&self) -> bool {
        matches!(self, Self::Reject { .. })
    }
}

/// The judge gave no verdict; asking again is safe.
#[derive(Debug)]
pub struct JudgeError {
    cause: Box<dyn Error + Send + Sync>,
}

impl JudgeError {
    /// No verdict, because of this.
    pub fn new(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { cause: cause.into() }
    }
}

impl fmt::Display for JudgeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the judge gave no verdict: {}", self.cause)
    }
}

impl Error for JudgeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self.cause.as_ref())
    }
}

/// A verdict on its way. Dropping it drops the question; nothing outside changes.
pub type Assessment<'a> = Pin<Box<dyn Future<Output = Result<Verdict, JudgeError>> + Send + 'a>>;

/// Decides about one refund at a time, and may answer differently when asked twice, as models do.
///
/// ```
/// use refund_agent::judge::{Assessment, Judge, Verdict};
/// use refund_agent::requests::Refund;
///
/// struct Generous;
///
/// impl Judge for Generous {
///     fn assess<'a>(&'a self, refund: &'a Refund) -> Assessment<'a> {
///         Box::pin(async move {
///             Ok(Verdict::Approve { why: format!("{} is always right", refund.customer) })
///         })
///     }
/// }
///
/// let _judge: Box<dyn Judge> = Box::new(Generous);
/// ```
pub trait Judge: Send + Sync {
    /// Looks at a refund.
    ///
    /// # Errors
    ///
    /// [`JudgeError`] when there is no verdict: the model was not reached, or not understood.
    fn assess<'a>(&'a self, refund: &'a Refund) -> Assessment<'a>;
}

/// Words in a reason that a person should read before money moves.
const FLAGGED: [&str; 9] = [
    "chargeback",
    "lawyer",
    "legal action",
    "fraud",
    "stolen",
    "police",
    "press",
    "betrug",
    "anwalt",
];

/// Words in a reason that the shop's terms exclude.
const EXCLUDED: [&str; 3] = ["final sale", "gift card", "already used up"];

/// From how many whole units of its currency on a refund is looked at by a person.
const REVIEWED_FROM: [(&str, u64); 14] = [
    ("AUD", 800),
    ("BHD", 200),
    ("BRL", 2_500),
    ("CAD", 700),
    ("CHF", 500),
    ("CNY", 3_500),
    ("EUR", 500),
    ("GBP", 400),
    ("INR", 40_000),
    ("JPY", 80_000),
    ("KRW", 700_000),
    ("KWD", 150),
    ("SEK", 5_500),
    ("USD", 500),
];

/// Rules that stand in for a model, through the trait that a model would use.
///
/// The first rule that speaks decides: excluded reasons are rejected; flagged reasons, large
/// amounts and currencies without a threshold need a person; the rest is approved.
#[derive(Clone, Default, Debug)]
pub struct RuleJudge {
    thinking: Duration,
}

impl RuleJudge {
    /// Rules that answer at once.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes this long for every verdict, as a model would.
    #[must_use]
    pub fn thinking(self, thinking: Duration) -> Self {
        Self { thinking }
    }

    /// The verdict, without the wait.
    #[must_use]
    pub fn decide(&self, refund: &Refund) -> Verdict {
        let reason = refund.reason.to_lowercase();
        if let Some(word) = EXCLUDED.iter().find(|word| reason.contains(**word)) {
            return Verdict::Reject { why: format!("the terms of sale exclude it: {word:?}") };
        }
        if let Some(word) = FLAGGED.iter().find(|word| reason.contains(**word)) {
            return Verdict::NeedsHuman { why: format!("the reason mentions {word:?}") };
        }
        let amount = refund.amount();
        match reviewed_from(amount.currency()) {
            None => Verdict::NeedsHuman {
                why: format!("no review threshold is set for {}", amount.currency()),
            },
            Some(threshold) if amount.minor() >= threshold.minor() => {
                Verdict::NeedsHuman { why: format!("{amount} is {threshold} or more") }
            }
            Some(threshold) => Verdict::Approve { why: format!("{amount} is under {threshold}") },
        }
    }
}

impl Judge for RuleJudge {
    #[expect(
        clippy::disallowed_methods,
        reason = "a model's latency is real time, outside any journal"
    )]
    fn assess<'a>(&'a self, refund: &'a Refund) -> Assessment<'a> {
        Box::pin(async move {
            if !self.thinking.is_zero() {
                tokio::time::sleep(self.thinking).await;
            }
            Ok(self.decide(refund))
        })
    }
}

fn reviewed_from(currency: Currency) -> Option<Money> {
    let (_, whole) = REVIEWED_FROM.iter().find(|(code, _)| *code == currency.code())?;
    Some(Money::new(currency.minor_units_in(*whole)?, currency))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refund(amount_minor: u64, code: &str, reason: &str) -> Refund {
        Refund {
            id: "r-1".into(),
            order: "A-1".into(),
            customer: "Zoë".into(),
            amount_minor,
            currency: Currency::from_code(code).unwrap(),
            reason: reason.into(),
        }
    }

    #[track_caller]
    fn check(refund: Refund, expected: fn(&Verdict) -> bool, why: &str) {
        let verdict = RuleJudge::new().decide(&refund);
        assert!(expected(&verdict) && verdict.why() == why, "{verdict:?}");
    }

    #[test]
    fn small_refunds_with_plain_reasons_are_approved() {
        let approved = |verdict: &Verdict| matches!(verdict, Verdict::Approve { .. });
        check(refund(4_990, "EUR", "broken zip"), approved, "49.90 EUR is under 500.00 EUR");
        check(refund(79_999, "JPY", "遅い"), approved, "79999 JPY is under 80000 JPY");
        check(refund(199_999, "BHD", "late"), approved, "199.999 BHD is under 200.000 BHD");
    }

    #[test]
    fn large_flagged_and_unknown_ones_need_a_person() {
        check(refund(50_000, "EUR", "x"), Verdict::needs_human, "500.00 EUR is 500.00 EUR or more");
        check(
            refund(1, "USD", "My LAWYER says so"),
            Verdict::needs_human,
            "the reason mentions \"lawyer\"",
        );
        check(refund(1, "ISK", "x"), Verdict::needs_human, "no review threshold is set for ISK");
    }

    #[test]
    fn excluded_reasons_are_rejected_even_when_large() {
        let why = "the terms of sale exclude it: \"final sale\"";
        check(refund(9_999_999, "EUR", "Final Sale, but ugly"), Verdict::is_rejection, why);
    }

    #[test]
    fn every_threshold_names_a_known_currency() {
        for (code, _) in REVIEWED_FROM {
            assert!(reviewed_from(Currency::from_code(code).unwrap()).is_some(), "{code}");
        }
    }

    #[tokio::test]
    async fn a_judge_is_an_object_that_crosses_threads_and_a_verdict_round_trips() {
        let judge: std::sync::Arc<dyn Judge> =
            std::sync::Arc::new(RuleJudge::new().thinking(Duration::from_millis(1)));
        let task = async move { judge.assess(&refund(1, "EUR", "x")).await };
        let verdict = tokio::task::JoinSet::from_iter([task]).join_all().await.remove(0).unwrap();
        let text = serde_json::to_string(&verdict).unwrap();
        assert_eq!(text, r#"{"approve":{"why":"0.01 EUR is under 500.00 EUR"}}"#);
        assert_eq!(serde_json::from_str::<Verdict>(&text).unwrap(), verdict);
    }
}
