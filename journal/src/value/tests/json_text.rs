//! JSON text typed by people.

use super::*;
use crate::value::ValueErrorKind::{self, DuplicateKey, Json, TooDeep};

#[track_caller]
fn refused(text: &str, kind: ValueErrorKind, path: &str, part: &str) {
    let error = view::from_json(text, &limits()).unwrap_err();
    assert_eq!((error.kind(), error.path().as_str()), (kind, path), "{text}: {error}");
    assert!(error.message().contains(part), "{text}: {error}");
}

#[test]
fn s06_numbers_out_of_range_are_refused() {
    refused(r#"{"amount":1e400}"#, Json, "/amount", "beyond the range");
    refused(r#"{"amount":-1e400}"#, Json, "/amount", "beyond the range");
    refused(r#"{"amount":1e-400}"#, Json, "/amount", "would become 0");
    refused(r#"{"amount":-0.001e-400}"#, Json, "/amount", "would become 0");
    assert_eq!(json("0e-400"), json("0.0"));
    refused("[340282366920938463463374607431768211456]", Json, "/0", "2^128 - 1");
    refused("-170141183460469231731687303715884105729", Json, "", "-2^127");
    assert_eq!(view(&json("-9007199254740992")), r#"{"$int":"-9007199254740992"}"#);
}

#[test]
fn s09_repeated_members_are_refused() {
    refused(r#"{"amount":1,"amount":1000}"#, DuplicateKey, "/amount", "twice");
    refused(r#"{"amount":1,"\u0061mount":1000}"#, DuplicateKey, "/amount", "twice");
    refused(r#"[{"x":{"a":1,"b":2,"a":3}}]"#, DuplicateKey, "/0/x/a", "twice");
    refused(r#"{"$map":[[1,"a"],[1,"b"]]}"#, DuplicateKey, "/1", "twice");
}

#[test]
fn s13_lone_surrogates_are_refused_and_pairs_are_characters() {
    assert_eq!(json(r#"{"s":"\ud83c\udf78"}"#), json(r#"{"s":"🍸"}"#));
    for lone in [r"\ud800", r"\udc00", r"\ud83cx", r"\ud83c\n", r"\ud83c\ud83c", r"\ud83c\u0041"] {
        refused(&format!(r#"{{"s":"{lone}"}}"#), Json, "/s", "surrogate");
    }
}

#[test]
fn s14_nul_and_controls_pass_as_escapes_only() {
    assert_eq!(json(r#""\u0000""#), [0xa1, 0]);
    assert_eq!(json(r#""\\u0000""#), b"\xa6\\u0000");
    assert_eq!(json(r#""\b\f\n\r\t\/\"\\""#), b"\xa8\x08\x0c\n\r\t/\"\\");
    for c in (0..0x20).map(char::from) {
        refused(&format!("\"a{c}\""), Json, "", "control character");
    }
}

#[test]
fn only_json_is_taken() {
    for bad in [
        "",
        " ",
        "nul",
        "True",
        "01",
        "1.",
        ".5",
        "+1",
        "1e",
        "1e+",
        "--1",
        "0x1",
        "NaN",
        "Infinity",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{\"a\"}",
        "{\"a\":}",
        "{a:1}",
        "{\"a\":1,}",
        "'a'",
        "\"a",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u+123\"",
        "[1",
        "{\"a\":1",
        "1 2",
        "\u{feff}1",
        "1//x",
        "[1]]",
        "\u{a0}1",
        "-",
        "1e5.5",
        "1-1",
    ] {
        let error = view::from_json(bad, &limits()).unwrap_err();
        assert_eq!(error.kind(), Json, "{bad}: {error}");
    }
    assert_eq!(
        json(" \t\r\n[ 1 , { \"a\" : [ ] , \"b\" : { } } ] "),
        json(r#"[1,{"a":[],"b":{}}]"#)
    );
}

#[test]
fn the_forms_of_the_view_are_read_and_others_refused() {
    assert_eq!(json(r#"{"$int":"18446744073709551615"}"#), json("18446744073709551615"));
    assert_eq!(json(r#" { "$bytes" : "AAH/" } "#), [0xc4, 3, 0, 1, 255]);
    assert_eq!(json(r#"{"$ext":[-1,"AAAAAA=="]}"#), [0xd6, 0xff, 0, 0, 0, 0]);
    assert_eq!(
        json(r#"{"$f64":"7ff8000000000001","$is":"NaN"}"#),
        json(r#"{"$f64":"7ff8000000000001"}"#)
    );
    assert_eq!(json(r#"{"$map":[[1,"a"],["1","b"]]}"#), b"\x82\x01\xa1a\xa11\xa1b");
    assert_eq!(json(r#"{"$map":[]}"#), [0x80]);
    for bad in [
        r#"{"$int":"1.0"}"#,
        r#"{"$int":"01"}"#,
        r#"{"$int":1}"#,
        r#"{"$int":"1","a":1}"#,
        r#"{"$f64":"7FF8000000000000"}"#,
        r#"{"$f64":"0"}"#,
        r#"{"$f64":"7ff8000000000000","x":""}"#,
        r#"{"$bytes":"AAH"}"#,
        r#"{"$bytes":"/2E=","$invalid_utf8":true}"#,
        r#"{"$ext":[128,""]}"#,
        r#"{"$ext":[-07,"aQVbaA=="]}"#,
        r#"{"$ext":[007,""]}"#,
        r#"{"$ext":[1]}"#,
        r#"{"$map":[[1]]}"#,
        r#"{"$map":[[1,2,3]]}"#,
        r#"{"$map":{}}"#,
        r#"{"$ref":"x"}"#,
        r#"{"a":1,"$int":"1"}"#,
        r#"{"\u0024int":"x"}"#,
    ] {
        let error = view::from_json(bad, &limits()).unwrap_err();
        assert_eq!(error.kind(), Json, "{bad}: {error}");
    }
}

#[test]
fn s65_deep_text_is_refused_without_overflowing_the_stack() {
    for (open, close) in
        [("[", "]"), (r#"{"a":"#, "}"), (r#"{"$map":[[1,"#, "]]}"), (r#"{"$map":[["#, ",1]]}")]
    {
        for depth in [65, 100_000] {
            let text = open.repeat(depth) + "1" + &close.repeat(depth);
            let error = view::from_json(&text, &limits()).unwrap_err();
            assert_eq!(error.kind(), TooDeep, "{open}");
        }
        let text = open.repeat(64) + "1" + &close.repeat(64);
        assert_eq!(json(&view(&json(&text))), json(&text));
    }
}
