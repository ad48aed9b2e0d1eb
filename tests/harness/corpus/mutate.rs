//! Plans that were changed in one place, and what must be said of that.

use std::collections::BTreeSet;

use deedbook::{Divergence, DivergenceKind, Instead};
use deedbook_journal::{
    history::{CallKind, History},
    id::{IdentityKind, Position},
};

use super::plan::{Args, Call, Identity, Line, Made, Plan, made};
use crate::random::Random;

/// What is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// A line has another name.
    Renamed,
    /// There is a new step before a line, or behind the last one.
    Inserted,
    /// A line is gone.
    Removed,
    /// A line and the next one have changed places.
    Swapped,
    /// One argument of a step is another one.
    Argument,
    /// A step has another policy.
    Policy,
    /// A step is known by something else.
    Known,
    /// A line is in a branch of its own now, or in none.
    Scope,
    /// A step is made once more, or once less.
    Count,
}

impl Change {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Renamed,
        Self::Inserted,
        Self::Removed,
        Self::Swapped,
        Self::Argument,
        Self::Policy,
        Self::Known,
        Self::Scope,
        Self::Count,
    ];
}

/// What must come of changed code on the old records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// It goes on, and so many bodies run.
    Legal(u64),
    /// It is told so, of this call and of the record at this position.
    Told(String, Position, Why),
}

/// In what way it is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// The arguments differ, just here.
    Arguments(String),
    /// The kind of identity differs.
    Identity(IdentityKind, IdentityKind),
    /// The call is not made; a new one is, or a later one.
    New(String),
    /// As [`Why::New`].
    Behind(String),
    /// The code has ended before.
    EndedEarly,
}

/// Whether a call that is shown is the one that is wanted, whose fingerprint nobody knows.
fn is(shown: &str, wanted: &str) -> bool {
    if wanted.ends_with('~') { shown.starts_with(wanted) } else { shown == wanted }
}

impl Wanted {
    /// Whether this is what was wanted.
    #[must_use]
    pub fn is(&self, divergence: &Divergence) -> bool {
        let Self::Told(call, at, why) = self else {
            return false;
        };
        let said = match (&divergence.kind, why) {
            (DivergenceKind::Arguments(differences), Why::Arguments(path)) => {
                let [one] = differences.as_slice() else { return false };
                one.path == *path
            }
            (DivergenceKind::Identity { recorded, now }, Why::Identity(old, new)) => {
                (recorded, now) == (old, new)
            }
            (DivergenceKind::NotMade { instead: Instead::New(made) }, Why::New(wanted))
            | (DivergenceKind::NotMade { instead: Instead::Behind(made) }, Why::Behind(wanted)) => {
                is(made, wanted)
            }
            (DivergenceKind::EndedEarly, Why::EndedEarly) => true,
            _ => false,
        };
        said && is(&divergence.call, call) && divergence.at == *at
    }
}

/// A plan with one change; `None` if there is no place for it.
#[must_use]
pub fn changed(plan: &Plan, change: Change, random: &mut Random) -> Option<Plan> {
    let mut plan = plan.clone();
    let at = random.index(plan.len());
    let (mut path, mut place) = (&mut plan, at);
    // Every other time inside of a scope.
    if let Some(Line::Scope(_, _)) = path.get(place)
        && random.once_in(2)
    {
        let Some(Line::Scope(_, inner)) = path.get_mut(place) else { return None };
        place = random.index(inner.len());
        path = inner;
    }
    apply(path, place, change, random).then_some(plan)
}

fn apply(plan: &mut Plan, at: usize, change: Change, random: &mut Random) -> bool {
    match change {
        Change::Inserted => {
            let behind = usize::from(random.once_in(2));
            plan.insert(at + behind, Line::Step(inserted()));
        }
        Change::Removed => drop(plan.remove(at)),
        Change::Swapped if at + 1 < plan.len() => plan.swap(at, at + 1),
        Change::Swapped => return false,
        Change::Scope => {
            let line = plan.remove(at);
            match line {
                Line::Scope(_, inner) => drop(plan.splice(at..at, inner)),
                line => plan.insert(at, Line::Scope("apart".to_owned(), vec![line])),
            }
        }
        Change::Count => match &mut plan[at] {
            Line::Times(times, _) if random.once_in(2) => *times += 1,
            Line::Times(times, _) => *times -= 1,
            _ => return false,
        },
        Change::Renamed => match &mut plan[at] {
            Line::Step(Call { name, .. })
            | Line::Times(_, Call { name, .. })
            | Line::Sleep(name, _)
            | Line::Approval(name)
            | Line::Scope(name, _) => name.push_str("_v2"),
            Line::Now | Line::Signal(_) | Line::Both(..) => return false,
        },
        Change::Argument | Change::Policy | Change::Known => match &mut plan[at] {
            Line::Step(call) | Line::Times(_, call) => return in_call(call, change, random),
            _ => return false,
        },
    }
    true
}

