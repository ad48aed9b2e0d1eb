use super::*;
use crate::{
    id::{Branch, Epoch, IdentityKind, MessageId, Name, StoreTime, ThreadId},
    policy::Policy,
};

const LOG_ID: [u8; 16] = [7; 16];

fn header(n: u64) -> Header {
    let thread = ThreadId::new("order\n\"4821\"\\ \u{1}é🙂").unwrap();
    let mut header =
        Header::new(thread, n, Epoch(3), Kind::StepIntent, StoreTime(1_795_953_600_000_000_001), 0);
    header.place = Some(Place {
        episode: 2,
        branch: Branch::new(vec![Name::new("left").unwrap(), Name::new("a/b").unwrap()]).unwrap(),
        name: Name::new("pay").unwrap(),
        kind: IdentityKind::Key,
        occurrence: 0,
        business_key: Some("refund:ORD-4821:v1".into()),
    });
    header.attempt = Some(1);
    header.key = Some("dk1_00".into());
    header.policy = Some(Policy::Idempotent);
    header.timeout_ms = Some(5000);
    header.window_ms = Some(86_400_000);
    header.message = Some(MessageId([0xab; 16]));
    header.abandon = true;
    header.allowed_by = Some(3);
    header.rule = Some("refunds/limit@3".into());
    header.role = Some(Role::Args);
    header.link = Some(Box::new(Link {
        thread: Some(ThreadId::any("deedbook:x").unwrap()),
        n: Some(0),
        hash: Some(RecordHash([0xcd; 32])),
    }));
    header.carry = vec![0, 7, (1 << 53) - 1];
    header.log = Some(Box::new(LogState { size: 9, root: [1; 32], heads: Some([2; 32]) }));
    header
}

fn payload(role: Role, bytes: &[u8]) -> Payload {
    Payload { role, salt: [9; 32], bytes: bytes.into() }
}

#[test]
fn headers_round_trip() {
    let header = header(4);
    let bytes = header.to_bytes();
    assert_eq!(Header::parse(&bytes).unwrap(), header);
    gist::tests::agrees(&bytes);
}

#[test]
fn headers_are_rfc_8785() {
    let bytes = header(4).to_bytes();
    let value: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    // serde_json's map is sorted by name, and its output equals RFC 8785 on these values.
    assert_eq!(serde_json::to_string(&value).unwrap().as_bytes(), bytes);
}

#[test]
fn unknown_members_and_kinds_are_kept_in_the_hash_and_passed_over() {
    let bytes = String::from_utf8(header(4).to_bytes()).unwrap();
    let newer = bytes.replacen("\"k\":\"step.intent\"", "\"k\":\"step.new\"", 1);
    let newer = newer.replacen("{\"abandon\"", "{\"aa\":[{\"x\":null},-5,true],\"abandon\"", 1);
    let parsed = Header::parse(newer.as_bytes()).unwrap();
    assert_eq!(parsed.kind, Kind::Unknown("step.new".into()));
    gist::tests::agrees(newer.as_bytes());
    let version = bytes.replacen("\"v\":1", "\"v\":2", 1);
    let error = Header::parse(version.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("format version 2"), "{error}");
}

#[test]
fn any_change_to_a_record_is_seen() {
    let payloads = vec![payload(Role::Result, b"\x01"), payload(Role::Args, b"\x81\xa1a\x01")];
    let (_, written) = Record::seal(&LOG_ID, &RecordHash([1; 32]), header(1), payloads);
    let record = written.into_record();
    record.verify(&LOG_ID, &RecordHash([1; 32])).unwrap();
    assert!(record.verify(&LOG_ID, &RecordHash::ZERO).is_err());
    assert!(record.verify(&[8; 16], &RecordHash([1; 32])).is_err());
    for at in 0..record.header.len() {
        let mut changed = record.clone();
        let mut bytes = changed.header.to_vec();
        bytes[at] ^= 1;
        changed.header = bytes.into();
        assert!(changed.verify(&LOG_ID, &RecordHash([1; 32])).is_err(), "byte {at}");
    }
    for at in 0..record.payloads.len() {
        let mut changed = record.clone();
        changed.payloads[at].salt[5] ^= 1;
        assert!(changed.verify(&LOG_ID, &RecordHash([1; 32])).is_err());
        let mut changed = record.clone();
        changed.payloads[at].bytes = b"\x02"[..].into();
        assert!(changed.verify(&LOG_ID, &RecordHash([1; 32])).is_err());
    }
    let mut moved = record.clone();
    moved.payloads[0].role = Role::Note;
    assert!(moved.verify(&LOG_ID, &RecordHash([1; 32])).is_err());
}

