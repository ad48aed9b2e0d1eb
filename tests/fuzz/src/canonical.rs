//! The canonical form, read back by a reader of its own and spelled in other ways.

use deedbook_journal::{
    limits::ValueLimits,
    value::{EXT_I128, EXT_U128, canonical},
};

use crate::{Broken, Target, fixture, input::Input, same};

pub(crate) const TARGET: Target = Target {
    name: "canonical",
    promise: "the form is strict, and the same however its value was spelled",
    run,
    seeds,
    words: &["\u{1}", "\u{0}", "a", "b"],
    bytes_max: 1024,
};

/// What a canonical form says.
#[derive(Debug)]
enum Node {
    Nil,
    Bool(bool),
    /// Whether it is below zero, and how far from it.
    Integer(bool, u128),
    Float(f64),
    Text(Vec<u8>),
    Bytes(Vec<u8>),
    Array(Vec<Node>),
    Map(Vec<(Node, Node)>),
    Extension(u8, Vec<u8>),
}

/// A byte for how many bytes decide the spelling, these, then MessagePack.
fn run(input: &[u8]) -> Result<(), Broken> {
    let mut input = Input(input);
    let count = input.byte();
    let mut choices = Input(input.take(count.into()));
    let limits = ValueLimits::new();
    let Ok(form) = canonical::of_msgpack(input.0, &limits) else {
        return Ok(());
    };
    let mut reader = Reader(&form);
    same("version", &reader.byte()?, &canonical::VERSION)?;
    let node = reader.node()?;
    if !reader.0.is_empty() {
        return Err("something stands behind the form".into());
    }
    let mut spelled = Vec::new();
    spell(&node, &mut choices, &mut spelled);
    let again = canonical::of_msgpack(&spelled, &limits);
    if again.as_ref().is_ok_and(|again| *again == form) {
        return Ok(());
    }
    Err(format!("{node:?}: spelled {spelled:02x?} it is {again:02x?} and was {form:02x?}"))
}

fn seeds() -> Vec<Vec<u8>> {
    let with = |(n, value): (usize, Vec<u8>)| {
        let choices: Vec<u8> = (0..4).map(|i| (n * 7 + i * 3) as u8).collect();
        [&[4], choices.as_slice(), &value].concat()
    };
    fixture::values().into_iter().enumerate().map(with).collect()
}

/// A strict reader of the form, as `journal/src/value/canonical.rs` describes it.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Broken> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or("the form is cut short")?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, Broken> {
        Ok(self.take(1)?[0])
    }

    fn count(&mut self) -> Result<usize, Broken> {
        Ok(u32::from_be_bytes(self.take(4)?.try_into().unwrap()) as usize)
    }

    fn magnitude(&mut self) -> Result<u128, Broken> {
        let length = self.byte()?;
        let bytes = self.take(length.into())?;
        if length > 16 || bytes.first() == Some(&0) {
            return Err("a magnitude of another form".into());
        }
        Ok(bytes.iter().fold(0, |value, byte| value << 8 | u128::from(*byte)))
    }

    fn node(&mut self) -> Result<Node, Broken> {
        Ok(match self.byte()? {
            b'N' => Node::Nil,
            b'F' => Node::Bool(false),
            b'T' => Node::Bool(true),
            b'+' => Node::Integer(false, self.magnitude()?),
            b'-' => match self.magnitude()? {
                0 => return Err("zero below zero".into()),
                magnitude => Node::Integer(true, magnitude),
            },
            b'D' => self.float()?,
            b'S' => {
                let count = self.count()?;
                let text = self.take(count)?;
                std::str::from_utf8(text).map_err(|_| "text that is no UTF-8")?;
                Node::Text(text.to_vec())
            }
            b'B' => {
                let count = self.count()?;
                Node::Bytes(self.take(count)?.to_vec())
            }
            b'A' => {
                let count = self.count()?;
                Node::Array((0..count).map(|_| self.node()).collect::<Result<_, _>>()?)
            }
            b'M' => self.map()?,
            b'X' => {
                let (kind, count) = (self.byte()?, self.count()?);
                Node::Extension(kind, self.take(count)?.to_vec())
            }
            tag => return Err(format!("no tag {tag}")),
        })
    }

    fn float(&mut self) -> Result<Node, Broken> {
        let value = f64::from_bits(u64::from_be_bytes(self.take(8)?.try_into().unwrap()));
        let whole = value.fract() == 0.0 && value.abs() < 2_f64.powi(127);
        if !value.is_finite() || whole {
            return Err(format!("{value} is no other finite number"));
        }
        Ok(Node::Float(value))
    }

    fn map(&mut self) -> Result<Node, Broken> {
        let mut entries = Vec::new();
        let mut last: Option<&[u8]> = None;
        for _ in 0..self.count()? {
            let before = self.0;
            let key = self.node()?;
            let bytes = &before[..before.len() - self.0.len()];
            if last.is_some_and(|last| last >= bytes) {
                return Err("keys that do not ascend".into());
            }
            last = Some(bytes);
            entries.push((key, self.node()?));
        }
        Ok(Node::Map(entries))
    }
}

