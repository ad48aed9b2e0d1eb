//! What cannot be recorded: S45, S65, S66; and errors: S32, S35, S38.

use std::time::Duration;

use deedbook::{
    Context, ErrorKind, Result, Status, StepError, ValueLimits, VirtualClock, WorkflowError,
    WorkflowErrorKind,
};
use deedbook_journal::record::{Kind, Role};
use harness::{
    code::Code,
    outside::{Does, Life, Outside, Unstorable},
};

async fn begun(code: &Code) -> Life {
    let hosted = code.clone();
    let limits = ValueLimits::new().bytes_max(1000).depth_max(16);
    let host = |b: deedbook::Builder| b.host(hosted).value_limits(limits);
    let life = Life::first(&VirtualClock::new(), host).await;
    life.book.spawn::<Code>("t", ()).await.unwrap();
    life.settle().await;
    life
}

async fn again(life: Life, code: &Code) -> Life {
    let clock = life.clock.clone();
    let code = code.clone();
    let limits = ValueLimits::new().bytes_max(1000).depth_max(16);
    let host = |b: deedbook::Builder| b.host(code).value_limits(limits);
    let life = Life::after(life.crash(), &clock, host).await;
    life.settle().await;
    life
}

#[derive(Clone, serde::Serialize, serde::Deserialize)]
struct Nest(Option<Box<Nest>>);

fn nest(levels: usize) -> Nest {
    (0..levels).fold(Nest(None), |inner, _| Nest(Some(Box::new(inner))))
}

fn kind(error: &WorkflowError) -> u32 {
    match error.kind() {
        WorkflowErrorKind::ResultNotStored => 1,
        WorkflowErrorKind::NotRecordable => 2,
        _ => 3,
    }
}

#[tokio::test]
async fn s45_an_effect_whose_result_cannot_be_stored_has_happened() {
    let outside = Outside::default();
    let code = Code::new(&outside, |ctx: Context, outside| async move {
        let mut seen = Vec::new();
        let send = async |op| outside.send(op).await;
        let step = ctx.step("handle").at_most_once();
        let handle: Result<Unstorable> = step
            .run(&1, async |op| {
                send(op).await?;
                Ok(Unstorable)
            })
            .await;
        seen.push(kind(&handle.unwrap_err()));
        let step = ctx.step("large").idempotent();
        let large: Result<String> = step
            .run(&1, async |op| {
                send(op).await?;
                Ok("x".repeat(1001))
            })
            .await;
        let error = large.map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("1000"), "{error}");
        seen.push(kind(&error));
        let step = ctx.step("deep").idempotent();
        let deep: Result<Nest> = step
            .run(&1, async |op| {
                send(op).await?;
                Ok(nest(100))
            })
            .await;
        seen.push(kind(&deep.map(|_| ()).unwrap_err()));
        Ok(seen)
    });
    let mut life = begun(&code).await;
    for _ in 0..3 {
        life.until("t", Status::Done).await;
        assert_eq!(life.book.wait::<Code>("t").await.unwrap(), [1, 1, 1]);
        assert_eq!(life.count("t", Kind::StepDone).await, 3);
        life = again(life, &code).await;
    }
    assert_eq!(outside.sent().len(), 3);
}

#[tokio::test]
async fn arguments_that_cannot_be_stored_are_refused_before_anything_is_written() {
    let outside = Outside::default();
    let code = Code::new(&outside, |ctx: Context, outside| async move {
        let send = async |op| outside.send(op).await;
        let a = ctx.step("a").idempotent().run(&Unstorable, send).await;
        let large = "x".repeat(1001);
        let b = ctx.step("b").idempotent().run(&large, send).await;
        assert!(b.as_ref().unwrap_err().to_string().contains("1000"));
        let c = ctx.step("c").idempotent().run(&nest(100), send).await;
        // An identity by arguments needs arguments that are equal to themselves.
        let step = ctx.step("d").by_arguments().idempotent();
        let d = step.run(&f64::NAN, send).await;
        Ok([a, b, c, d].map(|r| kind(&r.unwrap_err())).to_vec())
    });
    let mut life = begun(&code).await;
    for _ in 0..2 {
        assert_eq!(life.book.wait::<Code>("t").await.unwrap(), [2; 4]);
        assert_eq!(life.count("t", Kind::StepIntent).await, 0);
        life = again(life, &code).await;
    }
    assert!(outside.sent().is_empty());
}

