//! A small mutator: for the tests, which have no engine.

use crate::{Target, random::Random};

/// Numbers at which readers go wrong.
const EDGES: &[u64] = &[0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX];

/// Changes an input in a few places; `others` are inputs to take parts from.
#[must_use]
pub fn change(target: &Target, input: &[u8], others: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=random.below(4) {
        once(target, &mut bytes, others, random);
    }
    bytes.truncate(target.bytes_max);
    bytes
}

fn once(target: &Target, bytes: &mut Vec<u8>, others: &[Vec<u8>], random: &mut Random) {
    let at = random.index(bytes.len() + 1);
    let to = at + random.index((bytes.len() - at).min(64) + 1);
    match random.below(11) {
        0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
        1 if at < bytes.len() => bytes[at] = random.draw() as u8,
        2 => drop(bytes.drain(at..to)),
        3 => {
            let again = bytes[at..to].to_vec();
            put(bytes, at, &again);
        }
        4 => bytes.truncate(at),
        5 if !target.words.is_empty() => {
            put(bytes, at, target.words[random.index(target.words.len())].as_bytes());
        }
        6 if !target.words.is_empty() => {
            let word = target.words[random.index(target.words.len())];
            bytes.splice(at..to, word.bytes());
        }
        7 => {
            let edge = EDGES[random.index(EDGES.len())].to_le_bytes();
            let width = 1 << random.below(4);
            let end = (at + width).min(bytes.len());
            bytes.splice(at..end, edge[..width].iter().copied());
        }
        8 => number(bytes, at, random),
        9 if !others.is_empty() => {
            let other = &others[random.index(others.len())];
            let from = random.index(other.len() + 1);
            let until = from + random.index(other.len() - from + 1);
            bytes.splice(at..to, other[from..until].iter().copied());
        }
        _ => {
            let random_bytes = random.draw().to_le_bytes();
            let count = random.index(random_bytes.len());
            put(bytes, at, &random_bytes[..count]);
        }
    }
}

fn put(bytes: &mut Vec<u8>, at: usize, what: &[u8]) {
    bytes.splice(at..at, what.iter().copied());
}

/// Puts another number in the place of one that is written in digits.
fn number(bytes: &mut Vec<u8>, from: usize, random: &mut Random) {
    let is_digit = |byte: &u8| byte.is_ascii_digit();
    let Some(begin) = bytes[from..].iter().position(is_digit).map(|found| from + found) else {
        return;
    };
    let length = bytes[begin..].iter().take_while(|byte| is_digit(byte)).count();
    let edge = EDGES[random.index(EDGES.len())].wrapping_add(random.below(3)).wrapping_sub(1);
    bytes.splice(begin..begin + length, edge.to_string().into_bytes());
}
