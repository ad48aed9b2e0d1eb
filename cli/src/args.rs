//! The command line.

use std::{path::PathBuf, time::Duration};

use clap::{ArgGroup, Args, Parser, Subcommand, builder::NonEmptyStringValueParser};
use deedbook_journal::{hex, id::StoreTime};

mod steps;

pub(crate) use steps::{
    Call, Explain, Forget, Guards, PolicyArg, Reset, ResultArg, Steps, SwitchArg,
};

use crate::{state::Seen, text::read_time};

/// Look inside a Deedbook journal, answer it, export it, verify it.
#[derive(Debug, Parser)]
#[command(name = "deedbook", version, max_term_width = 100, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 ok, 1 failure, 2 usage, 3 `verify` or `doctor` found a fault, 4 open doubts (`doubts`)
or a call in doubt or to be asked about (`call`), 5 in use by another process or caller, 6 a call is
recorded with other arguments (`call`).";

/// What every command takes.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// The journal
    #[arg(long, global = true, value_name = "FILE", env = "DEEDBOOK_JOURNAL")]
    pub(crate) journal: Option<PathBuf>,
    /// Write JSON: one object, or one object a line
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a journal
    #[command(after_help = "Example: deedbook init --journal refunds.deedbook")]
    Init(Init),
    /// List threads
    #[command(after_help = "\
Examples:
  deedbook threads
  deedbook threads --status waiting --status in-doubt
  deedbook threads --workflow refund --since 2026-11-29 --json")]
    Threads(Threads),
    /// Tell the story of a thread
    #[command(after_help = "Example: deedbook show order-4821 --payloads")]
    Show(Show),
    /// Send a signal to a thread
    #[command(after_help = r#"Examples:
  deedbook signal order-4821 address '{"city":"Bern"}'
  deedbook signal order-4821 photo @photo.json"#)]
    Signal(Signal),
    /// Grant an approval request
    #[command(after_help = "\
Examples:
  deedbook approve order-4821
  deedbook approve order-4821 big-refund#0 --reason 'checked with the customer'")]
    Approve(Decide),
    /// Deny an approval request
    #[command(after_help = "Example: deedbook deny order-4821 big-refund#0 --reason 'too late'")]
    Deny(Decide),
    /// List all open doubts, and how to settle them
    #[command(after_help = "Example: deedbook doubts   (exits with 4 if there are any)")]
    Doubts(Doubts),
    /// Settle a doubt: say what has happened to a step
    #[command(after_help = r#"Examples:
  deedbook resolve order-4821 pay#0 --happened '{"id":"r_17"}' --reason 'seen at the bank'
  deedbook resolve order-4821 pay#0 --did-not-happen --reason 'the bank knows nothing of it'
  deedbook resolve order-4821 pay#0 --failed 'card expired' --reason 'mail from the bank'"#)]
    Resolve(Resolve),
    /// Cancel a thread
    #[command(after_help = "Example: deedbook cancel order-4821 --reason 'customer withdrew'")]
    Cancel(Cancel),
    /// Explain why steps of a thread were executed, or were not, and what they nearly were
    #[command(after_help = "\
Examples:
  deedbook explain order-4821
  deedbook explain order-4821 pay#0 --json")]
    Explain(Explain),
    /// Run a program as a step that happens once, or give what is recorded of it
    #[command(after_help = r#"Examples:
  deedbook call charge --thread ORD-42 --args '{"cents":4200}' --policy idempotent -- ./charge.sh
  deedbook call page --thread CASE-7 --policy at-most-once -- ./page-oncall 'disk full'
  deedbook call mail --thread ORD-42 --reconcile-cmd ./was-it-sent -- ./send-mail

The program finds DEEDBOOK_OPERATION_KEY, DEEDBOOK_ATTEMPT, DEEDBOOK_THREAD, DEEDBOOK_STEP and
DEEDBOOK_ARGS in its environment, and the arguments on its standard input."#)]
    Call(Call),
    /// List guarded steps, and where they stand
    #[command(after_help = "\
Examples:
  deedbook steps
  deedbook steps charge --state in-doubt
  deedbook steps --thread ORD-42 --json     (exits with 1 if there is none)")]
    Steps(Steps),
    /// Let a settled step happen anew, under a fresh key
    #[command(
        after_help = "Example: deedbook reset deedbook:step/charge/9f2c… --reason 'wanted twice'"
    )]
    Reset(Reset),
    /// Erase what settled steps were given and brought; that they happened stays
    #[command(after_help = "\
Examples:
  deedbook forget --older-than 90d --reason 'older than we keep' --dry-run
  deedbook forget --older-than 90d --reason 'older than we keep'
  deedbook forget mail --thread ORD-42 --older-than 0s --reason 'ticket 77'")]
    Forget(Forget),
    /// Say whether guards are on, or turn all of them off or on, on record
    #[command(after_help = "\