fn spell(node: &Node, choices: &mut Input<'_>, out: &mut Vec<u8>) {
    match node {
        Node::Nil => out.push(0xc0),
        Node::Bool(value) => out.push(0xc2 + u8::from(*value)),
        Node::Integer(below, magnitude) => integer(*below, *magnitude, choices.byte(), out),
        Node::Float(value) => {
            let narrow = *value as f32;
            if f64::from(narrow).to_bits() == value.to_bits() && choices.byte() % 2 == 1 {
                out.push(0xca);
                out.extend(narrow.to_be_bytes());
            } else {
                out.push(0xcb);
                out.extend(value.to_be_bytes());
            }
        }
        Node::Text(text) => {
            head(text.len(), Some((0xa0, 32)), [Some(0xd9), Some(0xda), Some(0xdb)], choices, out);
            out.extend(text);
        }
        Node::Bytes(bytes) => {
            head(bytes.len(), None, [Some(0xc4), Some(0xc5), Some(0xc6)], choices, out);
            out.extend(bytes);
        }
        Node::Array(all) => {
            head(all.len(), Some((0x90, 16)), [None, Some(0xdc), Some(0xdd)], choices, out);
            all.iter().for_each(|one| spell(one, choices, out));
        }
        Node::Map(entries) => {
            head(entries.len(), Some((0x80, 16)), [None, Some(0xde), Some(0xdf)], choices, out);
            let turn = usize::from(choices.byte()) % entries.len().max(1);
            let (front, back) = entries.split_at(turn);
            for (key, value) in back.iter().chain(front) {
                spell(key, choices, out);
                spell(value, choices, out);
            }
        }
        Node::Extension(kind, bytes) => {
            head(bytes.len(), None, [Some(0xc7), Some(0xc8), Some(0xc9)], choices, out);
            out.push(*kind);
            out.extend(bytes);
        }
    }
}

/// The marker and the length of something, no shorter than it must be and perhaps longer.
fn head(
    length: usize,
    short: Option<(u8, usize)>,
    markers: [Option<u8>; 3],
    choices: &mut Input<'_>,
    out: &mut Vec<u8>,
) {
    let choice = choices.byte();
    if let Some((marker, most)) = short
        && length < most
        && choice.is_multiple_of(4)
    {
        return out.push(marker | length as u8);
    }
    let bytes = (length as u32).to_be_bytes();
    let fits = [length < 1 << 8, length < 1 << 16, true];
    let mut may: Vec<_> = (0..3).filter(|i| fits[*i] && markers[*i].is_some()).collect();
    let chosen = may.swap_remove(usize::from(choice) % may.len());
    out.push(markers[chosen].unwrap_or_default());
    out.extend(&bytes[4 - (1 << chosen)..]);
}

fn integer(below: bool, magnitude: u128, choice: u8, out: &mut Vec<u8>) {
    let float = magnitude as f64;
    // Beyond 2^127 no conversion says exactly whether it is the same number.
    if choice % 3 == 1 && magnitude < 1 << 127 && float as u128 == magnitude {
        let negative_zero = magnitude == 0 && choice % 2 == 1;
        out.push(0xcb);
        return out.extend((if below || negative_zero { -float } else { float }).to_be_bytes());
    }
    let signed =
        if below { 0_i128.checked_sub_unsigned(magnitude) } else { i128::try_from(magnitude).ok() };
    let Some(signed) = signed else {
        out.extend([0xd8, EXT_U128 as u8]);
        return out.extend(magnitude.to_be_bytes());
    };
    let bytes = signed.to_be_bytes();
    let widths = [(0xd0, 1), (0xd1, 2), (0xd2, 4), (0xd3, 8)];
    let unsigned = [(0xcc, 1), (0xcd, 2), (0xce, 4), (0xcf, 8)];
    let mut may = vec![(0, 16)];
    for (marker, width) in widths {
        let most = 1_i128 << (8 * width - 1);
        if (-most..most).contains(&signed) {
            may.push((marker, width));
        }
    }
    for (marker, width) in unsigned {
        if !below && signed < 1_i128 << (8 * width) {
            may.push((marker, width));
        }
    }
    let (marker, width) = may[usize::from(choice) % may.len()];
    match marker {
        0 => out.extend([0xd8, EXT_I128 as u8]),
        marker => out.push(marker),
    }
    out.extend(&bytes[16 - width..]);
}
