//! `#[step]`: an `async fn` that is a guarded call, or a step of a workflow.
//!
//! Programs use it through `deedbook` with the feature `macros`, as `#[deedbook::step]`.

mod capture;
mod duration;
mod expand;
mod function;
mod options;

use proc_macro::TokenStream;

/// Makes an `async fn` a guarded call or a workflow's step, and nothing else: what it writes is
/// what one would write by hand with `book.guard(..)` or `ctx.step(..)`.
///
/// ```
/// use deedbook::{CallError, Deedbook, StepError, step};
///
/// # struct Bank;
/// # impl Bank {
/// #     async fn charge(&self, _: &str, _: u64, key: &str) -> Result<String, std::io::Error> {
/// #         Ok(format!("charged under {key}"))
/// #     }
/// # }
/// #[step("charge_card", idempotent, honoured_for = "24h", key = order, operation = op)]
/// async fn charge_card(
///     book: &Deedbook,
///     order: &str,
///     cents: u64,
///     #[hands] bank: &Bank,
/// ) -> Result<String, CallError> {
///     Ok(bank.charge(order, cents, op.key()).await?)
/// }
///
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// let book = Deedbook::memory().start().await?;
/// let receipt = charge_card(&book, "ORD-42", 4200, &Bank).await?;
/// // The body does not run again, here and after every restart.
/// assert_eq!(charge_card(&book, "ORD-42", 4200, &Bank).await?, receipt);
/// // Another amount under the same key is a mistake.
/// assert!(charge_card(&book, "ORD-42", 9900, &Bank).await.is_err());
/// # book.shutdown().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # The function
///
/// - **The signature is what callers see.** The first parameter decides what it becomes:
///   `&Deedbook` makes it a guard, and `Context` or `&Context` a workflow's step. For a type of
///   another name the attribute says `guard` or `workflow`.
/// - The other parameters are the **recorded arguments**, a map by their names. Renaming one is a
///   change of what is recorded.
/// - A parameter marked `#[hands]` is what the body works with: it is neither recorded nor
///   compared. A client, a pool, a secret.
/// - Arguments and hands are cloned for each attempt: take large ones by `&`.
/// - It returns a `Result` whose error can be made `From` the builder's: `CallError` for a guard,
///   `WorkflowError` for a step. `deedbook::Result` and `Box<dyn Error + Send + Sync>` do.
/// - The **body** is that of a step: it ends in a [`StepError`] where it fails, into which `?`
///   turns any error, and on which `.terminal()` and `.not_applied()` say what is known.
/// - A lifetime in a path is written, as in `Cow<'_, str>`, in a workflow's step.
/// - A step's identity is claimed when the function is called, a guard's when it is polled, as by
///   hand.
///
/// # The attribute
///
/// First the name, which is recorded, and then the policy: `read`, `idempotent`,
/// `reconcile` or `at_most_once`. The rest is optional. Times are texts such as `"90s"`, `"24h"` or
/// `"1h30m"` (`ms`, `s`, `m`, `h`, `d`, `w`), or expressions. Expressions see the parameters.
///
/// | word | for | meaning |
/// | --- | --- | --- |
/// | `operation = op` | not `read` | what the body calls its `Operation` |
/// | `attempt = a` | `read` | what the body calls its `Attempt` |
/// | `probe = ..` | `reconcile`, needed | a path or closure that takes the operation |
/// | `honoured_for = ".."` | `idempotent` | how long the other side honours the key |
/// | `quiet = ".."` | `reconcile` | how long after a send the probe is asked |
/// | `timeout = ".."` | | how long an attempt may take |
/// | `retry(attempts = 3, first = "1s", most = "60s")` | | also `retry = EXPRESSION` |
/// | `key = ..` | | the business key; anything that can be displayed |
/// | `occurrence = n` | | a repeat that is wanted |
/// | `redact("/card")` | | is not told; may be repeated |
/// | `within = ..` | guard | the scope |
/// | `identified_by(order)` | guard | the arguments that identify it; the others are compared |
/// | `any_content` | guard | other arguments may pass |
/// | `valid_for = ".."` | guard | how long an outcome is given to later callers |
/// | `duplicates = refuse` | guard | also `wait("30s")` and `take_over` |
/// | `on_replay = ..` | guard | what is called when a recorded outcome is given |
/// | `by_arguments` | workflow | identified by its arguments in the thread |
/// | `scope = journal` | workflow | shared with guards of the same name |
/// | `id = ..` | workflow | tells calls apart that are under way at once |
/// | `abandon` | workflow | the thread may end in doubt |
/// | `crate = path` | | where `deedbook` is, if under another name |
///
/// Within one process a guard's name belongs to the module of its function: another module that
/// uses it is refused, so that two functions of one name never answer for each other.
///
/// [`StepError`]: https://docs.rs/deedbook
#[proc_macro_attribute]
pub fn step(attribute: TokenStream, item: TokenStream) -> TokenStream {
    expand::step(attribute.into(), item.into())
        .unwrap_or_else(|error| error.to_compile_error())
        .into()
}
