//! Which instants the agent is killed at, chosen by a seed.

use crate::agent::holds::{HoldAt, Point};

/// The latest arrival at a point that is chosen.
const NTH_MAX: u64 = 3;

/// Numbers that look random and are equal for equal seeds (splitmix64).
#[derive(Debug, Clone)]
pub(super) struct Seeded(u64);

impl Seeded {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n`; 0 if there is none.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.next().checked_rem(n).unwrap_or(0)
    }

    fn index(&mut self, n: usize) -> usize {
        usize::try_from(self.below(n as u64)).unwrap_or(0)
    }
}

/// The kills that are left, in the order in which they are tried.
#[derive(Debug)]
pub(super) struct Plan {
    left: Vec<Point>,
    seeded: Seeded,
    nth_max: u64,
}

impl Plan {
    /// So many kills: every point once before any comes again, and the crash window among the
    /// first. Without a request that needs a person, nobody can be waited for.
    pub(super) fn new(kills: usize, seed: u64, requests: usize, needs_person: bool) -> Self {
        let mut seeded = Seeded::new(seed);
        let mut left = Vec::new();
        while left.len() < kills {
            let mut round = Point::ALL.to_vec();
            round.retain(|point| needs_person || *point != Point::AwaitingApproval);
            while left.len() < kills && !round.is_empty() {
                let at = seeded.index(round.len());
                left.push(round.swap_remove(at));
            }
        }
        if !left.contains(&Point::AfterEffect) {
            let at = seeded.index(left.len());
            if let Some(point) = left.get_mut(at) {
                *point = Point::AfterEffect;
            }
        }
        // Later arrivals need more requests than a short file has.
        let per_kill = requests.checked_div(kills.saturating_mul(3)).unwrap_or(1);
        let nth_max = u64::try_from(per_kill).unwrap_or(1).clamp(1, NTH_MAX);
        Self { left, seeded, nth_max }
    }

    /// Where the next agent is to be held: at the next point, and as soon as a person is waited
    /// for, if that is still to come: it comes when a request needs one, and not in an order.
    pub(super) fn arm(&mut self) -> Vec<HoldAt> {
        let waits = Point::AwaitingApproval;
        let mut holds = Vec::new();
        if let Some(point) = self.left.iter().copied().find(|point| *point != waits) {
            let nth = 1 + self.seeded.below(self.nth_max);
            let nth = u32::try_from(nth).unwrap_or(1);
            holds.push(HoldAt { point, nth });
        }
        if self.waits_for_question() {
            let point = waits;
            holds.push(HoldAt { point, nth: 1 });
        }
        holds
    }

    /// The agent is killed at this point.
    pub(super) fn reached(&mut self, point: Point) {
        if let Some(at) = self.left.iter().position(|left| *left == point) {
            self.left.remove(at);
        }
    }

    /// Whether the agent is still to be killed while a person is waited for, who must not answer
    /// before.
    pub(super) fn waits_for_question(&self) -> bool {
        self.left.contains(&Point::AwaitingApproval)
    }

    /// The kills that have not been done.
    pub(super) fn left(&self) -> &[Point] {
        &self.left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_comes_before_any_comes_again() {
        for seed in 0..200 {
            let plan = Plan::new(8, seed, 45, true);
            assert_eq!(plan.left.len(), 8);
            for point in Point::ALL {
                assert!(plan.left[..7].contains(&point), "seed {seed}");
            }
            let plan = Plan::new(2, seed, 45, true);
            assert!(plan.left.contains(&Point::AfterEffect));
            let plan = Plan::new(20, seed, 45, false);
            assert!(!plan.left.contains(&Point::AwaitingApproval));
            assert_eq!(plan.left.len(), 20);
        }
        assert!(Plan::new(0, 1, 45, true).arm().is_empty());
    }

    #[test]
    fn a_plan_depends_on_its_seed_and_ends() {
        let run = |seed| {
            let mut plan = Plan::new(9, seed, 45, true);
            let mut points = Vec::new();
            while let Some(at) = plan.arm().first().copied() {
                plan.reached(at.point);
                points.push(at.to_string());
            }
            points
        };
        assert_eq!(run(1), run(1));
        assert_eq!(run(1).len(), 9);
        assert_ne!(run(1), run(2));
    }
}
