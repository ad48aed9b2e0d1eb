//! The corpus as a file: each history behind its length, with every number as eight bytes.

use deedbook::checkpointer::StoreIdentity;
use deedbook_journal::record::{Payload, Record, RecordHash, Role};

use super::Recorded;

/// What a file begins with.
const MAGIC: &[u8] = b"deedbook histories 1\n";

/// Histories as a file.
#[must_use]
pub(super) fn to_bytes(all: &[Recorded]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    number(&mut out, all.len());
    for one in all {
        let StoreIdentity { log_id, namespace, secret } = &one.identity;
        out.extend(one.seed.to_le_bytes());
        out.extend([log_id.as_slice(), namespace, secret].concat());
        bytes(&mut out, &serde_json::to_vec(&one.plan).unwrap());
        number(&mut out, one.records.len());
        for record in &one.records {
            bytes(&mut out, &record.header);
            number(&mut out, record.payloads.len());
            for payload in &record.payloads {
                bytes(&mut out, payload.role.as_str().as_bytes());
                out.extend(payload.salt);
                bytes(&mut out, &payload.bytes);
            }
        }
        // The rest follows from it.
        out.extend(one.records.last().map_or([0; 32], |record| record.hash.0));
    }
    out
}

fn number(out: &mut Vec<u8>, number: usize) {
    out.extend(u32::try_from(number).unwrap().to_le_bytes());
}

fn bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    number(out, bytes.len());
    out.extend(bytes);
}

/// Takes a file apart.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        taken
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        self.take(N).try_into().unwrap()
    }

    fn number(&mut self) -> usize {
        u32::from_le_bytes(self.array()) as usize
    }

    fn bytes(&mut self) -> &'a [u8] {
        let length = self.number();
        self.take(length)
    }

    fn record(&mut self, log_id: &[u8; 16], prev: &RecordHash) -> Record {
        let header = self.bytes();
        let count = self.number();
        let payloads = (0..count).map(|_| {
            let role = std::str::from_utf8(self.bytes()).unwrap();
            let role = Role::ALL.into_iter().find(|known| known.as_str() == role).unwrap();
            Payload { role, salt: self.array(), bytes: self.bytes().to_vec().into() }
        });
        let payloads = payloads.collect();
        let hash = RecordHash::of(log_id, prev, header);
        Record { header: header.to_vec().into(), hash, payloads }
    }
}

/// The histories of a file.
#[must_use]
pub(super) fn from_bytes(file: &[u8]) -> Vec<Recorded> {
    let mut reader = Reader(file.strip_prefix(MAGIC).expect("a file of histories"));
    let count = reader.number();
    let all: Vec<_> = (0..count)
        .map(|at| {
            let seed = u64::from_le_bytes(reader.array());
            let (log_id, namespace) = (reader.array(), reader.array());
            let identity = StoreIdentity { log_id, namespace, secret: reader.array() };
            let plan = serde_json::from_slice(reader.bytes()).unwrap();
            let mut prev = RecordHash::ZERO;
            let count = reader.number();
            let records = (0..count).map(|_| {
                let record = reader.record(&identity.log_id, &prev);
                prev = record.hash;
                record
            });
            let records = records.collect();
            assert_eq!(prev.0, reader.array(), "history {at} is not what was recorded");
            Recorded { seed, plan, identity, records }
        })
        .collect();
    assert!(reader.0.is_empty(), "something stands behind the last history");
    all
}

impl Recorded {
    /// Histories as a file.
    #[must_use]
    pub fn to_file(all: &[Self]) -> Vec<u8> {
        to_bytes(all)
    }

    /// The histories of a file.
    ///
    /// # Panics
    /// It is not one, or not as it was written.
    #[must_use]
    pub fn from_file(file: &[u8]) -> Vec<Self> {
        from_bytes(file)
    }
}
