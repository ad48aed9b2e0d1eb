//! A line of an export: the record exactly, and a reading of its values.
//!
//! `bin` (the stored MessagePack) is the evidence; `view` is a reading that anybody can derive
//! from it again, and that `verify --export` does derive again.

use std::{collections::BTreeMap, fmt};

use deedbook_journal::{
    hex,
    id::LogIndex,
    record::{Header, Payload, Record, RecordHash, Role},
    value::{text, view},
};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, MapAccess, SeqAccess, Visitor},
    ser::SerializeMap,
};
use serde_json::{Value, value::RawValue};

/// The version of the export's format.
pub(crate) const VERSION: u32 = 1;

/// The first line. Like every line, it holds nothing that is not checked: a member that this
/// version does not know is refused.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Opening {
    pub(crate) export: Scope,
}

/// The version in a first line that this build may not know more of.
#[derive(Debug, Deserialize)]
pub(crate) struct Versioned {
    pub(crate) export: Version,
}

/// See [`Versioned`].
#[derive(Debug, Deserialize)]
pub(crate) struct Version {
    pub(crate) v: u32,
}

/// What an export covers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scope {
    pub(crate) v: u32,
    pub(crate) log_id: String,
    /// One thread, or all of them.
    pub(crate) thread: Option<String>,
    /// The journal's time when it was begun.
    pub(crate) time: String,
    pub(crate) tool: String,
}

/// The last line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Closing {
    pub(crate) end: Totals,
}

/// What an export holds.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Totals {
    pub(crate) records: u64,
    pub(crate) threads: u64,
    pub(crate) payloads: u64,
    /// Payloads that were erased: their commitments stay.
    pub(crate) erased: u64,
    pub(crate) kinds: BTreeMap<String, u64>,
}

impl Totals {
    /// Counts a record; `first` if it is the first of its thread.
    pub(crate) fn add(&mut self, header: &Header, record: &Record) {
        self.records += 1;
        self.threads += u64::from(header.n == 0);
        self.payloads += record.payloads.len() as u64;
        self.erased += header.payloads.len().saturating_sub(record.payloads.len()) as u64;
        *self.kinds.entry(header.kind.as_str().to_owned()).or_default() += 1;
    }
}

/// Writes the line of a record that follows `prev`; where the whole log is written, `leaf` is its
/// place there.
pub(crate) fn write(
    header: &Header,
    record: &Record,
    prev: RecordHash,
    leaf: Option<LogIndex>,
    out: &mut String,
) -> Result<(), String> {
    let rec = std::str::from_utf8(&record.header).map_err(|e| e.to_string())?;
    out.push_str("{\"rec\":");
    out.push_str(&crate::out::safe_json(rec));
    out.push_str(&format!(",\"hash\":\"{}\"", record.hash));
    if header.n > 0 {
        out.push_str(&format!(",\"prev\":\"{prev}\""));
    }
    if let Some(leaf) = leaf {
        out.push_str(&format!(",\"leaf\":{leaf}"));
    }
    out.push_str(",\"pay\":{");
    for (number, commitment) in header.payloads.iter().enumerate() {
        let comma = if number > 0 { "," } else { "" };
        out.push_str(&format!("{comma}\"{}\":", commitment.role.as_str()));
        let Some(payload) = record.payload(commitment.role) else {
            out.push_str("null");
            continue;
        };
        out.push_str(&format!("{{\"salt\":\"{}\",\"bin\":\"", hex::encode(&payload.salt)));
        text::write_base64(out, &payload.bytes).map_err(|e| e.to_string())?;
        out.push_str("\",\"view\":");
        view::to_json(&payload.bytes, out).map_err(|e| e.to_string())?;
        out.push('}');
    }
    out.push_str("}}\n");
    Ok(())
}

/// A line as read.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Line {
    rec: Strict,
    hash: String,
    prev: Option<String>,
    pub(crate) leaf: Option<LogIndex>,
    pay: Unique<Option<Value3>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Value3 {
    salt: String,
    bin: String,
    view: Box<RawValue>,
}

