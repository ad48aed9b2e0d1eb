//! What the story ends with.

use std::collections::BTreeMap;

use super::Options;
use super::audit::{Audit, InDoubt};
use super::children::Places;
use super::page::{Look, Page, Shown};
use crate::agent::holds::Point;
use crate::requests::Entry;

/// Everything the table is made of.
pub(super) struct Told<'a> {
    pub(super) options: &'a Options,
    pub(super) places: &'a Places,
    pub(super) entries: &'a [Entry],
    pub(super) audit: &'a Audit,
    pub(super) killed: &'a [Point],
    /// Kills that were not done, because nothing was left to do.
    pub(super) spared: &'a [Point],
    /// Requests that were not obeyed, or not to their end, and why.
    pub(super) stopped: &'a BTreeMap<String, String>,
}

impl Told<'_> {
    pub(super) fn show(&self, page: &mut Page) {
        page.line(Look::Plain, "");
        self.requests(page);
        self.ends(page);
        self.kills(page);
        self.refusals(page);
        self.doubts(page);
        self.verdict(page);
        self.files(page);
    }

    fn requests(&self, page: &mut Page) {
        let count = |wanted: fn(&Entry) -> bool| self.entries.iter().filter(|e| wanted(e)).count();
        let read = count(|entry| matches!(entry, Entry::Request(_)));
        let repeats = count(|entry| matches!(entry, Entry::Repeat { .. }));
        row(page, Look::Plain, "requests read", read, "");
        row(page, Look::Plain, "repeated lines", repeats, "the same thread, no second refund");
        row(page, Look::Plain, "refused lines", count(|e| matches!(e, Entry::Refused(_))), "");
        row(page, Look::Plain, "threads", self.audit.threads, "");
    }

    fn ends(&self, page: &mut Page) {
        let audit = self.audit;
        row(page, Look::Plain, "refunded", audit.refunded, "");
        row(page, Look::Plain, "rejected", audit.rejected, "by the rules or by the bank");
        row(page, Look::Plain, "denied", audit.denied, "by a person");
        row(page, good_if(audit.failed == 0), "failed", audit.failed, "");
        row(page, good_if(audit.in_doubt.is_empty()), "in doubt", audit.in_doubt.len(), "");
        row(page, Look::Plain, "executed at the bank", audit.bank.executed, "by its own ledger");
        let duplicates = audit.bank.duplicates;
        row(page, good_if(duplicates == 0), "duplicates", duplicates, "refunds paid twice");
        row(page, Look::Plain, "letters", audit.letters, "");
    }

    fn kills(&self, page: &mut Page) {
        row(page, Look::Plain, "kills", self.killed.len(), "SIGKILL of the agent's process");
        let mut by_point: BTreeMap<Point, usize> = BTreeMap::new();
        for point in self.killed {
            *by_point.entry(*point).or_default() += 1;
        }
        for (point, times) in by_point {
            let text = format!("  {point:<20}{times:>6}  {}", point.meaning());
            page.line(Look::Plain, text);
        }
        if !self.spared.is_empty() {
            let spared: Vec<_> = self.spared.iter().map(|point| point.as_str()).collect();
            let text = format!("  not reached before the work was done: {}", spared.join(", "));
            page.line(Look::Plain, text);
        }
    }

    fn refusals(&self, page: &mut Page) {
        let refusals = self.entries.iter().filter_map(|entry| match entry {
            Entry::Refused(refusal) => Some(refusal.to_string()),
            _ => None,
        });
        list(page, "refused", &refusals.collect::<Vec<_>>());
        let stopped = self.stopped.iter();
        let stopped = stopped.map(|(thread, why)| format!("{thread}: {why}"));
        list(page, "stopped", &stopped.collect::<Vec<_>>());
    }

    fn doubts(&self, page: &mut Page) {
        let doubts = self.audit.in_doubt.iter().map(|doubt| {
            format!(
                "{}: step {}: {}\n    settle it: {}",
                Shown(&doubt.thread),
                Shown(&doubt.step),
                Shown(&doubt.why),
                self.cure(doubt)
            )
        });
        let doubts: Vec<_> = doubts.collect();
        if !doubts.is_empty() {
            page.line(Look::Bold, "\nin doubt: the bank's books say what happened");
            for doubt in doubts {
                page.line(Look::Plain, format_args!("  {doubt}"));
            }
        }
    }

    /// The command of a person who has looked into the bank's books.
    fn cure(&self, doubt: &InDoubt) -> String {
        let receipt = doubt.paid.as_ref().filter(|_| doubt.step.starts_with("pay#"));
        let verdict = match receipt.and_then(|receipt| serde_json::to_string(receipt).ok()) {
            Some(receipt) => format!("--happened {}", quoted(&receipt)),
            None => "--did-not-happen".to_owned(),
        };
        format!(
            "deedbook --journal {} resolve {} {} {verdict} --reason 'seen in the ledger' --by you",
            quoted(&self.places.journal.to_string_lossy()),
            quoted(&doubt.thread),
            quoted(&doubt.step),
        )
    }

    fn verdict(&self, page: &mut Page) {
        if self.audit.agrees() {
            page.line(Look::Good, "\nthe bank's ledger and the journal agree");
            return;
        }
        page.line(Look::Bad, "\nTHE BANK'S LEDGER AND THE JOURNAL DISAGREE");
        for complaint in &self.audit.complaints {
            page.line(Look::Bad, format_args!("  {}", Shown(complaint)));
        }
    }

    fn files(&self, page: &mut Page) {
        if self.options.discard && self.audit.agrees() {
            return;
        }
        let Self { places, audit, .. } = self;
        page.line(Look::Plain, "");
        for (what, path) in
            [("journal", &places.journal), ("ledger", &places.ledger), ("letters", &places.outbox)]
        {
            let path = path.to_string_lossy();
            page.line(Look::Plain, format_args!("{what:<8} {}", Shown(&path)));
        }
        let journal = quoted(&places.journal.to_string_lossy());
        page.line(Look::Plain, format_args!("try      deedbook --journal {journal} threads"));
        let instead = "cargo run -q -p deedbook-cli --";
        page.line(
            Look::Plain,
            format_args!("         (not installed? `{instead}` stands for `deedbook`)"),
        );
        let shown = audit.example.as_deref().map(quoted);
        if let Some(thread) = shown {
            let text = format!("         deedbook --journal {journal} show {thread}");
            page.line(Look::Plain, text);
        }
    }
}

fn good_if(good: bool) -> Look {
    if good { Look::Good } else { Look::Bad }
}

fn row(page: &mut Page, look: Look, what: &str, count: impl std::fmt::Display, more: &str) {
    let gap = if more.is_empty() { "" } else { "  " };
    page.line(look, format_args!("{what:<22}{count:>6}{gap}{more}"));
}

fn list(page: &mut Page, title: &str, items: &[String]) {
    if items.is_empty() {
        return;
    }
    page.line(Look::Bold, format_args!("\n{title}"));
    for item in items {
        page.line(Look::Plain, format_args!("  {}", Shown(item)));
    }
}

/// A word for a shell, whatever it holds.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    Shown(&format!("'{}'", text.replace('\'', r"'\''"))).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("rq-1"), "rq-1");
        assert_eq!(quoted("pay#0"), "'pay#0'");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("it's $x"), r"'it'\''s $x'");
    }
}