#[test]
fn erasing_a_payload_keeps_the_record_valid() {
    let payloads = vec![payload(Role::Args, b"\x01")];
    let mut record = Record::seal(&LOG_ID, &RecordHash::ZERO, header(1), payloads).1.into_record();
    record.payloads.clear();
    let header = record.verify(&LOG_ID, &RecordHash::ZERO).unwrap();
    assert_eq!(header.payloads.len(), 1);
}

#[test]
fn hostile_headers_are_errors() {
    let deep = format!("{{\"x\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let good = header(4).to_bytes();
    for at in 0..good.len() {
        assert!(Header::parse(&good[..at]).is_err());
    }
    for bad in
        [&b"{}"[..], b"", b"[]", b"{\"v\":1}", b"{\"n\":99999999999999999999}", deep.as_bytes()]
    {
        assert!(Header::parse(bad).is_err());
    }
}

#[test]
fn words_name_kinds_and_roles_one_to_one() {
    for kind in Kind::ALL {
        assert_eq!(Kind::from_word(kind.as_str()), *kind);
    }
    for role in Role::ALL {
        assert_eq!(Role::from_word(role.as_str()), Some(role));
    }
}

#[test]
fn only_the_one_form_is_read() {
    let good = String::from_utf8(header(4).to_bytes()).unwrap();
    Header::parse(good.as_bytes()).unwrap();
    for (from, to) in [
        ("\\u0001", "\\u0061"),
        ("\\u0001", "\\u000A"),
        ("\\u0001", "\\u000a"),
        ("\\u0001", "\\u+001"),
        ("\\u0001", "\\/"),
        ("\"n\":4", "\"n\":04"),
        ("\"n\":4", "\"n\":4,\"n\":4"),
        ("\"n\":4", "\"n\": 4"),
        ("\"n\":4", "\"n\":4.0"),
        ("\"n\":4", "\"n\":9007199254740992"),
        ("\"abandon\":true", "\"aa\":-0,\"abandon\":true"),
        ("\"abandon\":true", "\"ab\":1,\"abandon\":true,\"aa\":1"),
        ("\"size\":9,", ""),
        ("12:00:00.0", "12:60:00.0"),
        ("12:00:00.0", "24:00:00.0"),
    ] {
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good, "{from}");
        assert!(Header::parse(bad.as_bytes()).is_err(), "{to}");
    }
}

#[test]
fn the_largest_header_fits_its_limit() {
    let longest = Name::new("\u{1}".repeat(512)).unwrap();
    let mut header = header(4);
    header.thread = ThreadId::new("\u{1}".repeat(512)).unwrap();
    header.place = Some(Place {
        episode: u32::MAX,
        branch: Branch::new(vec![longest.clone(); 64]).unwrap(),
        name: longest,
        kind: IdentityKind::Key,
        occurrence: u32::MAX,
        business_key: Some("\u{1}".repeat(1024).into()),
    });
    let bytes = header.to_bytes();
    assert_eq!(Header::parse(&bytes).unwrap(), header);
    gist::tests::agrees(&bytes);
    assert!(bytes.len() > 200 * 1024);
}

#[test]
fn numbers_beyond_json_are_cut_to_for_ever() {
    let mut header = header(4);
    header.timeout_ms = Some(u64::MAX);
    for n in [0, 9, 10, 99, 100, (1 << 53) - 1] {
        header.n = n;
        let read = Header::parse(&header.to_bytes()).unwrap();
        assert_eq!((read.n, read.timeout_ms), (n, Some((1 << 53) - 1)));
    }
}
