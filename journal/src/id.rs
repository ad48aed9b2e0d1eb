//! Names of things: threads, steps, branches, messages, positions, epochs, times.

use std::{borrow::Borrow, fmt, sync::Arc};

use crate::{
    digits,
    limits::{BRANCH_DEPTH_MAX, BUSINESS_KEY_BYTES_MAX, NAME_BYTES_MAX, THREAD_ID_BYTES_MAX},
};

/// Place of a record in its thread, from 0, without gaps.
pub type Position = u64;

/// Place of a record in the whole journal: its leaf number in the Merkle log.
pub type LogIndex = u64;

/// Ids that begin so belong to Deedbook itself and are refused from users.
pub const RESERVED_PREFIX: &str = "deedbook:";

/// A name that cannot be used, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {shown:?} cannot be used: {why}")]
pub struct InvalidName {
    what: &'static str,
    shown: String,
    why: String,
}

impl InvalidName {
    fn new(what: &'static str, text: &str, why: impl Into<String>) -> Self {
        let shown: String = text.chars().take(40).collect();
        Self { what, shown, why: why.into() }
    }
}

/// The stable id of a thread, chosen by the user: 1 to 512 bytes of UTF-8, any characters.
///
/// Ids are compared byte for byte: no normalisation, no case folding. Ids beginning with
/// `deedbook:` are Deedbook's own.
///
/// ```
/// use deedbook_journal::id::ThreadId;
/// let id = ThreadId::new("order/4821\n🙂")?;
/// assert_eq!(id.as_str(), "order/4821\n🙂");
/// assert!(ThreadId::new("").is_err());
/// # Ok::<(), deedbook_journal::id::InvalidName>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadId(Arc<str>);

impl ThreadId {
    /// Takes a user's id.
    ///
    /// # Errors
    /// Empty, longer than 512 bytes, or beginning with `deedbook:`.
    pub fn new(id: impl AsRef<str>) -> Result<Self, InvalidName> {
        let id = id.as_ref();
        if id.starts_with(RESERVED_PREFIX) {
            let why = "ids beginning with `deedbook:` are Deedbook's own; choose another prefix";
            return Err(InvalidName::new("thread id", id, why));
        }
        Self::any(id)
    }

    /// Takes any id, Deedbook's own included: for reading what is stored.
    ///
    /// # Errors
    /// Empty or longer than 512 bytes.
    pub fn any(id: impl AsRef<str>) -> Result<Self, InvalidName> {
        let id = id.as_ref();
        check_length("thread id", id, THREAD_ID_BYTES_MAX)?;
        Ok(Self(id.into()))
    }

    /// The thread that records process facts (`run.start`, `run.end`).
    #[must_use]
    pub fn system() -> Self {
        Self("deedbook:system".into())
    }

    /// Whether this is one of Deedbook's own threads.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        self.0.starts_with(RESERVED_PREFIX)
    }

    /// The id as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for ThreadId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl fmt::Display for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A step, branch, signal, timer or workflow name: 1 to 512 bytes of UTF-8, any characters.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<str>);

impl Name {
    /// Takes a name.
    ///
    /// # Errors
    /// Empty or longer than 512 bytes.
    pub fn new(name: impl AsRef<str>) -> Result<Self, InvalidName> {
        let name = name.as_ref();
        check_length("name", name, NAME_BYTES_MAX)?;
        Ok(Self(name.into()))
    }

    /// The name as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Names are found by their text.
impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The path of branches from the root of a workflow to a call; empty at the root.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Branch(Option<Arc<[Name]>>);

impl Branch {
    /// The root of a workflow.
    #[must_use]
    pub fn root() -> Self {
        Self::default()
    }

    /// A path from its parts.
    ///
    /// # Errors
    /// Deeper than 64.
    pub fn new(parts: Vec<Name>) -> Result<Self, InvalidName> {
        if parts.len() > BRANCH_DEPTH_MAX {
            let last = parts.last().map_or("", Name::as_str);
            let why = format!("branches nest at most {BRANCH_DEPTH_MAX} deep");
            return Err(InvalidName::new("branch", last, why));
        }
        // Most calls are made at the root, and the root needs no memory.
        Ok(if parts.is_empty() { Self::root() } else { Self(Some(parts.into())) })
    }

