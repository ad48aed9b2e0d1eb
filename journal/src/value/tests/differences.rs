//! What differs, as a person reads it.

use super::*;

fn shown(recorded: &str, now: &str, redact: &[&str]) -> Vec<String> {
    let redact: Vec<String> = redact.iter().map(ToString::to_string).collect();
    let found = diff(&json(recorded), &json(now), &redact);
    found.iter().map(ToString::to_string).collect()
}

#[test]
fn fields_are_named_by_pointer() {
    assert_eq!(
        shown(
            r#"{"amount":4200,"to":["x","y"],"opt":{"b":1,"a/b":2},"gone":null}"#,
            r#"{"new":"z","opt":{"a/b":3,"b":1.0},"to":["x"],"amount":4300}"#,
            &[],
        ),
        [
            "/amount recorded 4200, now 4300",
            "/to/1 recorded \"y\", now missing",
            "/opt/a~1b recorded 2, now 3",
            "/gone recorded null, now missing",
            "/new not recorded, now \"z\"",
        ]
    );
    assert_eq!(shown("1", "\"1\"", &[]), ["recorded 1, now \"1\""]);
    assert_eq!(shown("[1]", "{\"0\":1}", &[]), ["recorded [1], now {\"0\":1}"]);
    assert_eq!(shown(r#"{"a":1,"b":2}"#, r#"{"b":2.0,"a":1}"#, &[]), [""; 0]);
    assert_eq!(
        shown(r#"{"$map":[[1,"a"],["1","b"]]}"#, r#"{"$map":[["1","b"],[1,"c"]]}"#, &[]),
        ["/1 recorded \"a\", now \"c\""]
    );
}

#[test]
fn redacted_paths_show_nothing_of_their_values() {
    let a = r#"{"card":{"no":"1111","cvc":1},"cards":1,"x":[{"pin":1},{"pin":2}]}"#;
    let b = r#"{"card":{"no":"2222","cvc":1},"cards":2,"x":[{"pin":3},{"pin":4,"k":5}]}"#;
    assert_eq!(
        shown(a, b, &["/card", "x/*/pin"]),
        [
            "/card/no recorded [redacted], now [redacted]",
            "/cards recorded 1, now 2",
            "/x/0/pin recorded [redacted], now [redacted]",
            "/x/1/pin recorded [redacted], now [redacted]",
            "/x/1/k not recorded, now 5",
        ]
    );
    // A container that holds a redacted field is not shown either, whichever side has it.
    assert_eq!(
        shown(r#"{"card":{"no":"1111"}}"#, r#"{"card":7}"#, &["/card/no"]),
        ["/card recorded [redacted], now 7"]
    );
    assert_eq!(shown(a, "null", &["/card/no"]), ["recorded [redacted], now null"]);
    assert_eq!(shown("1", "2", &[""]), ["recorded [redacted], now [redacted]"]);
    assert_eq!(
        shown(r#"{"a~/b":1,"c":1}"#, r#"{"a~/b":2,"c":2}"#, &["/a~0~1b"]),
        ["/a~0~1b recorded [redacted], now [redacted]", "/c recorded 1, now 2"]
    );
}

#[test]
fn what_is_shown_is_bounded_and_safe_to_print() {
    let long = format!(r#"["{}"]"#, "é".repeat(1000));
    let found = shown(&long, "[1]", &[]);
    assert_eq!(found, [format!("/0 recorded \"{}…, now 1", "é".repeat(SHOWN_CHARS_MAX - 1))]);
    let found = shown(r#"{"\u001b[2J":"\u001b]0;x\u0007"}"#, r#"{"\u001b[2J":"\u202e"}"#, &[]);
    assert_eq!(found, [r#"/\u001b[2J recorded "\u001b]0;x\u0007", now "\u202e""#]);
    let many = |n: u32| {
        format!("[{}]", (0..100).map(|i| (i * n).to_string()).collect::<Vec<_>>().join(","))
    };
    let found = shown(&many(1), &many(2), &[]);
    assert_eq!(found.len(), DIFFERENCES_MAX + 1);
    assert_eq!(found[DIFFERENCES_MAX], "and 67 more differences");
}

#[test]
fn malformed_bytes_differ_as_a_whole() {
    let found = diff(&[0x92, 1], &[0x91, 1], &[]);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].to_string(), "recorded (not MessagePack), now [1]");
}

#[test]
fn not_a_number_equals_itself() {
    let nan = encode(&[f64::NAN, 1.0], &limits()).unwrap();
    let other = encode(&(f64::NAN, 1), &limits()).unwrap();
    assert_eq!(diff(&nan, &other, &[]), []);
    assert_eq!(diff(&nan, &encode(&(-f64::NAN, 1), &limits()).unwrap(), &[]).len(), 1);
}
