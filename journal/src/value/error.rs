//! The error of everything in [`value`](crate::value): what is wrong, where, and the cure.

use std::fmt;

/// The kinds of [`ValueError`]; more may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ValueErrorKind {
    /// Nested deeper than [`ValueLimits::depth_max`](crate::limits::ValueLimits).
    TooDeep,
    /// More bytes than [`ValueLimits::bytes_max`](crate::limits::ValueLimits).
    TooLarge,
    /// The value would be read back as another one, such as `Some(None)` as `None`.
    WouldChange,
    /// One map holds the same key twice.
    DuplicateKey,
    /// The value has no canonical form: it holds a NaN or an infinity.
    NotCanonical,
    /// The bytes are not one whole MessagePack value.
    Malformed,
    /// The value is sound and does not fit the type it is read into.
    Mismatch,
    /// The JSON text is refused.
    Json,
    /// The value's own `Serialize` code failed.
    Unserializable,
}

/// A value that cannot be stored, read, compared or shown.
///
/// The message names the place as a JSON pointer, the cause and the cure.
///
/// ```
/// use deedbook_journal::{limits::ValueLimits, value};
/// # #[derive(serde::Serialize)]
/// struct Order { note: Option<Option<u8>> }
/// let error = value::encode(&Order { note: Some(None) }, &ValueLimits::new()).unwrap_err();
/// assert_eq!(error.kind(), value::ValueErrorKind::WouldChange);
/// assert_eq!(error.path(), "/note");
/// ```
#[derive(Clone)]
pub struct ValueError(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ValueErrorKind,
    /// From the innermost outwards: every container adds its part while the error passes.
    segments: Vec<String>,
    message: String,
}

impl ValueError {
    pub(crate) fn new(kind: ValueErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner { kind, segments: Vec::new(), message: message.into() }))
    }

    pub(crate) fn too_deep(depth_max: usize) -> Self {
        Self::new(
            ValueErrorKind::TooDeep,
            format!("it nests deeper than {depth_max} levels; flatten it, or raise `depth_max`"),
        )
    }

    pub(crate) fn too_large(bytes_max: usize) -> Self {
        Self::new(
            ValueErrorKind::TooLarge,
            format!(
                "it takes more than {bytes_max} bytes; keep large data elsewhere and pass a \
                 reference to it, or raise `bytes_max`"
            ),
        )
    }

    /// Adds the part of the path that leads to the failing place.
    pub(crate) fn at(mut self, segment: impl ToString) -> Self {
        self.0.segments.push(segment.to_string());
        self
    }

    /// Puts the error below a JSON pointer.
    pub(crate) fn under(self, pointer: &str) -> Self {
        split(pointer).into_iter().rev().fold(self, Self::at)
    }

    /// The same failure, met while a value just written was read back.
    pub(crate) fn unreadable(mut self) -> Self {
        self.0.kind = ValueErrorKind::WouldChange;
        self.0.message = format!(
            "it cannot be read back ({}); make `Serialize` and `Deserialize` agree",
            self.0.message
        );
        self
    }

    /// What kind of error this is.
    #[must_use]
    pub fn kind(&self) -> ValueErrorKind {
        self.0.kind
    }

    /// The failing place as a JSON pointer (RFC 6901); empty for the whole value.
    #[must_use]
    pub fn path(&self) -> String {
        let mut path = String::new();
        for segment in self.0.segments.iter().rev() {
            push_segment(&mut path, segment);
        }
        path
    }

    /// Cause and cure, without the path.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The error of a value that has a name: what it is called stands in the place of `value`.
    ///
    /// ```
    /// use deedbook_journal::{limits::ValueLimits, value::view};
    ///
    /// let error = view::from_json(r#"{"a":1,"a":2}"#, &ValueLimits::new()).unwrap_err();
    /// assert!(error.to_string().starts_with("value at /a: "));
    /// assert!(error.of("its output").starts_with("its output at /a: "));
    /// ```
    #[must_use]
    pub fn of(&self, name: &str) -> String {
        format!("{name}{}", Told(self))
    }
}

/// The place, if it is not the whole value, and the message.
struct Told<'e>(&'e ValueError);

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = self.0;
        if !error.0.segments.is_empty() {
            f.write_str(" at ")?;
            super::text::write_safe(f, &error.path())?;
        }
        write!(f, ": {}", error.0.message)
    }
}

/// Adds one part to a JSON pointer.
pub(crate) fn push_segment(path: &mut String, segment: &str) {
    path.push('/');
    for c in segment.chars() {
        match c {
            '~' => path.push_str("~0"),
            '/' => path.push_str("~1"),
            c => path.push(c),
        }
    }
}

/// The parts of a JSON pointer; a missing leading `/` is added.
pub(crate) fn split(pointer: &str) -> Vec<String> {
    if pointer.is_empty() {
        return Vec::new();
    }
    let path = pointer.strip_prefix('/').unwrap_or(pointer);
    path.split('/').map(|part| part.replace("~1", "/").replace("~0", "~")).collect()
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "value{}", Told(self))
    }
}

impl fmt::Debug for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueError")
            .field("kind", &self.0.kind)
            .field("path", &self.path())
            .field("message", &self.0.message)
            .finish()
    }
}

impl std::error::Error for ValueError {}

impl serde::ser::Error for ValueError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(ValueErrorKind::Unserializable, message.to_string())
    }
}

impl serde::de::Error for ValueError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(ValueErrorKind::Mismatch, message.to_string())
    }
}
