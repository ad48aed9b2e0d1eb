//! The command line for guarded steps.

use std::time::Duration;

use clap::{Args, builder::NonEmptyStringValueParser};

use super::{ScopeArg, Watch, Who, read_span};

/// What may happen after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PolicyArg {
    /// It has no effect: it runs again if it was not recorded
    Read,
    /// The other side honours the operation key: it is sent again under the same key
    Idempotent,
    /// The other side is asked, with `--reconcile-cmd`
    Reconcile,
    /// Neither: a doubt is left to a person
    AtMostOnce,
}

/// What standard output is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ResultArg {
    /// JSON where it is JSON, and text otherwise
    Auto,
    /// JSON; anything else cannot be recorded
    Json,
    /// Text
    Text,
}

#[derive(Debug, Args)]
pub(crate) struct Call {
    /// The step's name
    pub(crate) name: String,
    /// Within which the call happens once: an order, a conversation; needed, or `--scope journal`
    #[arg(long, value_name = "THREAD", required_if_eq("scope", "thread"))]
    pub(crate) thread: Option<String>,
    /// Where the call happens once
    #[arg(long, value_enum, default_value = "thread")]
    pub(crate) scope: ScopeArg,
    /// The arguments, which identify the call: JSON, `@` and the name of a file, or `-`; without
    /// these and `--key`, every call of this name in this scope is given the first one's result
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    pub(crate) args: Option<String>,
    /// A business key, which identifies the call instead; the arguments are compared
    #[arg(long, value_name = "TEXT", conflicts_with = "occurrence")]
    pub(crate) key: Option<String>,
    /// A repeat that is wanted, counted from 0
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) occurrence: u32,
    /// What may happen after a crash; needed, unless `--reconcile-cmd` is given
    #[arg(long, value_enum)]
    pub(crate) policy: Option<PolicyArg>,
    /// How long the other side honours the operation key
    #[arg(long, value_name = "TIME", value_parser = read_span)]
    pub(crate) honoured_for: Option<Duration>,
    /// Asks the other side, in a shell: exit status 0 and the result on standard output if it
    /// happened, 1 if it did not, anything else if that cannot be told
    #[arg(long, value_name = "COMMAND")]
    pub(crate) reconcile_cmd: Option<String>,
    /// How long after the last attempt the other side is asked; the timeout and 60 s if not given
    #[arg(long, value_name = "TIME", value_parser = read_span)]
    pub(crate) quiet: Option<Duration>,
    /// How long an attempt may take
    #[arg(long, value_name = "TIME", value_parser = read_span, default_value = "5m")]
    pub(crate) timeout: Duration,
    /// How old an outcome may be that this call is given; of any age if not given
    #[arg(long, value_name = "TIME", value_parser = read_span)]
    pub(crate) valid_for: Option<Duration>,
    /// Waits so long for somebody who is at it, and for the time at which the other side is asked
    #[arg(long, value_name = "TIME", value_parser = read_span)]
    pub(crate) wait: Option<Duration>,
    /// Takes the call from somebody who is stuck with it
    #[arg(long, conflicts_with = "wait")]
    pub(crate) take_over: bool,
    /// How long others stay away after this process was cut off or paused; once it is gone, they
    /// need not wait
    #[arg(long, value_name = "TIME", value_parser = read_span, default_value = "15s")]
    pub(crate) lease: Duration,
    /// Exit statuses that say: it has failed for good
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub(crate) terminal_exit: Vec<u8>,
    /// Exit statuses that say: it certainly had no effect
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub(crate) not_applied_exit: Vec<u8>,
    /// What standard output is taken for
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) result: ResultArg,
    /// The most bytes of standard output that are recorded
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 20)]
    pub(crate) result_max: usize,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// How a step may stand.
const STATES: [&str; 6] = ["done", "failed", "in-flight", "in-doubt", "to-be-asked", "open"];

#[derive(Debug, Args)]
pub(crate) struct Steps {
    /// Only steps of this name
    pub(crate) name: Option<String>,
    /// Only steps that happen once in this thread
    #[arg(long, value_name = "THREAD")]
    pub(crate) thread: Option<String>,
    /// Only the step with this business key or operation key
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Only steps that stand so; may be repeated
    #[arg(long, value_name = "STATE", value_parser = STATES)]
    pub(crate) state: Vec<String>,
    /// Only so many, those that changed last
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct Reset {
    /// The step's thread, as `steps` names it
    pub(crate) thread: String,
    /// Why it is to happen anew
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) who: Who,
}

#[derive(Debug, Args)]
pub(crate) struct Forget {
    /// Only steps of this name
    pub(crate) name: Option<String>,
    /// Only steps that happen once in this thread
    #[arg(long, value_name = "THREAD")]
    pub(crate) thread: Option<String>,
    /// Only what was settled longer ago than this: `90d`, `12h`; `0s` for everything
    #[arg(long, value_name = "TIME", value_parser = read_span)]
    pub(crate) older_than: Duration,
    /// Why it is to go
    #[arg(long, required_unless_present = "dry_run")]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) reason: Option<String>,
    /// Only list what would be forgotten, as `steps` does
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) who: Who,
    #[command(flatten)]
    pub(crate) watch: Watch,
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SwitchArg {
    /// A call that is recorded is not executed again
    On,
    /// Every call is executed, and recorded
    Off,
}

#[derive(Debug, Args)]
pub(crate) struct Guards {
    /// Turns them on or off; without it, says how they are
    #[arg(value_enum)]
    pub(crate) switch: Option<SwitchArg>,
    /// Why
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) reason: Option<String>,
    #[command(flatten)]
    pub(crate) who: Who,
}

#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// The thread
    pub(crate) thread: String,
    /// The step, as `show` names it; all of them if not given
    pub(crate) step: Option<String>,
}