    /// The branch `name` below this one.
    ///
    /// # Errors
    /// Deeper than 64.
    pub fn child(&self, name: Name) -> Result<Self, InvalidName> {
        let mut parts = self.parts().to_vec();
        parts.push(name);
        Self::new(parts)
    }

    /// The parts, from the root.
    #[must_use]
    pub fn parts(&self) -> &[Name] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl fmt::Debug for Branch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.parts(), f)
    }
}

/// What makes two calls of one step name the same call.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Identity {
    /// The place in the program: the occurrence-th call of this name in its branch and episode.
    Positional {
        /// From 0.
        occurrence: u32,
    },
    /// The canonical arguments, in the whole scope.
    Arguments {
        /// The keyed fingerprint of the canonical arguments.
        fingerprint: crate::value::Fingerprint,
        /// From 0; above 0 only where a repeat is wanted on purpose.
        occurrence: u32,
    },
    /// An explicit business key, in the whole scope, namespaced by the step's name.
    Key(Arc<str>),
}

impl Identity {
    /// Takes a business key.
    ///
    /// # Errors
    /// Empty or longer than 1024 bytes.
    pub fn key(key: impl AsRef<str>) -> Result<Self, InvalidName> {
        let key = key.as_ref();
        check_length("key", key, BUSINESS_KEY_BYTES_MAX)?;
        Ok(Self::Key(key.into()))
    }

    /// The kind of this identity, fixed per (thread, step name).
    #[must_use]
    pub fn kind(&self) -> IdentityKind {
        match self {
            Self::Positional { .. } => IdentityKind::Positional,
            Self::Arguments { .. } => IdentityKind::Arguments,
            Self::Key(_) => IdentityKind::Key,
        }
    }
}

/// The three kinds of identity; a byte of the key derivation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IdentityKind {
    /// By place in the program.
    Positional,
    /// By canonical arguments.
    Arguments,
    /// By an explicit business key.
    Key,
}

impl IdentityKind {
    /// The word used in records and on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Positional => "positional",
            Self::Arguments => "arguments",
            Self::Key => "key",
        }
    }

    /// The byte used in the key derivation.
    #[must_use]
    pub fn as_byte(self) -> u8 {
        match self {
            Self::Positional => 0,
            Self::Arguments => 1,
            Self::Key => 2,
        }
    }
}

/// Which call of a workflow: episode, branch, name and identity.
///
/// Identities by arguments and by key hold in the whole scope, so their branch is the root and
/// their episode 0.
///
/// Shown as `pay#0`, `left/pay#1`, `2:pay#0` (episode 2), `pay=refund:ORD-4821:v1` (by key) or
/// `pay~9f3c01d2#0` (by arguments). `\`, `/`, `#`, `=`, `~` and `:` inside names are shown behind
/// a `\`, so that two ids never look alike.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StepId {
    /// Counts continue-as-new within a thread, from 0.
    pub episode: u32,
    /// The branch in which the call is made.
    pub branch: Branch,
    /// The step's name.
    pub name: Name,
    /// What makes two calls of this name the same.
    pub identity: Identity,
}

impl StepId {
    /// The occurrence-th call of `name` in `branch`.
    #[must_use]
    pub fn positional(episode: u32, branch: Branch, name: Name, occurrence: u32) -> Self {
        Self { episode, branch, name, identity: Identity::Positional { occurrence } }
    }

