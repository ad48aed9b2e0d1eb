//! Values: what is written is read back as it was, or refused before anything runs.

use std::{collections::BTreeMap, sync::Arc};

use deedbook::{Context, ErrorKind, ValueLimits, VirtualClock, WorkflowErrorKind};
use harness::{
    code::Code,
    outside::{Life, Outside},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{again, begun};

/// Passes a value through a step's arguments and its result, lives again, and compares.
async fn round_trip<T>(values: Vec<T>)
where
    T: Serialize + DeserializeOwned + PartialEq + Clone + Send + Sync + 'static,
{
    let outside = Outside::default();
    let values = Arc::new(values);
    let code = Code::new(&outside, move |ctx: Context, outside| {
        let values = values.clone();
        async move {
            let mut equal = Vec::new();
            for value in values.iter() {
                let step = ctx.step("echo").idempotent();
                let echo: T = step
                    .run(value, async |op| {
                        outside.send(op).await?;
                        Ok(value.clone())
                    })
                    .await?;
                equal.push(u32::from(echo == *value));
            }
            Ok(equal)
        }
    });
    let mut life = begun(&code).await;
    for _ in 0..2 {
        let equal = life.book.wait::<Code>("t").await.unwrap();
        assert!(equal.iter().all(|e| *e == 1), "{equal:?}");
        life = again(life, &code).await;
    }
    let sent = outside.sent().len();
    assert_eq!(outside.keys(), sent);
}

#[tokio::test]
async fn s10_omitted_null_and_default_are_three_calls() {
    let outside = Outside::default();
    let code = Code::new(&outside, |ctx: Context, outside| async move {
        for note in [None, Some(None), Some(Some("")), None] {
            let mut mail = BTreeMap::from([("to", Some("a"))]);
            mail.extend(note.map(|note| ("note", note)));
            let step = ctx.step("mail").by_arguments().idempotent();
            step.run(&mail, async |op| outside.send(op).await).await?;
        }
        Ok(vec![])
    });
    let life = begun(&code).await;
    life.book.wait::<Code>("t").await.unwrap();
    assert_eq!((outside.sent().len(), outside.keys()), (3, 3));
    // Nothing, and nothing said, come back as they were. What could not be told from them on the
    // way back, `Some(())`, is refused on the way in.
    round_trip(vec![()]).await;
    round_trip(vec![None, Some(false), Some(true)]).await;
}

#[tokio::test]
async fn s14_nul_and_text_that_looks_like_it() {
    let texts = ["\0", "\\u0000", "\\0", "", "a\0b", "\u{202e}", "e\u{301}", "é"];
    round_trip(texts.map(str::to_owned).to_vec()).await;
    // Thread ids of any characters are themselves.
    let code = Code::new(&Outside::default(), |ctx: Context, _| async move {
        Ok(vec![u32::try_from(ctx.thread_id().as_str().len())?])
    });
    let life = begun(&code).await;
    for id in texts.iter().filter(|t| !t.is_empty()) {
        let length = life.book.run::<Code>(id, ()).await.unwrap();
        assert_eq!(length, [u32::try_from(id.len()).unwrap()]);
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Shape {
    Unit,
    Tuple(i8, u64),
    Named { wide: i128, text: Option<String> },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Raw(#[serde(with = "bytes")] Vec<u8>);

mod bytes {
    use serde::{Deserializer, Serializer, de::Visitor};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], s: S) -> Result<S::Ok, S::Error> {
        s.serialize_bytes(bytes)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<u8>, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Vec<u8>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
                Ok(bytes.to_vec())
            }
        }
        d.deserialize_bytes(Bytes)
    }
}

#[tokio::test]
async fn s60_s62_s63_b16_values_come_back_as_they_were() {
    round_trip(vec![Raw(vec![0, 1, 255]), Raw(b"abc".to_vec()), Raw(vec![])]).await;
    round_trip(vec![BTreeMap::from([(1, 'a'), (2, 'b')])]).await;
    round_trip(vec![BTreeMap::from([(false, ()), (true, ())])]).await;
    round_trip(vec![
        Shape::Unit,
        Shape::Tuple(-1, u64::MAX),
        Shape::Named { wide: i128::MIN, text: None },
        Shape::Named { wide: i128::MAX, text: Some("🙂".to_owned()) },
    ])
    .await;
    round_trip(vec![0.0, -0.0, 1e300, f64::MIN_POSITIVE]).await;
    round_trip(vec![(0_u8, String::new(), Vec::<u32>::new(), None::<bool>)]).await;
}

#[tokio::test]
async fn s64_a_result_that_the_code_cannot_read_stops_the_thread_untouched() {
    let outside = Outside::default();
    let typed = Code::new(&outside, |ctx: Context, outside| async move {
        let step = ctx.step("order").idempotent();
        step.run(&1, async |op| outside.send(op).await).await?;
        ctx.signal::<u32>("go").await?;
        ctx.step("next").idempotent().run(&1, async |op| outside.send(op).await).await?;
        Ok(vec![])
    });
    let renamed = Code::new(&outside, |ctx: Context, outside| async move {
        let step = ctx.step("order").idempotent();
        let _: Shape = step.run(&1, async |_| Ok(Shape::Unit)).await?;
        ctx.step("next").idempotent().run(&1, async |op| outside.send(op).await).await?;
        Ok(vec![])
    });
    let life = begun(&typed).await;
    let life = again(life, &renamed).await;
    life.book.signal("t", "go", &0).await.unwrap();
    let error = life.book.wait::<Code>("t").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Diverged);
    assert!(error.to_string().contains("order#0"), "{error}");
    assert_eq!(outside.sent().len(), 1);
    let life = again(life, &typed).await;
    life.book.wait::<Code>("t").await.unwrap();
    assert_eq!(outside.sent().len(), 2);
}

