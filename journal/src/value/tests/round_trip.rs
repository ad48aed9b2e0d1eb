//! What comes back is what was written, or it is refused at the first write.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_bytes::ByteBuf;

use super::*;
use crate::value::ValueErrorKind::{DuplicateKey, TooDeep, TooLarge, WouldChange};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Unit;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Newtype(i64);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Shape {
    Unit,
    Newtype(u8),
    Tuple(i8, char),
    Struct { a: u16, b: String },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Inner {
    x: u64,
    y: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Everything {
    ints: (i8, i16, i32, i64, u8, u16, u32, u64),
    wide: (i128, u128),
    some: Option<Inner>,
    shapes: Vec<Shape>,
    bytes: ByteBuf,
    text: String,
    letter: char,
    unit: (),
    unit_struct: Unit,
    some_unit: Option<Unit>,
    newtype: Newtype,
    by_int: BTreeMap<i64, String>,
    by_wide: BTreeMap<u128, bool>,
    by_tuple: BTreeMap<(u8, String), Option<bool>>,
    by_shape: BTreeMap<Shape, ()>,
    nested: Option<Option<u8>>,
    #[serde(flatten)]
    flat: Inner,
    #[serde(flatten)]
    rest: BTreeMap<String, Vec<u32>>,
}

fn shape() -> impl Strategy<Value = Shape> {
    prop_oneof![
        Just(Shape::Unit),
        any::<u8>().prop_map(Shape::Newtype),
        any::<(i8, char)>().prop_map(|(a, b)| Shape::Tuple(a, b)),
        any::<(u16, String)>().prop_map(|(a, b)| Shape::Struct { a, b }),
    ]
}

fn everything() -> impl Strategy<Value = Everything> {
    let maps = (
        prop::collection::btree_map(any::<i64>(), any::<String>(), 0..20),
        prop::collection::btree_map(any::<u128>(), any::<bool>(), 0..4),
        prop::collection::btree_map(any::<(u8, String)>(), any::<Option<bool>>(), 0..4),
        prop::collection::btree_map(shape(), Just(()), 0..4),
        prop::collection::btree_map("r-[a-z]{3}", prop::collection::vec(any::<u32>(), 0..20), 0..4),
    );
    let inner = || any::<(u64, Option<i64>)>().prop_map(|(x, y)| Inner { x, y });
    let others = (
        prop::option::of(inner()),
        prop::collection::vec(shape(), 0..20),
        prop::collection::vec(any::<u8>(), 0..300),
        any::<(String, char, i64)>(),
        any::<(bool, Option<u8>)>(),
        inner(),
    );
    (any::<(i8, i16, i32, i64, u8, u16, u32, u64)>(), any::<(i128, u128)>(), maps, others).prop_map(
        |(ints, wide, (by_int, by_wide, by_tuple, by_shape, rest), others)| {
            let (some, shapes, bytes, (text, letter, newtype), (some_unit, nested), flat) = others;
            Everything {
                ints,
                wide,
                some,
                shapes,
                bytes: ByteBuf::from(bytes),
                text,
                letter,
                unit: (),
                unit_struct: Unit,
                some_unit: some_unit.then_some(Unit),
                newtype: Newtype(newtype),
                by_int,
                by_wide,
                by_tuple,
                by_shape,
                nested: nested.map(Some),
                flat,
                rest,
            }
        },
    )
}

proptest! {
    #[test]
    fn every_shape_comes_back(value in everything()) {
        let bytes = encode(&value, &limits()).unwrap();
        prop_assert_eq!(&decode::<Everything>(&bytes, &limits()).unwrap(), &value);
        let (exact, back) = encode_exact(&value, &limits()).unwrap();
        prop_assert_eq!((exact, back), (bytes, value));
    }

    #[test]
    fn floats_come_back_bit_for_bit(a: u64, b: u32) {
        let bytes = encode(&(f64::from_bits(a), f32::from_bits(b)), &limits()).unwrap();
        let (x, y): (f64, f32) = decode(&bytes, &limits()).unwrap();
        prop_assert_eq!((x.to_bits(), y.to_bits()), (a, b));
    }

    #[test]
    fn plain_values_are_what_rmp_serde_writes(
        value: (Option<i64>, Vec<String>, BTreeMap<i32, (u8, bool, f32, f64)>, (u64, ())),
        shapes in prop::collection::vec(shape(), 0..20),
    ) {
        let ours = encode(&(&value, &shapes), &limits()).unwrap();
        prop_assert_eq!(ours, rmp_serde::to_vec_named(&(&value, &shapes)).unwrap());
    }
}

#[track_caller]
fn comes_back<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: T) {
    let bytes = encode(&value, &limits()).unwrap();
    assert_eq!(decode::<T>(&bytes, &limits()).unwrap(), value, "{}", view(&bytes));
}

#[test]
fn edges_of_integers_come_back_in_the_shortest_form() {
    for shift in 0..127 {
        for d in -2..=2 {
            comes_back((1i128 << shift) + d);
            comes_back(-(1i128 << shift) + d);
        }
    }
    for value in [i128::MIN, i128::MAX, u64::MAX.into(), i64::MIN.into()] {
        comes_back(value);
    }
    for value in [0, 1 << 64, i128::MAX as u128, i128::MAX as u128 + 1, u128::MAX] {
        comes_back(value);
    }
    assert_eq!(encode(&7i128, &limits()).unwrap(), [7]);
    let mut wide = vec![0xd8, 1, 0, 0, 0, 0, 0, 0, 0, 1];
    wide.extend([0; 8]);
    assert_eq!(encode(&(1i128 << 64), &limits()).unwrap(), wide);
    let mut top = vec![0xd8, 2];
    top.extend([0xff; 16]);
    assert_eq!(encode(&u128::MAX, &limits()).unwrap(), top);
    assert!(decode::<u64>(&wide, &limits()).is_err());
    assert!(decode::<i128>(&top, &limits()).is_err());
}

#[test]
fn what_would_change_is_refused_at_the_first_write() {
    #[derive(Serialize)]
    struct Order<T> {
        items: Vec<BTreeMap<String, T>>,
    }
    fn refused<T: Serialize>(value: T) {
        let items = vec![BTreeMap::new(), BTreeMap::from([("a/b".to_owned(), value)])];
        let error = encode(&Order { items }, &limits()).unwrap_err();
        assert_eq!((error.kind(), error.path().as_str()), (WouldChange, "/items/1/a~1b"));
        assert!(error.to_string().starts_with("value at /items/1/a~1b: `Some("), "{error}");
        let text = error.message();
        assert!(text.contains("read back as `None`; give it a type"), "{text}");
    }
    refused(Some(None::<u8>));
    refused(Some(Some(None::<u8>)));
    refused(Some(()));
    refused(Some(serde_json::Value::Null));
    refused(Some(Box::new(Some(()))));
    #[derive(Serialize)]
    struct Wrapper(Option<u8>);
    refused(Some(Wrapper(None)));
    comes_back(Some(Some(1)));
    comes_back((None::<u8>, (), Some(Unit), Some(Shape::Unit), Some(vec![None::<u8>])));
}

#[test]
fn repeated_keys_are_refused() {
    #[derive(Serialize)]
    struct Flat {
        amount: u8,
        #[serde(flatten)]
        rest: BTreeMap<String, u8>,
    }
    let rest = BTreeMap::from([("amount".to_owned(), 2)]);
    let error = encode(&Flat { amount: 1, rest }, &limits()).unwrap_err();
    assert_eq!((error.kind(), error.path().as_str()), (DuplicateKey, "/amount"));
    // Above and below the size where the way of looking changes.
    for count in [2, 12, 13, 300] {
        let mut pairs: Vec<_> =
            (0..count).map(|i| (random::Tree::Int(i), random::Tree::Nil)).collect();
        assert!(encode(&random::Tree::Map(pairs.clone()), &limits()).is_ok());
        pairs.push((random::Tree::Uint(1), random::Tree::Nil));
        let error = encode(&random::Tree::Map(pairs), &limits()).unwrap_err();
        assert_eq!((error.kind(), error.path().as_str()), (DuplicateKey, "/1"));
    }
}

#[test]
fn tagged_untagged_and_unordered_values_come_back() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(tag = "kind")]
    enum Tagged {
        Empty,
        Unit(Unit),
        Full { a: Option<u8>, id: uuid_text::Id },
    }
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(untagged)]
    enum Untagged {
        Number(i64),
        Bytes(ByteBuf),
        Pair(u8, String),
    }
    let id = uuid_text::Id([7; 16]);
    comes_back((Tagged::Empty, Tagged::Unit(Unit), Tagged::Full { a: None, id }));
    comes_back((Untagged::Number(-5), Untagged::Pair(1, "x".into())));
    comes_back(Untagged::Bytes(ByteBuf::from([0, 255])));
    let map: HashMap<u32, String> = (0..100).map(|i| (i, i.to_string())).collect();
    let (_, back) = encode_exact(&map, &limits()).unwrap();
    assert_eq!(back, map);
}

