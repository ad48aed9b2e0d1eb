//! Values that pass to a body and never to the journal.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// What stands in the journal, and in every printed form, in place of a secret.
const SHOWN: &str = "[secret]";

/// A value that passes to the body and never to the journal, logs or errors.
///
/// It is written as the text `[secret]`, whatever it holds: the arguments of a step stay equal when
/// a token is renewed. It cannot be read back, so a workflow's input and a step's result must not
/// hold one; keep the secret with the workflow and name it in the input.
///
/// ```
/// use deedbook_journal::{limits::ValueLimits, value::{self, Secret}};
/// let token = Secret::new("hunter2".to_owned());
/// assert_eq!(format!("{token:?} {token}"), "[secret] [secret]");
/// let bytes = value::encode(&token, &ValueLimits::new())?;
/// assert_eq!(bytes, value::encode("[secret]", &ValueLimits::new())?);
/// assert!(value::decode::<Secret<String>>(&bytes, &ValueLimits::new()).is_err());
/// assert_eq!(token.expose(), "hunter2");
/// # Ok::<(), value::ValueError>(())
/// ```
#[derive(Clone, Default)]
pub struct Secret<T>(T);

impl<T> Secret<T> {
    /// Wraps `value`.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// The value itself, for the body that needs it.
    pub const fn expose(&self) -> &T {
        &self.0
    }

    /// The value itself.
    pub fn into_exposed(self) -> T {
        self.0
    }
}

impl<T> From<T> for Secret<T> {
    fn from(value: T) -> Self {
        Self(value)
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SHOWN)
    }
}

impl<T> fmt::Display for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SHOWN)
    }
}

impl<T> Serialize for Secret<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(SHOWN)
    }
}

impl<'de, T> Deserialize<'de> for Secret<T> {
    /// Always an error: the journal never held the value.
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(de::Error::custom(
            "a `Secret` is never stored, so it cannot be read back; keep it with the workflow and \
             pass its name instead",
        ))
    }
}
