//! `signal`: a value for a thread.

use deedbook_journal::{id::Name, operator};

use super::act;
use crate::{
    args::Signal,
    failure::{Failure, Outcome},
    open::Opened,
    out::Out,
    read,
    text::safe,
};

pub(crate) async fn run(args: &Signal, book: &Opened, out: &mut Out<'_>) -> Outcome {
    let thread = read::thread_id(&args.thread)?;
    let name = Name::new(&args.name).map_err(|e| Failure::usage(safe(&e.to_string())))?;
    let value = read::value(&args.value)?;
    let by = act::by(&args.who)?;
    let message = operator::signal(act::message_id()?, name.as_str(), value, &by);
    let said = format!("signal {} sent by {}", safe(&args.name), safe(&by));
    act::carry_out(book, &thread, &message, &said, out).await
}
