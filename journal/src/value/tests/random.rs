//! Random values through every form.

use proptest::prelude::*;
use serde::{Serialize, Serializer, ser::SerializeMap};

use super::*;
use crate::value::ValueErrorKind::{DuplicateKey, NotCanonical};

/// Any value of the data model, written as the types of users write it.
#[derive(Debug, Clone)]
pub(super) enum Tree {
    Nil,
    Bool(bool),
    Int(i128),
    Uint(u128),
    F32(f32),
    F64(f64),
    Text(String),
    Bytes(Vec<u8>),
    Seq(Vec<Tree>),
    Map(Vec<(Tree, Tree)>),
}

impl Serialize for Tree {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Nil => s.serialize_none(),
            Self::Bool(v) => s.serialize_bool(*v),
            Self::Int(v) => s.serialize_i128(*v),
            Self::Uint(v) => s.serialize_u128(*v),
            Self::F32(v) => s.serialize_f32(*v),
            Self::F64(v) => s.serialize_f64(*v),
            Self::Text(v) => s.serialize_str(v),
            Self::Bytes(v) => s.serialize_bytes(v),
            Self::Seq(v) => v.serialize(s),
            Self::Map(v) => {
                // Half of the maps do not know their length, as flattened structs do not.
                let mut map = s.serialize_map((v.len() % 2 == 0).then_some(v.len()))?;
                for (key, value) in v {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
        }
    }
}

pub(super) fn tree() -> impl Strategy<Value = Tree> {
    let near = prop_oneof![
        any::<i128>(),
        any::<i64>().prop_map(i128::from),
        -300i128..300,
        (0u32..127, -2i128..3).prop_map(|(shift, d)| (1i128 << shift) + d),
        (0u32..127, -2i128..3).prop_map(|(shift, d)| d - (1i128 << shift)),
    ];
    let float = prop_oneof![
        any::<f64>(),
        any::<u64>().prop_map(f64::from_bits),
        (-1000i32..1000).prop_map(f64::from),
        Just(-0.0),
    ];
    let leaf = prop_oneof![
        Just(Tree::Nil),
        any::<bool>().prop_map(Tree::Bool),
        near.prop_map(Tree::Int),
        any::<u128>().prop_map(Tree::Uint),
        any::<u32>().prop_map(|b| Tree::F32(f32::from_bits(b))),
        float.prop_map(Tree::F64),
        any::<String>().prop_map(Tree::Text),
        "[a-c$]{0,2}".prop_map(Tree::Text),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(Tree::Bytes),
    ];
    leaf.prop_recursive(4, 40, 18, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..18).prop_map(Tree::Seq),
            prop::collection::vec((inner.clone(), inner), 0..18).prop_map(Tree::Map),
        ]
    })
}

fn has_f32(tree: &Tree) -> bool {
    match tree {
        Tree::F32(_) => true,
        Tree::Seq(v) => v.iter().any(has_f32),
        Tree::Map(v) => v.iter().any(|(k, v)| has_f32(k) || has_f32(v)),
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn canonical_form_of_a_value_and_of_its_bytes_are_one(tree in tree()) {
        let direct = canonical::of(&tree, &limits());
        let Ok(bytes) = encode(&tree, &limits()) else {
            prop_assert!(direct.is_err());
            return Ok(());
        };
        check(&bytes, &limits()).unwrap();
        let through = canonical::of_msgpack(&bytes, &limits());
        match (direct, through) {
            (Ok(direct), Ok(through)) => {
                prop_assert!(direct.len() <= 5 * bytes.len() + 1);
                prop_assert_eq!(direct, through);
            }
            (Err(direct), Err(through)) => {
                prop_assert!(matches!(direct.kind(), NotCanonical | DuplicateKey), "{direct}");
                prop_assert_eq!(direct.to_string(), through.to_string());
            }
            (direct, through) => prop_assert!(false, "{direct:?} against {through:?}"),
        }
    }

    #[test]
    fn the_view_reads_back_to_the_same_bytes(tree in tree()) {
        let Ok(bytes) = encode(&tree, &limits()) else { return Ok(()) };
        let text = view(&bytes);
        let parsed: Result<serde_json::Value, _> = serde_json::from_str(&text);
        prop_assert!(parsed.is_ok(), "{text}");
        prop_assert!(!text.chars().any(char::is_control), "{text:?}");
        let again = view::from_json(&text, &limits()).unwrap();
        if has_f32(&tree) {
            prop_assert_eq!(view(&again), text);
            let canonical = |bytes: &[u8]| canonical::of_msgpack(bytes, &limits()).ok();
            prop_assert_eq!(canonical(&again), canonical(&bytes));
        } else {
            prop_assert_eq!(again, bytes);
        }
    }

    #[test]
    fn diff_is_empty_exactly_when_the_canonical_forms_are_equal(a in tree(), b in tree()) {
        let (Ok(x), Ok(y)) = (encode(&a, &limits()), encode(&b, &limits())) else {
            return Ok(());
        };
        prop_assert_eq!(diff(&x, &x, &[]), []);
        let canonical = |bytes: &[u8]| canonical::of_msgpack(bytes, &limits());
        if let (Ok(cx), Ok(cy)) = (canonical(&x), canonical(&y)) {
            prop_assert_eq!(diff(&x, &y, &[]).is_empty(), cx == cy);
        }
        for difference in diff(&x, &y, &[]) {
            prop_assert!(!difference.to_string().chars().any(char::is_control));
        }
        for difference in diff(&x, &y, &[String::new()]) {
            let text = difference.to_string();
            let hidden = text.contains("[redacted]") || matches!(difference.change, Change::More { .. });
            prop_assert!(hidden, "{text}");
        }
    }
}
