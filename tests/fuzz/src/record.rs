//! Records against their hashes and commitments.

use deedbook_journal::record::{Header, Payload, Record, RecordHash, Role};

use crate::{Broken, Target, fixture, header, input::Input};

pub(crate) const TARGET: Target = Target {
    name: "record",
    promise: "what is verified in full is good in its place and in no other",
    run,
    seeds,
    words: header::WORDS,
    bytes_max: 2048,
};

const LOG: [u8; 16] = [7; 16];
const PREV: RecordHash = RecordHash([1; 32]);

/// A byte: how many payloads; for each its role, its salt and its length; their bytes; the header.
fn run(input: &[u8]) -> Result<(), Broken> {
    let mut input = Input(input);
    let count = input.byte() % 4;
    let mut payloads = Vec::new();
    for _ in 0..count {
        let role = Role::ALL[usize::from(input.byte()) % Role::ALL.len()];
        let salt = [input.byte(); 32];
        let length = input.byte().into();
        payloads.push(Payload { role, salt, bytes: input.take(length).to_vec().into() });
    }
    forged(input.0, &payloads)?;
    let Ok(header) = Header::parse(input.0) else {
        return Ok(());
    };
    // The same, sealed as a writer does it.
    let mut roles: Vec<_> = payloads.iter().map(|p| p.role).collect();
    roles.sort_unstable_by_key(|role| role.as_str());
    roles.dedup();
    if roles.len() < payloads.len() {
        return Ok(());
    }
    let (header, record) = Record::seal(&LOG, &PREV, header, payloads);
    let read = record.verify(&LOG, &PREV)?;
    if read != header {
        return Err(format!("{read:?} is not what was sealed: {header:?}"));
    }
    record.verify_at(&LOG, &PREV, &header.thread, header.n)?;
    for (wrong, log, prev, n) in [
        ("log", [8; 16], PREV, header.n),
        ("record before", LOG, RecordHash::ZERO, header.n),
        ("position", LOG, PREV, header.n.wrapping_add(1)),
    ] {
        if record.verify_at(&log, &prev, &header.thread, n).is_ok() {
            return Err(format!("it is good with another {wrong}"));
        }
    }
    Ok(())
}

/// Any header with any payloads, under a hash that fits.
fn forged(header: &[u8], payloads: &[Payload]) -> Result<(), Broken> {
    let hash = RecordHash::of(&LOG, &PREV, header);
    let record = Record { header: header.to_vec().into(), hash, payloads: payloads.to_vec() };
    if let Ok(header) = record.verify(&LOG, &PREV) {
        record.verify_at(&LOG, &PREV, &header.thread, header.n)?;
    }
    Ok(())
}

fn seeds() -> Vec<Vec<u8>> {
    let headers = fixture::headers().into_iter();
    headers
        .map(|header| [b"\x02\x01\x05\x03\xa1\x61\x01\x04\x06\x00".as_slice(), &header].concat())
        .collect()
}