#[tokio::test]
async fn s65_s66_one_limit_for_what_is_written_and_what_is_read() {
    for (limit, bytes, stored) in [
        (1 << 20, (1 << 20) - 64, true),
        (1 << 20, (1 << 20) + 1, false),
        (16 << 20, (16 << 20) - 64, true),
        (16 << 20, (16 << 20) + 1, false),
    ] {
        let outside = Outside::default();
        let code = Code::new(&outside, move |ctx: Context, outside| async move {
            let large = "x".repeat(bytes);
            let step = ctx.step("args").idempotent();
            let args = step.run(&large, async |op| outside.send(op).await).await;
            let step = ctx.step("result").idempotent();
            let result = step
                .run(&1, async |op| {
                    outside.send(op).await?;
                    Ok("x".repeat(bytes))
                })
                .await;
            let kinds = [
                args.err().map(|e| e.kind()),
                result.as_ref().err().map(deedbook::WorkflowError::kind),
            ];
            let expected = match stored {
                true => [None, None],
                false => [
                    Some(WorkflowErrorKind::NotRecordable),
                    Some(WorkflowErrorKind::ResultNotStored),
                ],
            };
            assert_eq!(kinds, expected);
            Ok(vec![u32::from(result.is_ok_and(|r| r == large))])
        });
        let limits = ValueLimits::new().bytes_max(limit);
        let clock = VirtualClock::new();
        let hosted = code.clone();
        let host = |b: deedbook::Builder| b.host(hosted).value_limits(limits);
        let mut life = Life::first(&clock, host).await;
        for _ in 0..2 {
            let equal = life.book.run::<Code>("t", ()).await.unwrap();
            assert_eq!(equal, [u32::from(stored)]);
            let hosted = code.clone();
            let host = |b: deedbook::Builder| b.host(hosted).value_limits(limits);
            life = Life::after(life.crash(), &clock, host).await;
        }
        assert_eq!(outside.sent().len(), 1 + usize::from(stored));
    }
}
