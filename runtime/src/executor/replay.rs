//! A replay alone: what the code makes of the records, and nothing behind them.

use std::sync::Arc;

use deedbook_journal::{checkpointer::Lease, turn::Next};

use super::{After, House, Loaded, Run, ended_early};
use crate::{
    control::Control,
    desk::Trouble,
    error::{Error, ErrorKind},
    replay::{Replayed, ReplayedTo},
    workflow::Hosted,
};

/// Runs the code to where its record ends. What it appends by itself on the way (markers of
/// changes) is dropped: nothing here submits a batch.
pub(crate) async fn replay(
    house: House,
    lease: Lease,
    hosted: Arc<dyn Hosted>,
) -> Result<Replayed, Error> {
    let thread = lease.thread.clone();
    let refused = |why: &str| Error::new(ErrorKind::Refused, why).thread(&thread);
    let loaded = Run::load(house, Control::new(None), lease, None, Some(hosted)).await;
    let mut run = match loaded.map_err(|error| Error::from(error).thread(&thread))? {
        Loaded::Run(run) => run,
        Loaded::Ended(_) => return Err(refused("it has ended: there is nothing to replay")),
    };
    if run.shared.lock().history.cancelled() {
        return Err(refused("it is cancelled: its code does not run any more"));
    }
    run.shared.lock().other_policies = Some(Vec::new());
    let to = run.come_to_its_end();
    let other_policies = run.shared.lock().other_policies.take().unwrap_or_default();
    run.tear_down();
    Ok(Replayed { to: to?, other_policies })
}

impl Run {
    fn come_to_its_end(&mut self) -> Result<ReplayedTo, Error> {
        let thread = self.thread.clone();
        let error = |kind, why: String| Error::new(kind, why).thread(&thread);
        let episode = self.shared.lock().history.episode();
        loop {
            let after = self.turn();
            if self.shared.lock().history.episode() != episode {
                return Ok(ReplayedTo::Call("continue_as_new".to_owned()));
            }
            return match after {
                After::GoOn => {
                    // Taken, and dropped.
                    self.shared.lock().take_batch();
                    continue;
                }
                After::Wait { row: Some(row), .. } => {
                    Ok(ReplayedTo::Waits(row.detail.as_deref().unwrap_or_default().to_owned()))
                }
                After::Wait { .. } => Ok(ReplayedTo::Call(self.next_call())),
                After::Finish => self.replayed_end(),
                After::Cancel => Ok(ReplayedTo::Waits("the cancellation".to_owned())),
                After::Trouble(Trouble::Diverged(divergence)) => {
                    Err(Error::diverged(&thread, divergence))
                }
                After::Trouble(Trouble::Misused(why)) => Err(error(ErrorKind::Stalled, why)),
                After::Panicked(message) => {
                    let why = format!("the workflow's code panicked: {message}");
                    Err(error(ErrorKind::Panicked, why))
                }
                After::Input(why) => {
                    let why = format!("the recorded input cannot be read: {why}");
                    Err(error(ErrorKind::Diverged, why))
                }
            };
        }
    }

    /// The call with which the code would go on.
    fn next_call(&self) -> String {
        let mut desk = self.shared.lock();
        let Next::Act(acts) = desk.next() else { return String::new() };
        acts.first().and_then(|act| desk.shown(act.call())).unwrap_or_default()
    }

    fn replayed_end(&mut self) -> Result<ReplayedTo, Error> {
        {
            let desk = self.shared.lock();
            if let Some(unmade) = desk.first_unmade() {
                return Err(Error::diverged(&self.thread, ended_early(&desk, unmade)));
            }
        }
        if let Some(row) = self.doubtful_row() {
            return Ok(ReplayedTo::Waits(row.detail.as_deref().unwrap_or_default().to_owned()));
        }
        Ok(match self.finished.take() {
            Some(end) => ReplayedTo::Ended(end),
            None => ReplayedTo::Waits(String::new()),
        })
    }
}