Examples:
  deedbook guards
  deedbook guards off --reason 'load test against the sandbox'")]
    Guards(Guards),
    /// Write all records of the journal, or of one thread, as JSON lines
    #[command(after_help = "\
Examples:
  deedbook export -o journal.jsonl
  deedbook export order-4821 | jq -r .rec.k")]
    Export(Export),
    /// Verify the journal, one thread, or an exported file
    #[command(after_help = "\
Examples:
  deedbook verify
  deedbook verify order-4821
  deedbook verify --export journal.jsonl")]
    Verify(Verify),
    /// Copy the journal into a new file, and verify the copy
    #[command(after_help = "\
Examples:
  deedbook backup /mnt/backup/refunds-2026-11-30.deedbook
  deedbook backup copy.deedbook --json")]
    Backup(Backup),
    /// Examine the journal: read everything, change nothing, and say what to do
    #[command(after_help = "\
Examples:
  deedbook doctor
  deedbook doctor --json
  deedbook doctor --accept-rollback   (after an older copy was put back on purpose)")]
    Doctor(Doctor),
    /// Write the journal anew, without the space that it does not need
    #[command(after_help = "Example: deedbook compact --progress")]
    Compact(Compact),
    /// Hold the journal so that others can work on it at once, and leave when nobody does
    #[command(after_help = "Example: deedbook own --idle 10s")]
    Own(Own),
    /// Speak the control protocol, for programs in other languages
    #[command(after_help = "\
Example: deedbook guard --stdio   (JSON lines; docs/reference/control-protocol.md)")]
    Guard(Guard),
    /// Show the operation key that a call would get
    #[command(after_help = r#"Examples:
  deedbook key --thread order-4821 --step pay
  deedbook key --thread order-4821 --step pay --branch left --occurrence 1
  deedbook key --thread order-4821 --step refund --key refund:ORD-4821:v1
  deedbook key --step refund --by-arguments '{"amount":4200}' --scope journal"#)]
    Key(Key),
    /// Write a completion script for a shell
    #[command(after_help = "Example: deedbook completions bash > deedbook.bash")]
    Completions(Completions),
}

#[derive(Debug, Args)]
pub(crate) struct Init {
    /// The namespace of operation keys, to share them with another journal on purpose: 32 hex
    /// digits
    #[arg(long, value_name = "HEX", value_parser = namespace)]
    pub(crate) namespace: Option<[u8; 16]>,
}

#[derive(Debug, Args)]
pub(crate) struct Threads {
    /// Only threads of this status; may be repeated. `in-doubt` are all that have an open doubt
    #[arg(long, value_name = "STATUS")]
    pub(crate) status: Vec<Seen>,
    /// Only threads of this workflow
    #[arg(long, value_name = "NAME")]
    pub(crate) workflow: Option<String>,
    /// Only threads whose id begins so
    #[arg(long, value_name = "TEXT")]
    pub(crate) prefix: Option<String>,
    /// Only threads created then or later: a day, or UTC in RFC 3339
    #[arg(long, value_name = "TIME", value_parser = read_time)]
    pub(crate) since: Option<StoreTime>,
    /// Only threads created before then
    #[arg(long, value_name = "TIME", value_parser = read_time)]
    pub(crate) until: Option<StoreTime>,
    /// At most this many
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// Deedbook's own threads too
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The thread
    pub(crate) thread: String,
    /// With arguments, results and all other values
    #[arg(long)]
    pub(crate) payloads: bool,
}

/// Who acts.
#[derive(Debug, Args)]
pub(crate) struct Who {
    /// Who does this, for the record; `user:` and what USER says if not given
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) by: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Signal {
    /// The thread
    pub(crate) thread: String,
    /// The signal's name
    pub(crate) name: String,
    /// Its value: JSON, `@` and the name of a file with JSON, or `-` for standard input
    #[arg(value_name = "JSON", allow_hyphen_values = true)]
    pub(crate) value: String,
    #[command(flatten)]
    pub(crate) who: Who,
}

#[derive(Debug, Args)]
pub(crate) struct Decide {
    /// The thread
    pub(crate) thread: String,
    /// The request, as `show` names it; not needed if only one is open
    pub(crate) request: Option<String>,
    /// Why
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) reason: String,
    /// What was shown, by its commitment: refuse if the request shows something else
    #[arg(long, value_name = "HEX")]
    pub(crate) shown: Option<String>,
    #[command(flatten)]
    pub(crate) who: Who,
}

#[derive(Debug, Args)]
pub(crate) struct Doubts {
    /// Only threads whose id begins so
    #[arg(long, value_name = "TEXT")]
    pub(crate) prefix: Option<String>,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("verdict").required(true)))]
