//! The schema of a tool's arguments: what a model may send, and what it is taken for.
//!
//! Arguments are brought into one form *before* hooks see them and keys are made of them, so that
//! two ways to say one thing are one call. The rules:
//!
//! - a text that holds a number is a number where the schema says number or integer, and `"true"`
//!   and `"false"` are booleans where it says boolean; nothing else is taken for something else;
//! - a whole number may be written with a point (`120.0`), and is an integer;
//! - a member that is missing and has a `default` is filled in;
//! - a `null` for a member that is not required is as if it were not there;
//! - a `null` under a name that the schema does not know is dropped; any other member that it does
//!   not know is refused;
//! - what a member must be (`enum`, `const`, limits of numbers and lengths) is checked; keywords
//!   that are not known here are left to the tool.

use serde_json::{Map, Value};

use crate::json::{canonical, plain, read};

/// How deep a schema may refer to itself for one value.
const DEPTH_MAX: usize = 64;

/// A JSON schema of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Schema {
    root: Value,
}

impl Schema {
    /// The schema of a type.
    #[must_use]
    pub fn of<T: schemars::JsonSchema>() -> Self {
        Self::new(schemars::schema_for!(T).to_value())
    }

    /// A schema as JSON. One that describes no object takes an object without members.
    #[must_use]
    pub fn new(root: Value) -> Self {
        let object = root.get("type").is_some_and(|kind| kind == "object");
        let described = root.get("properties").is_some() || root.get("$ref").is_some();
        if object || described {
            return Self { root };
        }
        Self { root: serde_json::json!({"type": "object", "properties": {}}) }
    }

    /// As it is sent to a model.
    #[must_use]
    pub fn as_json(&self) -> &Value {
        &self.root
    }

    /// The names of the members at the top.
    #[must_use]
    pub fn members(&self) -> Vec<&str> {
        let properties = self.resolve(&self.root).get("properties").and_then(Value::as_object);
        properties.map(|all| all.keys().map(String::as_str).collect()).unwrap_or_default()
    }

    /// The arguments in their one form.
    ///
    /// # Errors
    /// In words for the model: where, and what is expected there.
    pub fn take(&self, arguments: Value) -> Result<Value, String> {
        self.value(&self.root, arguments, "", 0)
    }

    fn resolve<'a>(&'a self, schema: &'a Value) -> &'a Value {
        let mut at = schema;
        for _ in 0..DEPTH_MAX {
            let Some(path) = at.get("$ref").and_then(Value::as_str) else {
                return at;
            };
            let Some(found) = path.strip_prefix('#').and_then(|path| self.root.pointer(path))
            else {
                return at;
            };
            at = found;
        }
        at
    }

    fn value(&self, schema: &Value, value: Value, at: &str, depth: usize) -> Result<Value, String> {
        if depth > DEPTH_MAX {
            return Err(format!("{}: too deep", place(at)));
        }
        let schema = self.resolve(schema);
        if schema == &Value::Bool(false) {
            return Err(format!("{}: nothing is taken here", place(at)));
        }
        let value = match choices(schema) {
            Some(choices) => self.one_of(choices, value, at, depth)?,
            None => value,
        };
        let value = self.typed(schema, value, at, depth)?;
        check(schema, &value, at)?;
        Ok(value)
    }

    /// The first choice that takes the value as it is, or else the first that can take it.
    fn one_of(
        &self,
        choices: &[Value],
        value: Value,
        at: &str,
        depth: usize,
    ) -> Result<Value, String> {
        let mut taken = None;
        let mut why = Vec::new();
        for choice in choices {
            match self.value(choice, value.clone(), at, depth + 1) {
                Ok(found) if canonical(&found) == canonical(&value) => return Ok(found),
                Ok(found) => taken = taken.or(Some(found)),
                Err(error) => why.push(error),
            }
        }
        taken.ok_or_else(|| why.join("; or "))
    }

    fn typed(&self, schema: &Value, value: Value, at: &str, depth: usize) -> Result<Value, String> {
        let kinds: Vec<&str> = match schema.get("type") {
            Some(Value::String(kind)) => vec![kind],
            Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
            _ if schema.get("properties").is_some() => vec!["object"],
            _ => return Ok(value),
        };
        if kinds.contains(&kind(&value)) || is_whole(&value) && kinds.contains(&"integer") {
            return match value {
                Value::Object(members) => self.object(schema, members, at, depth),
                Value::Array(items) => self.array(schema, items, at, depth),
                Value::Number(number) => Ok(Value::Number(plain(&number))),
                other => Ok(other),
            };
        }
        taken_for(&kinds, &value).ok_or_else(|| {
            format!("{}: expected {}, got {}", place(at), kinds.join(" or "), kind(&value))
        })
    }