    /// A call whose identity holds in the whole scope.
    #[must_use]
    pub fn scoped(name: Name, identity: Identity) -> Self {
        Self { episode: 0, branch: Branch::root(), name, identity }
    }
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.episode > 0 {
            write!(f, "{}:", self.episode)?;
        }
        for part in self.branch.parts() {
            write!(f, "{}/", Escaped(part.as_str()))?;
        }
        write!(f, "{}", Escaped(self.name.as_str()))?;
        match &self.identity {
            Identity::Positional { occurrence } => write!(f, "#{occurrence}"),
            Identity::Arguments { fingerprint, occurrence } => {
                write!(f, "~{}#{occurrence}", fingerprint.short())
            }
            Identity::Key(key) => write!(f, "={key}"),
        }
    }
}

impl fmt::Debug for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A name with the characters that [`StepId`] uses between its parts put behind a `\`.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if matches!(c, '\\' | '/' | '#' | '=' | '~' | ':') {
                f.write_str("\\")?;
            }
            fmt::Write::write_char(f, c)?;
        }
        Ok(())
    }
}

/// Where a step happens once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Once in its thread.
    #[default]
    Thread,
    /// Once in the whole journal; such a step is a thread of its own.
    Journal,
}

/// The fence: raised at every takeover of a thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(pub u64);

/// Nanoseconds since 1970-01-01T00:00:00Z by the store's own clock, which never goes back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StoreTime(pub u64);

impl StoreTime {
    /// This time plus `duration`, saturating.
    #[must_use]
    pub fn after(self, duration: std::time::Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }

    /// This much earlier; the first time there is, if there is no earlier one.
    #[must_use]
    pub fn before(self, duration: std::time::Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(nanos))
    }

    /// How long after `earlier` this time is; zero if it is not.
    #[must_use]
    pub fn since(self, earlier: Self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl StoreTime {
    /// RFC 3339, UTC, nine digits. The last time there is lies in the year 2554.
    pub(crate) fn text(self) -> [u8; 30] {
        let (days, in_day) = (self.0 / NANOS_PER_DAY, self.0 % NANOS_PER_DAY);
        let (year, month, day) = civil_from_days(days);
        let (secs, nanos) = (in_day / 1_000_000_000, in_day % 1_000_000_000);
        let mut text = *b"0000-00-00T00:00:00.000000000Z";
        let fields = [
            (0..4, year),
            (5..7, month),
            (8..10, day),
            (11..13, secs / 3600),
            (14..16, secs / 60 % 60),
            (17..19, secs % 60),
            (20..29, nanos),
        ];
        for (range, mut number) in fields {
            for digit in text.get_mut(range).unwrap_or_default().iter_mut().rev() {
                // Below ten, so that the cast keeps it.
                *digit = b'0' + (number % 10) as u8;
                number /= 10;
            }
        }
        text
    }

    /// Reads exactly the form that [`Self::text`] writes.
    pub(crate) fn from_text(text: &[u8]) -> Option<Self> {
        #[rustfmt::skip]
        let [
            y0, y1, y2, y3, b'-', o0, o1, b'-', d0, d1, b'T',
            h0, h1, b':', m0, m1, b':', s0, s1, b'.', f0, fraction @ .., b'Z',
        ] = *text.first_chunk::<30>().filter(|_| text.len() == 30)?
        else {
            return None;
        };
        let [century, year, month, day] = digits::pairs([y0, y1, y2, y3, o0, o1, d0, d1])?;
        let [hour, minute, second, tenths] = digits::pairs([h0, h1, m0, m1, s0, s1, b'0', f0])?;
        let fraction = tenths * 100_000_000 + digits::eight(fraction)?;
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let days = days_from_civil(century * 100 + year, month, day)?;
        let in_day = ((hour * 60 + minute) * 60 + second) * 1_000_000_000 + fraction;
        days.checked_mul(NANOS_PER_DAY)?.checked_add(in_day).map(Self)
    }
}

impl fmt::Display for StoreTime {
    /// RFC 3339, UTC, nine digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // ASCII by construction.
        f.write_str(std::str::from_utf8(&self.text()).unwrap_or_default())
    }
}

impl std::str::FromStr for StoreTime {
    type Err = InvalidName;

    /// Reads exactly the form that is written: `2026-11-29T12:00:00.000000000Z`.
    fn from_str(text: &str) -> Result<Self, InvalidName> {
        Self::from_text(text.as_bytes()).ok_or_else(|| {
            InvalidName::new("time", text, "expected 2026-11-29T12:00:00.000000000Z")
        })
    }
}

const NANOS_PER_DAY: u64 = 86_400 * 1_000_000_000;

/// Days since 1970-01-01 to (year, month, day): the algorithm of Howard Hinnant's
/// "chrono-Compatible Low-Level Date Algorithms".
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let era = z / 146_097;
    let doe = z % 146_097;
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (yoe + era * 400 + u64::from(month <= 2), month, day)
}

/// The inverse of [`civil_from_days`]; `None` before 1970, and for a day that the month has not.
fn days_from_civil(year: u64, month: u64, day: u64) -> Option<u64> {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let last = match month {
        2 => 28 + u64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=last).contains(&day) {
        return None;
    }
    let y = if month <= 2 { year.checked_sub(1)? } else { year };
    let (era, yoe) = (y / 400, y % 400);
    let doy = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    let doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;
    (era * 146_097 + doe).checked_sub(719_468)
}

/// The id of a message to a thread; posting one id twice stores it once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId(pub [u8; 16]);

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::hex::write(f, &self.0)
    }
}

fn check_length(what: &'static str, text: &str, max: usize) -> Result<(), InvalidName> {
    if text.is_empty() {
        return Err(InvalidName::new(what, text, "it is empty"));
    }
    if text.len() > max {
        let why = format!("it has {} bytes and {max} are the most", text.len());
        return Err(InvalidName::new(what, text, why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_round_trips() {
        for nanos in [0, 1, 951_782_400_000_000_000, 1_795_953_600_123_456_789, u64::MAX / 2] {
            let text = StoreTime(nanos).to_string();
            assert_eq!(text.parse::<StoreTime>().unwrap(), StoreTime(nanos), "{text}");
        }
        assert_eq!(
            StoreTime(951_782_400_000_000_000).to_string(),
            "2000-02-29T00:00:00.000000000Z"
        );
        for bad in
            ["2026-02-30T00:00:00.000000000Z", "2026-1-01T00:00:00.000000000Z", "", "nonsense"]
        {
            assert!(bad.parse::<StoreTime>().is_err(), "{bad}");
        }
        let good = "2027-12-31T23:59:59.999999999Z";
        assert!(good.parse::<StoreTime>().is_ok());
        for at in 0..good.len() {
            for byte in [b'/', b':', b'9', b' ', b'a'] {
                let mut text = good.as_bytes().to_vec();
                text[at] = byte;
                let read = StoreTime::from_text(&text);
                assert!(read.is_none_or(|time| time.text()[..] == text), "{text:?}");
            }
        }
    }

    #[test]
    fn step_ids_never_look_alike() {
        let name = |n: &str| Name::new(n).unwrap();
        let plain = StepId::positional(0, Branch::root(), name("poll"), 2);
        let odd = StepId::positional(0, Branch::root(), name("poll#2"), 0);
        let slash = StepId::positional(0, Branch::root(), name("left/poll"), 2);
        let left =
            StepId::positional(0, Branch::root().child(name("left")).unwrap(), name("poll"), 2);
        let texts: Vec<_> = [plain, odd, slash, left].iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["poll#2", "poll\\#2#0", "left\\/poll#2", "left/poll#2"]);
    }

    #[test]
    fn thread_ids_take_any_characters_within_the_limit() {
        for good in ["../../x", "/etc/passwd", "..", "con", "a\nb", "\u{202e}", "🙂", "%2e%2e", " "]
        {
            assert_eq!(ThreadId::new(good).unwrap().as_str(), good);
        }
        assert!(ThreadId::new("x".repeat(512)).is_ok());
        for bad in ["", "deedbook:system", &"x".repeat(513)] {
            assert!(ThreadId::new(bad).is_err(), "{bad}");
        }
    }
}