#[derive(Debug)]
struct Chain(u32);

impl std::fmt::Display for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cause {}", self.0)
    }
}

impl std::error::Error for Chain {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // One whose causes run in a circle, and one with three.
        static CIRCLE: Chain = Chain(99);
        static LAST: Chain = Chain(0);
        static MIDDLE: Chain = Chain(1);
        match self.0 {
            99 => Some(&CIRCLE),
            2 => Some(&MIDDLE),
            1 => Some(&LAST),
            _ => None,
        }
    }
}

#[tokio::test]
async fn s32_s35_replay_gives_the_same_error_with_all_its_causes() {
    let outside = Outside::default();
    let code = Code::new(&outside, |ctx: Context, outside| async move {
        for first in [2, 99] {
            let failed: Result<()> = ctx
                .step("fails")
                .at_most_once()
                .run(&first, async |op| {
                    outside.send(op).await?;
                    Err(StepError::from(Chain(first)).code("E1").terminal())
                })
                .await;
            let error = failed.unwrap_err();
            assert_eq!(error.code(), "E1");
            let causes = &error.failure().causes;
            match first {
                2 => assert_eq!(causes[..], ["cause 1", "cause 0"]),
                _ => assert_eq!(causes.last().unwrap(), "[further causes cut]"),
            }
            // The next step's arguments hold everything of it: a difference would diverge.
            let shown = (error.code(), error.to_string(), causes);
            let step = ctx.step("report").idempotent();
            step.run(&shown, async |op| outside.send(op).await).await?;
        }
        ctx.signal::<u32>("go").await?;
        Ok(vec![])
    });
    let mut life = begun(&code).await;
    life = again(life, &code).await;
    life = again(life, &code).await;
    life.book.signal("t", "go", &0).await.unwrap();
    life.book.wait::<Code>("t").await.unwrap();
    assert_eq!(outside.sent().len(), 4);
}

#[tokio::test]
async fn s38_a_panic_stays_with_its_step_and_its_thread() {
    let outside = Outside::that([Does::Panics]);
    let code = Code::new(&outside, |ctx: Context, outside| async move {
        let step = ctx.step("pay").at_most_once();
        Ok(vec![step.run(&1, async |op| outside.send(op).await).await?])
    });
    let mut life = begun(&code).await;
    assert_eq!(life.row("t").await.status, Status::InDoubt);
    life.book.spawn::<Code>("u", ()).await.unwrap();
    assert_eq!(life.book.wait::<Code>("u").await.unwrap(), [7]);
    life = again(life, &code).await;
    assert_eq!(life.row("t").await.status, Status::InDoubt);
    assert_eq!(outside.sent().len(), 2);
    let records = life.records("t").await;
    let (_, record) = records.iter().find(|(h, _)| h.kind == Kind::StepUnknown).unwrap();
    let shown = String::from_utf8_lossy(&record.payload(Role::Error).unwrap().bytes).into_owned();
    assert!(shown.contains("the body panicked: the body broke"), "{shown}");
}

#[tokio::test]
async fn s38_a_panic_of_the_workflow_itself_stops_it_and_costs_nothing() {
    let outside = Outside::default();
    let wrong = Code::new(&outside, |ctx: Context, outside| async move {
        let step = ctx.step("pay").at_most_once();
        step.run(&1, async |op| outside.send(op).await).await?;
        panic!("a slip of the pen");
    });
    let life = begun(&wrong).await;
    let error = life.book.wait::<Code>("t").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Panicked);
    assert!(error.to_string().contains("a slip of the pen"));
    assert_eq!(life.row("t").await.status, Status::Stalled);
    let right = Code::new(&outside, |ctx: Context, outside| async move {
        let step = ctx.step("pay").at_most_once();
        Ok(vec![step.run(&1, async |op| outside.send(op).await).await?])
    });
    let life = again(life, &right).await;
    life.clock.advance(Duration::from_secs(1));
    assert_eq!(life.book.wait::<Code>("t").await.unwrap(), [7]);
    assert_eq!(outside.sent().len(), 1);
}