    fn object(
        &self,
        schema: &Value,
        mut given: Map<String, Value>,
        at: &str,
        depth: usize,
    ) -> Result<Value, String> {
        let none = Map::new();
        let known = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
        let required: Vec<&str> = schema
            .get("required")
            .and_then(Value::as_array)
            .map(|names| names.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        let mut taken = Map::new();
        for (name, member) in known {
            let path = format!("{at}/{name}");
            let is_required = required.contains(&name.as_str());
            let found = given.remove(name).filter(|value| is_required || !value.is_null());
            let default = || self.resolve(member).get("default").or(member.get("default"));
            let found = found.or_else(|| default().filter(|value| !value.is_null()).cloned());
            match found {
                Some(value) => {
                    taken.insert(name.clone(), self.value(member, value, &path, depth + 1)?);
                }
                None if is_required => return Err(format!("{path}: missing")),
                None => {}
            }
        }
        self.others(schema, known, given, at, depth, &mut taken)?;
        Ok(Value::Object(taken))
    }

    /// Members that the schema does not name.
    fn others(
        &self,
        schema: &Value,
        known: &Map<String, Value>,
        given: Map<String, Value>,
        at: &str,
        depth: usize,
        taken: &mut Map<String, Value>,
    ) -> Result<(), String> {
        let allowed = schema.get("additionalProperties");
        for (name, value) in given {
            let path = format!("{at}/{name}");
            match allowed {
                _ if value.is_null() && !matches!(allowed, Some(Value::Object(_))) => {}
                Some(Value::Bool(true)) => {
                    taken.insert(name, value);
                }
                Some(other @ Value::Object(_)) => {
                    taken.insert(name, self.value(other, value, &path, depth + 1)?);
                }
                _ => {
                    let names: Vec<_> = known.keys().map(String::as_str).collect();
                    let names = names.join(", ");
                    return Err(format!("{path}: not an argument; there are {names}"));
                }
            }
        }
        Ok(())
    }

    fn array(
        &self,
        schema: &Value,
        items: Vec<Value>,
        at: &str,
        depth: usize,
    ) -> Result<Value, String> {
        let Some(each) = schema.get("items") else {
            return Ok(Value::Array(items));
        };
        let items = items.into_iter().enumerate();
        let taken = items.map(|(n, item)| self.value(each, item, &format!("{at}/{n}"), depth + 1));
        taken.collect::<Result<Vec<_>, _>>().map(Value::Array)
    }
}

fn choices(schema: &Value) -> Option<&[Value]> {
    let choices = schema.get("anyOf").or_else(|| schema.get("oneOf"))?;
    choices.as_array().map(Vec::as_slice)
}

fn place(at: &str) -> &str {
    if at.is_empty() { "the arguments" } else { at }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn is_whole(value: &Value) -> bool {
    matches!(value, Value::Number(number) if !plain(number).is_f64())
}

/// What a text is taken for, where the schema asks for something else.
fn taken_for(kinds: &[&str], value: &Value) -> Option<Value> {
    let text = value.as_str()?.trim();
    let read = read(text).ok()?;
    let fits = match &read {
        Value::Number(_) => {
            kinds.contains(&"number") || kinds.contains(&"integer") && is_whole(&read)
        }
        Value::Bool(_) => kinds.contains(&"boolean"),
        _ => false,
    };
    fits.then_some(read)
}

/// What a value of the right type must be besides.
fn check(schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    let same = |other: &Value| canonical(other) == canonical(value);
    if let Some(allowed) = schema.get("enum").and_then(Value::as_array)
        && !allowed.iter().any(same)
    {
        let allowed: Vec<_> = allowed.iter().map(canonical).collect();
        return Err(format!("{}: one of {} is expected", place(at), allowed.join(", ")));
    }
    if let Some(only) = schema.get("const").filter(|only| !same(only)) {
        return Err(format!("{}: {} is expected", place(at), canonical(only)));
    }
    let limit = |name: &str| schema.get(name).and_then(Value::as_f64);
    let out = |what: &str| Err(format!("{}: {what}", place(at)));
    if let Some(number) = value.as_f64() {
        match () {
            () if limit("minimum").is_some_and(|min| number < min) => return out("too small"),
            () if limit("maximum").is_some_and(|max| number > max) => return out("too large"),
            () if limit("exclusiveMinimum").is_some_and(|min| number <= min) => {
                return out("too small");
            }
            () if limit("exclusiveMaximum").is_some_and(|max| number >= max) => {
                return out("too large");
            }
            () => {}
        }
    }
    let length = match value {
        Value::String(text) => Some((text.chars().count(), "minLength", "maxLength")),
        Value::Array(items) => Some((items.len(), "minItems", "maxItems")),
        _ => None,
    };
    let count = |name: &str| schema.get(name).and_then(Value::as_u64);
    if let Some((length, min, max)) = length.map(|(n, min, max)| (n as u64, min, max)) {
        if count(min).is_some_and(|min| length < min) {
            return out("too short");
        }
        if count(max).is_some_and(|max| length > max) {
            return out("too long");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refund() -> Schema {
        Schema::new(json!({
            "type": "object",
            "properties": {
                "order": {"type": "string", "minLength": 1},
                "amount": {"type": "number", "minimum": 0},
                "note": {"type": ["string", "null"]},
                "currency": {"type": "string", "default": "EUR", "enum": ["EUR", "USD"]},
                "urgent": {"type": "boolean", "default": false},
                "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
            },
            "required": ["order", "amount"],
            "$defs": {"line": {"type": "object", "properties": {"n": {"type": "integer"}}}},
        }))
    }

    #[test]
    fn two_ways_to_say_one_thing_are_one() {
        let one = refund().take(json!({"order": "o", "amount": 120})).unwrap();
        for other in [
            json!({"amount": "120", "order": "o"}),
            json!({"order": "o", "amount": 120.0, "note": null}),
            json!({"order": "o", "amount": 120, "currency": "EUR", "urgent": "false"}),
            json!({"order": "o", "amount": 120, "unknown": null}),
        ] {
            assert_eq!(refund().take(other.clone()).unwrap(), one, "{other}");
        }
        let lines = json!({"order": "o", "amount": 1, "lines": [{"n": 2.0}, {"n": "2"}]});
        assert_eq!(refund().take(lines).unwrap()["lines"], json!([{"n": 2}, {"n": 2}]));
    }

    #[test]
    fn what_does_not_fit_is_said() {
        for (wrong, said) in [
            (json!({"order": "o"}), "/amount: missing"),
            (json!({"order": 120, "amount": 1}), "/order: expected string, got number"),
            (json!({"order": "o", "amount": true}), "/amount: expected number, got boolean"),
            (json!({"order": "o", "amount": -1}), "/amount: too small"),
            (json!({"order": "", "amount": 1}), "/order: too short"),
            (json!({"order": "o", "amount": null}), "/amount: expected number, got null"),
            (json!({"order": "o", "amount": 1, "currency": "GBP"}), "one of \"EUR\", \"USD\""),
            (json!({"order": "o", "amount": 1, "tip": 2}), "/tip: not an argument"),
            (json!({"order": "o", "amount": 1, "lines": [{"n": 1.5}]}), "/lines/0/n: expected"),
            (json!([]), "the arguments: expected object, got array"),
        ] {
            let error = refund().take(wrong.clone()).unwrap_err();
            assert!(error.contains(said), "{wrong}: {error}");
        }
    }

    #[test]
    fn options_and_choices_are_taken() {
        #[derive(schemars::JsonSchema)]
        #[expect(dead_code, reason = "only its schema is looked at")]
        struct Args {
            a: Option<u32>,
            b: Kind,
        }
        #[derive(schemars::JsonSchema)]
        #[serde(rename_all = "snake_case")]
        #[expect(dead_code, reason = "only its schema is looked at")]
        enum Kind {
            One,
            Two { n: i64 },
        }
        let schema = Schema::of::<Args>();
        let taken = schema.take(json!({"a": "7", "b": "one"})).unwrap();
        assert_eq!(taken, json!({"a": 7, "b": "one"}));
        let taken = schema.take(json!({"a": null, "b": {"two": {"n": 1.0}}})).unwrap();
        assert_eq!(taken, json!({"b": {"two": {"n": 1}}}));
        assert!(schema.take(json!({"b": "three"})).is_err());
    }
}