pub(crate) struct Resolve {
    /// The thread
    pub(crate) thread: String,
    /// The step, as `doubts` names it
    pub(crate) step: String,
    /// The effect happened, with this result: JSON, `@` and the name of a file, or `-`
    #[arg(long, value_name = "JSON", group = "verdict", allow_hyphen_values = true)]
    pub(crate) happened: Option<String>,
    /// The effect did not happen: the step runs again under the same operation key
    #[arg(long, group = "verdict")]
    pub(crate) did_not_happen: bool,
    /// The step has failed for good, with this message
    #[arg(long, value_name = "MESSAGE", group = "verdict")]
    pub(crate) failed: Option<String>,
    /// How that is known
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) who: Who,
}

#[derive(Debug, Args)]
pub(crate) struct Cancel {
    /// The thread
    pub(crate) thread: String,
    /// Why
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) who: Who,
}

#[derive(Debug, Args)]
pub(crate) struct Export {
    /// Only this thread
    pub(crate) thread: Option<String>,
    /// The file; without it, standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace the file if there is one
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
}

/// Whether to tell how far it has come.
#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// Tell on standard error how far it has come, also where that is no terminal
    #[arg(long)]
    pub(crate) progress: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Backup {
    /// The new file; there must be nothing of this name
    #[arg(value_name = "FILE")]
    pub(crate) to: PathBuf,
    #[command(flatten)]
    pub(crate) watch: Watch,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Go on from this copy, although the journal had more: what came after it is given up
    #[arg(long)]
    pub(crate) accept_rollback: bool,
    #[command(flatten)]
    pub(crate) watch: Watch,
}

#[derive(Debug, Args)]
pub(crate) struct Own {
    /// Leave when nobody has been connected for this long (`500ms`, `10s`, `5m`, `1h`)
    #[arg(long, value_name = "TIME", value_parser = read_span, default_value = "10s")]
    pub(crate) idle: Duration,
    /// In a session of its own, so that whoever started it can end
    #[arg(long, hide = true)]
    pub(crate) apart: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Guard {
    /// Requests on standard input, answers on standard output
    #[arg(long, required = true)]
    pub(crate) stdio: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Compact {
    #[command(flatten)]
    pub(crate) watch: Watch,
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// Only this thread
    pub(crate) thread: Option<String>,
    /// An exported file instead of a journal
    #[arg(long, value_name = "FILE", conflicts_with = "thread")]
    pub(crate) export: Option<PathBuf>,
}

/// Where a step happens once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ScopeArg {
    /// Once in its thread
    Thread,
    /// Once in the whole journal
    Journal,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("identity")))]
pub(crate) struct Key {
    /// The thread
    #[arg(long, value_name = "THREAD", required_if_eq("scope", "thread"))]
    pub(crate) thread: Option<String>,
    /// The step's name
    #[arg(long, value_name = "NAME")]
    pub(crate) step: String,
    /// The how-manieth call of this name in its branch, or with these arguments; from 0
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "key")]
    pub(crate) occurrence: u32,
    /// The branch, from the root; may be repeated
    #[arg(long, value_name = "NAME", conflicts_with = "identity")]
    pub(crate) branch: Vec<String>,
    /// How often the thread has continued as new
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "identity")]
    pub(crate) episode: u32,
    /// The business key, for a step with `.key(..)`
    #[arg(long, value_name = "TEXT", group = "identity")]
    pub(crate) key: Option<String>,
    /// The arguments, for a step with `.by_arguments()`: JSON, `@` and the name of a file, or `-`
    #[arg(long, value_name = "JSON", group = "identity", allow_hyphen_values = true)]
    pub(crate) by_arguments: Option<String>,
    /// Where the step happens once
    #[arg(long, value_enum, default_value = "thread")]
    pub(crate) scope: ScopeArg,
    /// How often a fresh key was granted
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) generation: u64,
    /// The namespace, instead of a journal's: 32 hex digits
    #[arg(long, value_name = "HEX", value_parser = namespace)]
    pub(crate) namespace: Option<[u8; 16]>,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

/// A span of time: a number and its unit.
fn read_span(text: &str) -> Result<Duration, String> {
    let digits = text.chars().take_while(char::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let wrong = || format!("{text:?} is no span of time like 500ms, 10s, 5m, 1h or 7d");
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let seconds = |each: u64| number.checked_mul(each).map(Duration::from_secs);
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => seconds(1),
        "m" => seconds(60),
        "h" => seconds(3600),
        "d" => seconds(86_400),
        _ => None,
    }
    .ok_or_else(wrong)
}

fn namespace(text: &str) -> Result<[u8; 16], String> {
    hex::decode(&text.to_ascii_lowercase()).ok_or_else(|| "a namespace has 32 hex digits".into())
}