/// A type with one form for people and one for machines, as UUIDs have.
mod uuid_text {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Debug, PartialEq)]
    pub(super) struct Id(pub(super) [u8; 16]);

    impl Serialize for Id {
        fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
            match s.is_human_readable() {
                true => s.serialize_str(&crate::hex::encode(&self.0)),
                false => s.serialize_bytes(&self.0),
            }
        }
    }

    impl<'de> Deserialize<'de> for Id {
        fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
            assert!(d.is_human_readable());
            let text = String::deserialize(d)?;
            crate::hex::decode(&text).map(Self).ok_or_else(|| serde::de::Error::custom("no id"))
        }
    }
}

#[test]
fn what_only_a_second_reading_shows_is_refused_by_encode_exact() {
    #[derive(Debug, Serialize, Deserialize)]
    #[serde(untagged)]
    enum Wide {
        Number(i128),
        Text(String),
    }
    // serde reads no 128-bit integer inside an untagged enum, not even a small one.
    let values = vec![Wide::Text("x".into()), Wide::Number(1)];
    let error = encode_exact(&values, &limits()).unwrap_err();
    assert_eq!((error.kind(), error.path().as_str()), (WouldChange, "/1"));

    #[derive(Debug, Serialize, Deserialize)]
    struct Lossy {
        kept: u8,
        #[serde(skip_deserializing)]
        lost: u8,
    }
    assert!(encode_exact(&Lossy { kept: 1, lost: 0 }, &limits()).is_ok());
    let error = encode_exact(&Lossy { kept: 1, lost: 2 }, &limits()).unwrap_err();
    assert_eq!((error.kind(), error.path().as_str()), (WouldChange, "/lost"));
}

