//! `cancel`: a thread is to end without its result.

use deedbook_journal::operator;

use super::act;
use crate::{args::Cancel, failure::Outcome, open::Opened, out::Out, read, text::safe};

pub(crate) async fn run(args: &Cancel, book: &Opened, out: &mut Out<'_>) -> Outcome {
    let thread = read::thread_id(&args.thread)?;
    let by = act::by(&args.who)?;
    let message = operator::cancel(act::message_id()?, &args.reason, &by)?;
    let said = format!("cancelled by {}", safe(&by));
    act::carry_out(book, &thread, &message, &said, out).await
}
