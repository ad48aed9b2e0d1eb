//! Policies as types: a step without one does not compile.

use std::future::{Future, Ready};

use crate::{
    error::StepError,
    operation::{Attempt, Operation},
};

pub use deedbook_journal::policy::Policy as PolicyKind;

/// No policy yet.
#[derive(Debug, Clone, Copy)]
pub struct NoPolicy;

/// [`Step::read`](crate::Step::read).
#[derive(Debug, Clone, Copy)]
pub struct Read;

/// [`Step::idempotent`](crate::Step::idempotent).
#[derive(Debug, Clone, Copy)]
pub struct Idempotent;

/// [`Step::at_most_once`](crate::Step::at_most_once).
#[derive(Debug, Clone, Copy)]
pub struct AtMostOnce;

/// [`Step::reconcile`](crate::Step::reconcile).
#[derive(Debug, Clone, Copy)]
pub struct Reconcile<Q>(pub(crate) Q);

/// What a probe found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe<T> {
    /// The effect happened, with this result.
    Happened(T),
    /// The effect did not happen, and no request is still on its way.
    DidNotHappen,
    /// The downstream could not tell.
    Inconclusive,
}

/// What a body under a policy receives.
pub trait Receives {
    /// [`Operation`], or [`Attempt`] for a `read` step.
    type Operation: Send;

    #[doc(hidden)]
    fn receive(attempt: u32, operation: Option<Operation>) -> Option<Self::Operation>;
}

/// A policy that a step returning `T` can run under.
#[diagnostic::on_unimplemented(
    message = "this step has no policy: say what may happen to it after a crash",
    label = "`run` and `call` need a policy before them",
    note = "`.read()`            it has no effect outside; it runs again if unrecorded",
    note = "`.idempotent()`      the other side honours `op.key()`; it is sent again under that key",
    note = "`.reconcile(probe)`  the other side can be asked whether it happened",
    note = "`.at_most_once()`    neither; a doubt is left to a person"
)]
pub trait Policy<T>: Send {
    #[doc(hidden)]
    type Asking: Future<Output = Result<Probe<T>, StepError>> + Send;

    #[doc(hidden)]
    fn ask(&self, operation: Operation) -> Option<Self::Asking>;
}

macro_rules! receives_operation {
    ($([$($generic:tt)*] $policy:ty),*) => {$(
        impl<$($generic)*> Receives for $policy {
            type Operation = Operation;

            fn receive(_attempt: u32, operation: Option<Operation>) -> Option<Operation> {
                operation
            }
        }
    )*};
}
receives_operation!([] NoPolicy, [] Idempotent, [] AtMostOnce, [Q] Reconcile<Q>);

impl Receives for Read {
    type Operation = Attempt;

    fn receive(attempt: u32, _operation: Option<Operation>) -> Option<Attempt> {
        Some(Attempt { number: attempt })
    }
}

macro_rules! cannot_be_asked {
    ($($policy:ty),*) => {$(
        impl<T: Send> Policy<T> for $policy {
            type Asking = Ready<Result<Probe<T>, StepError>>;

            fn ask(&self, _: Operation) -> Option<Self::Asking> {
                None
            }
        }
    )*};
}
cannot_be_asked!(Read, Idempotent, AtMostOnce);

impl<T, Q, F> Policy<T> for Reconcile<Q>
where
    Q: FnOnce(Operation) -> F + Clone + Send,
    F: Future<Output = Result<Probe<T>, StepError>> + Send,
{
    type Asking = F;

    fn ask(&self, operation: Operation) -> Option<F> {
        Some(self.0.clone()(operation))
    }
}