fn inserted() -> Call {
    let args = Args { amount: 1, card: "none".to_owned(), items: Vec::new() };
    let (name, policy) = ("audit".to_owned(), "idempotent".to_owned());
    Call { name, policy, identity: Identity::Place, args, fates: Vec::new() }
}

fn in_call(call: &mut Call, change: Change, random: &mut Random) -> bool {
    match change {
        Change::Argument => match random.below(4) {
            0 => call.args.amount += 1,
            1 => call.args.card.push('0'),
            2 => call.args.items.push(7),
            _ => call.args.items[0] += 1,
        },
        Change::Policy => {
            let all = ["idempotent", "reconcile", "at_most_once"];
            // What has no effect has no key: that is no other policy, but another step.
            if call.policy == "read" {
                return false;
            }
            let others: Vec<_> = all.into_iter().filter(|other| *other != call.policy).collect();
            call.policy = others[random.index(others.len())].to_owned();
        }
        _ => {
            call.identity = match &call.identity {
                Identity::Place if call.policy == "read" => return false,
                Identity::Place if random.once_in(2) => Identity::Arguments,
                Identity::Place => Identity::Key("order:new".to_owned()),
                Identity::Arguments => Identity::Place,
                Identity::Key(_) => Identity::Key("order:other".to_owned()),
            }
        }
    }
    true
}

/// What must come of it when `now` is run on the records of `before`, both sequential: reads the
/// two side by side as anybody would who looks for the first difference.
#[must_use]
pub fn wanted(before: &Plan, now: &Plan, history: &History) -> Wanted {
    let old: Vec<Made> = made(before).into_iter().filter(|made| made.kind != "signal").collect();
    let mut opened: Vec<_> = history.calls().iter().collect();
    opened.retain(|call| call.kind != CallKind::Signal);
    opened.sort_by_key(|call| call.opened);
    let shown = |made: &Made, id: &str| is(id, &made.shown);
    assert_eq!(opened.len(), old.len(), "{before:?}");
    assert!(old.iter().zip(&opened).all(|(m, c)| shown(m, &c.id.to_string())), "{before:?}");
    let at = |k: usize| opened[k].opened;
    let full = |made: &Made| match made.kind {
        "" => made.shown.clone(),
        kind => format!("{kind} {}", made.shown),
    };
    let mut was_made = BTreeSet::new();
    let mut new = 0;
    for made in made(now) {
        let missing = (0..old.len()).find(|k| !was_made.contains(k));
        let not_made = |k: usize, why| Wanted::Told(old[k].shown.clone(), at(k), why);
        if made.kind == "signal" {
            // It is given only behind everything that was asked for before it came.
            let name = made.shown.rsplit('/').next().and_then(|shown| shown.split('#').next());
            let came = history.signals(name.unwrap_or_default())[0].position;
            match missing {
                Some(k) if at(k) < came => return not_made(k, Why::New(full(&made))),
                _ => continue,
            }
        }
        let Some(this) = old.iter().position(|old| old.id == made.id) else {
            if let Some((k, kinds)) = other_identity(&old, &made) {
                return Wanted::Told(made.shown, at(k), Why::Identity(kinds.0, kinds.1));
            }
            match missing {
                Some(k) => return not_made(k, Why::New(full(&made))),
                None => new += 1,
            }
            continue;
        };
        if let Some(path) = other_argument(&old[this], &made) {
            return Wanted::Told(made.shown, at(this), Why::Arguments(path));
        }
        was_made.insert(this);
        if let Some(k) = missing.filter(|k| *k < this) {
            return not_made(k, Why::Behind(full(&made)));
        }
    }
    match (0..old.len()).find(|k| !was_made.contains(k)) {
        Some(k) => Wanted::Told(old[k].shown.clone(), at(k), Why::EndedEarly),
        None => Wanted::Legal(new),
    }
}

fn kind_of(identity: &Identity) -> IdentityKind {
    match identity {
        Identity::Place => IdentityKind::Positional,
        Identity::Arguments => IdentityKind::Arguments,
        Identity::Key(_) => IdentityKind::Key,
    }
}

/// The first step of this name, if it is known by something of another kind.
fn other_identity(old: &[Made], made: &Made) -> Option<(usize, (IdentityKind, IdentityKind))> {
    let call = made.call.as_ref()?;
    let same = |old: &Made| old.call.as_ref().is_some_and(|old| old.name == call.name);
    let k = old.iter().position(same)?;
    let (before, now) = (kind_of(&old[k].call.as_ref()?.identity), kind_of(&call.identity));
    (before != now).then_some((k, (before, now)))
}

fn other_argument(old: &Made, now: &Made) -> Option<String> {
    let (old, now) = (&old.call.as_ref()?.args, &now.call.as_ref()?.args);
    if old.amount != now.amount {
        return Some("/amount".to_owned());
    }
    if old.card != now.card {
        return Some("/card".to_owned());
    }
    let longest = old.items.len().max(now.items.len());
    let other = (0..longest).find(|k| old.items.get(*k) != now.items.get(*k))?;
    Some(format!("/items/{other}"))
}