impl Line {
    /// The record of this line, with its hash as written, and the hash that it says it follows.
    /// What the views show is compared with the bytes here; hashes are for the caller to check.
    pub(crate) fn record(&self) -> Result<(Record, Option<RecordHash>), String> {
        let header = serde_json::to_vec(&self.rec.0).map_err(|e| e.to_string())?;
        let hash = |text: &str| hex::decode(text).map(RecordHash);
        let prev = self.prev.as_deref().map(|p| hash(p).ok_or("`prev` is not a hash"));
        let mut payloads = Vec::new();
        for (role, payload) in &self.pay.0 {
            let Some(payload) = payload else { continue };
            let role =
                Role::from_word(role).ok_or_else(|| format!("role {role:?} is not known"))?;
            payloads.push(payload.read(role)?);
        }
        let record = Record {
            header: header.into(),
            hash: hash(&self.hash).ok_or("`hash` is not a hash")?,
            payloads,
        };
        Ok((record, prev.transpose()?))
    }
}

impl Value3 {
    fn read(&self, role: Role) -> Result<Payload, String> {
        let word = role.as_str();
        let bytes = text::read_base64(&self.bin);
        let bytes = bytes.ok_or_else(|| format!("`bin` of {word} is not base64"))?;
        let mut reading = String::new();
        view::to_json(&bytes, &mut reading)
            .map_err(|e| format!("payload {word} cannot be read: {e}"))?;
        if !same(&reading, self.view.get()) {
            return Err(format!("the view of payload {word} shows something else than its bytes"));
        }
        Ok(Payload {
            role,
            salt: hex::decode(&self.salt).ok_or_else(|| format!("`salt` of {word} is not hex"))?,
            bytes: bytes.into(),
        })
    }
}

/// Whether two readings are the same value: the same text as a rule, else compared member by
/// member.
fn same(derived: &str, written: &str) -> bool {
    if derived == written {
        return true;
    }
    let read = |json| serde_json::from_str::<Strict>(json).ok();
    matches!((read(derived), read(written)), (Some(a), Some(b)) if a.0 == b.0)
}

/// A JSON value in which no member occurs twice.
#[derive(Debug, PartialEq)]
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Value;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON value")
            }
            fn visit_unit<E>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }
            fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
                Ok(value.into())
            }
            fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
                Ok(value.into())
            }
            fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
                Ok(value.into())
            }
            fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
                Ok(value.into())
            }
            fn visit_str<E>(self, value: &str) -> Result<Value, E> {
                Ok(value.into())
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
                let mut array = Vec::new();
                while let Some(Strict(item)) = items.next_element()? {
                    array.push(item);
                }
                Ok(array.into())
            }
            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Value, A::Error> {
                let members = unique::<Strict, A>(members)?;
                let members = members.into_iter().map(|(name, value)| (name, value.0));
                Ok(Value::Object(members.collect()))
            }
        }
        deserializer.deserialize_any(Any).map(Self)
    }
}

/// An object in which no member occurs twice.
#[derive(Debug)]
struct Unique<T>(BTreeMap<String, T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Unique<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
            type Value = BTreeMap<String, T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Self::Value, A::Error> {
                unique(members)
            }
        }
        deserializer.deserialize_map(Members(std::marker::PhantomData)).map(Self)
    }
}

fn unique<'de, T: Deserialize<'de>, A: MapAccess<'de>>(
    mut members: A,
) -> Result<BTreeMap<String, T>, A::Error> {
    let mut all = BTreeMap::new();
    while let Some((name, value)) = members.next_entry::<String, T>()? {
        if all.contains_key(&name) {
            return Err(de::Error::custom(format_args!("member {name:?} occurs twice")));
        }
        all.insert(name, value);
    }
    Ok(all)
}

/// Payload views by role, as JSON: for `show --json`.
#[derive(Debug)]
pub(crate) struct Views<'a>(pub(crate) &'a Header, pub(crate) &'a Record);

impl Serialize for Views<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.payloads.len()))?;
        for commitment in &self.0.payloads {
            let view = self.1.payload(commitment.role).and_then(|payload| {
                let mut reading = String::new();
                view::to_json(&payload.bytes, &mut reading).ok()?;
                RawValue::from_string(reading).ok()
            });
            map.serialize_entry(commitment.role.as_str(), &view)?;
        }
        map.end()
    }
}
