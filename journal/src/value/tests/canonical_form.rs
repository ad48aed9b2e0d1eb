//! The rules of canonical form 1, one by one; the vectors hold the bytes.

use std::collections::BTreeMap;

use serde::Serialize;

use super::*;
use crate::value::ValueErrorKind::{DuplicateKey, NotCanonical};

fn of<T: Serialize>(value: T) -> Vec<u8> {
    let direct = canonical::of(&value, &limits()).unwrap();
    let bytes = encode(&value, &limits()).unwrap();
    assert_eq!(canonical::of_msgpack(&bytes, &limits()).unwrap(), direct);
    direct
}

fn of_json(text: &str) -> Vec<u8> {
    canonical::of_msgpack(&json(text), &limits()).unwrap()
}

#[test]
fn s01_object_order_does_not_matter_and_array_order_does() {
    let a = of_json(r#"{"to":["x","y"],"opt":{"b":1,"a":2}}"#);
    assert_eq!(a, of_json(r#"{"opt":{"a":2,"b":1},"to":["x","y"]}"#));
    assert_ne!(a, of_json(r#"{"to":["y","x"],"opt":{"b":1,"a":2}}"#));
}

#[test]
fn s02_s04_numbers_go_by_value() {
    for text in ["100", "1e2", "100.0", "1E+2", "1000e-1"] {
        assert_eq!(of_json(text), of(100), "{text}");
    }
    assert_eq!(of_json("0.00001"), of_json("1e-5"));
    for text in ["-0.0", "-0", "0.0", "0", "0e5"] {
        assert_eq!(of_json(text), of(0), "{text}");
    }
    assert_ne!(of_json("\"100\""), of_json("100"));
    assert_eq!(of(0.5f32), of(0.5f64));
    assert_ne!(of(0.1f32), of(0.1f64));
    assert_eq!(of(f64::from(0.1f32)), of(0.1f32));
    assert_eq!(of(1u8), of(1.0f32));
    assert_ne!(of(1), of(true));
}

#[test]
fn integers_are_exact_over_the_128_bit_range() {
    let two53 = 1i64 << 53;
    assert_ne!(of(two53), of(two53 + 1));
    assert_eq!(of(two53 as f64), of(two53));
    assert_eq!(of(2f64.powi(127)), of(1u128 << 127));
    assert_eq!(of(-(2f64.powi(127))), of(i128::MIN));
    assert_ne!(of(u128::MAX), of(u128::MAX - 1));
    // Beyond the range they stay floats.
    for beyond in [2f64.powi(128), -(2f64.powi(128)), 1e300, f64::MAX, f64::MIN] {
        assert_eq!(of(beyond)[1], b'D');
    }
    assert_eq!(of(-(2f64.powi(127)) * 1.5)[1], b'D');
}

#[test]
fn what_has_no_canonical_form_is_refused_with_its_place() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let value = BTreeMap::from([("a", vec![0.0, bad])]);
        let error = canonical::of(&value, &limits()).unwrap_err();
        assert_eq!((error.kind(), error.path().as_str()), (NotCanonical, "/a/1"));
    }
    let error = canonical::of(&f32::NAN, &limits()).unwrap_err();
    assert_eq!(error.kind(), NotCanonical);
    let one = random::Tree::Map(vec![
        (random::Tree::Int(1), random::Tree::Nil),
        (random::Tree::F64(1.0), random::Tree::Nil),
    ]);
    assert!(encode(&one, &limits()).is_ok());
    let error = canonical::of(&one, &limits()).unwrap_err();
    assert_eq!((error.kind(), error.path().as_str()), (DuplicateKey, "/1"));
}

#[test]
fn s10_s11_absent_null_and_empty_differ() {
    let texts = [
        "{}",
        "[]",
        "null",
        "\"\"",
        "0",
        "false",
        r#"{"to":"a"}"#,
        r#"{"to":"a","note":null}"#,
        r#"{"to":"a","note":""}"#,
        r#"{"$bytes":""}"#,
        "[[]]",
        "[null]",
        "[{}]",
    ];
    let forms: std::collections::BTreeSet<_> = texts.iter().map(|text| of_json(text)).collect();
    assert_eq!(forms.len(), texts.len());
}

#[test]
fn a_struct_is_the_map_of_its_fields_and_enums_are_as_documented() {
    #[derive(Serialize)]
    struct Refund<'a> {
        to: &'a str,
        amount: u32,
        note: Option<&'a str>,
    }
    #[derive(Serialize)]
    enum Shape {
        Unit,
        Newtype(u8),
        Tuple(u8, u8),
        Struct { b: u8, a: u8 },
    }
    let refund = Refund { to: "a", amount: 5, note: None };
    assert_eq!(of(refund), of_json(r#"{"amount":5.0,"note":null,"to":"a"}"#));
    assert_eq!(of(Shape::Unit), of_json(r#""Unit""#));
    assert_eq!(of(Shape::Newtype(1)), of_json(r#"{"Newtype":1}"#));
    assert_eq!(of(Shape::Tuple(1, 2)), of_json(r#"{"Tuple":[1,2]}"#));
    assert_eq!(of(Shape::Struct { b: 1, a: 2 }), of_json(r#"{"Struct":{"a":2,"b":1}}"#));
}

#[test]
fn a_secret_leaves_no_trace() {
    let bytes = encode(&("id", Secret::new("hunter2")), &limits()).unwrap();
    assert_eq!(view(&bytes), r#"["id","[secret]"]"#);
    assert_eq!(of(Secret::new(1)), of(Secret::new(2)));
    let error = decode::<(String, Secret<String>)>(&bytes, &limits()).unwrap_err();
    assert_eq!(error.path(), "/1");
    assert!(error.message().contains("never stored"), "{error}");
}

#[test]
fn numbers_of_serde_json_are_numbers_with_every_set_of_features() {
    #[derive(Serialize)]
    #[serde(rename = "$serde_json::private::Number")]
    struct Number {
        #[serde(rename = "$serde_json::private::Number")]
        literal: &'static str,
    }
    let number = |literal| vec![Number { literal }];
    for literal in ["0", "-1", "120", "9007199254740993", "340282366920938463463374607431768211455"]
    {
        assert_eq!(encode(&number(literal), &limits()).unwrap(), json(&format!("[{literal}]")));
    }
    for literal in
        ["0.1", "1.10", "-2.50e-3", "1e2", "100.0", "0.0", "1e300", "1.7976931348623157e308"]
    {
        assert_eq!(encode(&number(literal), &limits()).unwrap(), json(&format!("[{literal}]")));
        assert_eq!(of(number(literal)), of_json(&format!("[{literal}]")));
    }
    for literal in ["0.1234567890123456789", "9007199254740993.0", "1e400", "1e-400", "x", ""] {
        let error = encode(&number(literal), &limits()).unwrap_err();
        assert_eq!(error.kind(), ValueErrorKind::WouldChange, "{literal}");
        assert_eq!(error.path(), "/0");
    }
}
