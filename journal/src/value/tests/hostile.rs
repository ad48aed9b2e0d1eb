//! Bytes that nobody honest wrote.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::{Deserialize, Serialize, de::IgnoredAny};

use super::*;
use crate::value::ValueErrorKind::{Malformed, Mismatch, TooDeep};

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "only its reading is of interest")]
enum Recursive {
    Leaf(Option<u128>),
    List(Vec<Recursive>),
    Map(BTreeMap<String, Recursive>),
    #[serde(untagged)]
    Other(serde_json::Value),
}

/// Everything that takes bytes, in turn.
fn feed(bytes: &[u8]) {
    let _ = check(bytes, &limits());
    let _ = decode::<Recursive>(bytes, &limits());
    let _ = decode::<serde_json::Value>(bytes, &limits());
    let _ = decode::<IgnoredAny>(bytes, &limits());
    let _ = decode::<BTreeMap<Option<char>, f32>>(bytes, &limits());
    let _ = canonical::of_msgpack(bytes, &limits());
    let _ = view::to_json(bytes, &mut String::new());
    let _ = diff(bytes, &[0x91, 0xc0], &[]);
    let _ = diff(&[0x80], bytes, &["/a".to_owned()]);
}

#[test]
fn deep_bytes_are_refused_without_overflowing_the_stack() {
    for head in [&[0x91][..], &[0x81, 0xa1, b'a'], &[0x81, 0x91], &[0xdd, 0, 0, 0, 1]] {
        let mut bytes = head.repeat(100_000);
        bytes.push(0xc0);
        assert_eq!(check(&bytes, &limits()).unwrap_err().kind(), TooDeep);
        assert_eq!(decode::<Recursive>(&bytes, &limits()).unwrap_err().kind(), TooDeep);
        assert_eq!(canonical::of_msgpack(&bytes, &limits()).unwrap_err().kind(), TooDeep);
        feed(&bytes);
    }
}

#[test]
fn the_deepest_allowed_value_is_decoded_on_a_small_stack() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Node {
        name: String,
        next: Option<Box<Node>>,
    }
    #[expect(clippy::disallowed_methods, reason = "the stack of a worker thread is the question")]
    let thread = std::thread::spawn(|| {
        let limits = limits().depth_max(usize::MAX);
        let chain =
            (0..128).fold(None, |next, i| Some(Box::new(Node { name: format!("{i}"), next })));
        let bytes = encode(&chain, &limits).unwrap();
        assert_eq!(decode::<Option<Box<Node>>>(&bytes, &limits).unwrap(), chain);
        decode::<serde_json::Value>(&bytes, &limits).unwrap();
        let json = view(&bytes);
        assert_eq!(view::from_json(&json, &limits).unwrap(), bytes);
        canonical::of_msgpack(&bytes, &limits).unwrap();
        assert_eq!(diff(&bytes, &encode(&None::<u8>, &limits).unwrap(), &[]).len(), 1);
    });
    thread.join().unwrap();
}

#[test]
fn lengths_beyond_the_bytes_are_refused() {
    for bomb in [
        &[0xdd, 0xff, 0xff, 0xff, 0xff, 0xc0][..],
        &[0xdf, 0xff, 0xff, 0xff, 0xff, 0xc0, 0xc0],
        &[0xc6, 0xff, 0xff, 0xff, 0xff, 0x00],
        &[0xdb, 0xff, 0xff, 0xff, 0xff, b'a'],
        &[0xc9, 0xff, 0xff, 0xff, 0xff, 1, 0],
        &[0x82, 0xc0, 0xc0, 0xc0],
        &[0x92, 0xc0],
        &[0xd8, 1, 0],
        &[0xcf, 1],
        &[],
    ] {
        assert_eq!(check(bomb, &limits()).unwrap_err().kind(), Malformed, "{bomb:x?}");
        assert_eq!(decode::<Vec<u8>>(bomb, &limits()).unwrap_err().kind(), Malformed);
        assert!(view::to_json(bomb, &mut String::new()).is_err());
        feed(bomb);
    }
}

#[test]
fn trailing_bytes_unknown_markers_and_broken_text_are_refused() {
    for bytes in [&[0xc0, 0xc0][..], &[0x90, 0x00], &[0xc1], &[0x91, 0xc1]] {
        assert_eq!(check(bytes, &limits()).unwrap_err().kind(), Malformed);
        assert!(canonical::of_msgpack(bytes, &limits()).is_err());
        assert!(view::to_json(bytes, &mut String::new()).is_err());
    }
    let broken = [0x91, 0xa2, 0xff, b'a'];
    check(&broken, &limits()).unwrap();
    assert_eq!(view(&broken), r#"[{"$bytes":"/2E=","$invalid_utf8":true}]"#);
    let error = decode::<Vec<String>>(&broken, &limits()).unwrap_err();
    assert_eq!((error.kind(), error.path().as_str()), (Malformed, "/0"));
    assert_eq!(canonical::of_msgpack(&broken, &limits()).unwrap_err().kind(), Malformed);
}

#[test]
fn a_value_of_another_type_names_the_place() {
    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only the error is of interest")]
    struct Order {
        lines: Vec<Line>,
    }
    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only the error is of interest")]
    struct Line {
        price: u32,
    }
    let bytes = json(r#"{"lines":[{"price":1},{"price":"2"}]}"#);
    let error = decode::<Order>(&bytes, &limits()).unwrap_err();
    assert_eq!((error.kind(), error.path().as_str()), (Mismatch, "/lines/1/price"));
    let error = decode::<(u8, u8)>(&json("[1,2,3]"), &limits()).unwrap_err();
    assert!(error.message().contains("1 elements more"), "{error}");
    assert!(decode::<f64>(&json("9007199254740993"), &limits()).is_err());
    assert_eq!(decode::<f64>(&json("9007199254740992"), &limits()).unwrap(), 9007199254740992.0);
    assert!(decode::<f64>(&json("340282366920938463463374607431768211455"), &limits()).is_err());
    assert_eq!(decode::<f32>(&json("0.1"), &limits()).unwrap(), 0.1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        feed(&bytes);
    }

    #[test]
    fn damaged_values_never_panic(tree in random::tree(), at: usize, to: u8, cut: usize) {
        let Ok(mut bytes) = encode(&tree, &limits()) else { return Ok(()) };
        let at = at % bytes.len();
        bytes[at] = to;
        feed(&bytes);
        bytes.truncate(cut % (bytes.len() + 1));
        feed(&bytes);
    }

    #[test]
    fn what_passes_the_check_is_viewed(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let shown = view::to_json(&bytes, &mut String::new());
        prop_assert_eq!(check(&bytes, &limits()).is_ok(), shown.is_ok());
    }
}