#[test]
fn depth_is_refused_one_level_beyond_the_limit() {
    fn nested(levels: usize) -> random::Tree {
        (1..levels).fold(random::Tree::Seq(vec![]), |inner, _| random::Tree::Seq(vec![inner]))
    }
    for depth in [1, 10, 64, 127, 128] {
        let limits = limits().depth_max(depth);
        let bytes = encode(&nested(depth), &limits).unwrap();
        check(&bytes, &limits).unwrap();
        canonical::of(&nested(depth), &limits).unwrap();
        assert!(!view(&bytes).is_empty());
        if depth < 128 {
            let deeper = encode(&nested(depth + 1), &limits.depth_max(128)).unwrap();
            assert_eq!(check(&deeper, &limits).unwrap_err().kind(), TooDeep);
            let canonical = canonical::of_msgpack(&deeper, &limits);
            assert_eq!(canonical.unwrap_err().kind(), TooDeep);
        }
        let error = encode(&nested(depth + 1), &limits).unwrap_err();
        assert_eq!(error.kind(), TooDeep);
        assert_eq!(canonical::of(&nested(depth + 1), &limits).unwrap_err().kind(), TooDeep);
    }
}

#[test]
fn endless_nesting_is_refused_without_overflowing_the_stack() {
    /// Serializes as arrays, and options, without end.
    struct Endless(bool);
    impl Serialize for Endless {
        fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
            match self.0 {
                true => s.collect_seq([Endless(true)]),
                false => s.serialize_some(&Endless(false)),
            }
        }
    }
    for arrays in [true, false] {
        assert_eq!(encode(&Endless(arrays), &limits()).unwrap_err().kind(), TooDeep);
        assert_eq!(canonical::of(&Endless(arrays), &limits()).unwrap_err().kind(), TooDeep);
    }
}

#[test]
fn size_is_refused_one_byte_beyond_the_limit() {
    let text = "x".repeat(95);
    let limits = limits().bytes_max(97);
    assert_eq!(encode(&text, &limits).unwrap().len(), 97);
    let error = encode(&"x".repeat(96), &limits).unwrap_err();
    assert_eq!(error.kind(), TooLarge);
    assert!(error.message().contains("97 bytes"), "{error}");
    let bytes = encode(&"x".repeat(96), &super::limits()).unwrap();
    assert_eq!(check(&bytes, &limits).unwrap_err().kind(), TooLarge);
    assert_eq!(decode::<String>(&bytes, &limits).unwrap_err().kind(), TooLarge);
    // A head that grows when the count turns out larger than said.
    let limits = limits.bytes_max(17);
    assert_eq!(encode(&random::Tree::Seq(vec![random::Tree::Nil; 15]), &limits).unwrap().len(), 16);
    let grown: Vec<_> = (0..17).filter(|i| *i < 16).collect();
    struct Unsized(Vec<i32>);
    impl Serialize for Unsized {
        fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
            s.collect_seq(self.0.iter().filter(|_| true))
        }
    }
    assert_eq!(encode(&Unsized(grown), &limits).unwrap_err().kind(), TooLarge);
}

#[test]
fn large_payloads_come_back() {
    let bytes = ByteBuf::from(vec![7; 16 * 1024 * 1024 - 5]);
    let written = encode(&bytes, &limits()).unwrap();
    assert_eq!(written.len(), 16 * 1024 * 1024);
    assert_eq!(decode::<ByteBuf>(&written, &limits()).unwrap(), bytes);
    assert!(encode(&ByteBuf::from(vec![7; 16 * 1024 * 1024 - 4]), &limits()).is_err());
}
