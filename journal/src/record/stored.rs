//! Checking a stored record without reading all of its header.

use super::{Payload, Record, RecordHash, header::Commitment, header::VERSION, read};
use crate::id::{Position, ThreadId};

impl Record {
    /// Checks the hash against the record before, that the header is the one of record `n` of
    /// `thread`, and each payload against its commitment: all that a home has to know before it
    /// gives the record to a reader. Of the header no more is read than that needs.
    ///
    /// # Errors
    /// What does not match, for people. Nothing is decoded before its hash is checked.
    pub fn verify_at(
        &self,
        log_id: &[u8; 16],
        prev: &RecordHash,
        thread: &ThreadId,
        n: Position,
    ) -> Result<(), String> {
        if RecordHash::of(log_id, prev, &self.header) != self.hash {
            return Err("the header does not match its hash".into());
        }
        let (mut version, mut place) = (false, (false, false));
        let (mut checked, mut changed) = (0, None);
        let read = read::members(&self.header, |name, reader| {
            match name {
                "v" => version = reader.integer()? == VERSION,
                "th" => place.0 = *reader.string()? == *thread.as_str(),
                "n" => place.1 = reader.integer()? == n,
                "pay" => reader.object(|role, r| {
                    let committed = read::commitment(role, r)?;
                    for payload in self.payloads.iter().filter(|p| p.role == committed.role) {
                        checked += 1;
                        if !committed.is_to(payload) {
                            changed = Some(payload.role);
                        }
                    }
                    Ok(())
                })?,
                _ => reader.skip()?,
            }
            Ok(())
        });
        read.map_err(|e| e.to_string())?;
        if !version {
            return Err("its header is of no version that this build reads".into());
        }
        if place != (true, true) {
            return Err("it is the record of another place".into());
        }
        if let Some(role) = changed {
            let role = role.as_str();
            return Err(format!("payload {role} does not match its commitment"));
        }
        if checked != self.payloads.len() {
            return Err("a payload is not committed to".into());
        }
        Ok(())
    }
}

impl Commitment {
    /// Whether this is the payload that was committed to.
    #[must_use]
    pub fn is_to(&self, payload: &Payload) -> bool {
        self.role == payload.role
            && self.length == payload.bytes.len() as u64
            && self.hash == payload.commitment()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        id::{Epoch, StoreTime},
        record::{Header, Kind, Role},
    };

    const LOG: [u8; 16] = [7; 16];
    const PREV: RecordHash = RecordHash([1; 32]);

    fn record() -> (ThreadId, Record) {
        let thread = ThreadId::new("order/\"4821\"").unwrap();
        let kind = Kind::StepDone;
        let header = Header::new(thread.clone(), 3, Epoch(1), kind, StoreTime(5), 0);
        let payload = |role, byte| Payload { role, salt: [byte; 32], bytes: vec![byte; 9].into() };
        let payloads = vec![payload(Role::Result, 1), payload(Role::Note, 2)];
        let (_, written) = Record::seal(&LOG, &PREV, header, payloads);
        (thread, written.into_record())
    }

    #[test]
    fn a_record_is_good_in_its_place_only() {
        let (thread, record) = record();
        let other = ThreadId::new("order-4822").unwrap();
        assert_eq!(record.verify_at(&LOG, &PREV, &thread, 3), Ok(()));
        assert!(record.verify_at(&LOG, &PREV, &thread, 4).is_err());
        assert!(record.verify_at(&LOG, &PREV, &other, 3).is_err());
        assert!(record.verify_at(&[8; 16], &PREV, &thread, 3).is_err());
        let zero = RecordHash::ZERO;
        assert!(record.verify_at(&LOG, &zero, &thread, 3).is_err());
    }

    #[test]
    fn a_changed_payload_is_found_and_an_erased_one_is_not_missed() {
        let (thread, record) = record();
        let bad = |change: fn(&mut Vec<Payload>)| {
            let mut changed = record.clone();
            change(&mut changed.payloads);
            let slow = changed.verify(&LOG, &PREV).is_err();
            let fast = changed.verify_at(&LOG, &PREV, &thread, 3).is_err();
            assert_eq!(slow, fast, "{changed:?}");
            fast
        };
        assert!(!bad(|p| drop(p.pop())));
        assert!(!bad(Vec::clear));
        assert!(bad(|p| p[0].salt[3] ^= 1));
        assert!(bad(|p| p[1].bytes = vec![2; 8].into()));
        assert!(bad(|p| p[0].role = Role::Error));
        assert!(bad(|p| p[0].role = p[1].role));
    }
}
