//! Logs with frames that are sound outside, whatever stands in them.

use deedbook_journal::{
    checkpointer::Checkpointer,
    embedded::bare::{self, Forged},
    id::ThreadId,
    pen::Draft,
    record::{Kind, Role},
};

use crate::{
    Broken, Target,
    fixture::{self, LOG_ID, Which},
    input::Input,
    same,
};

pub(crate) const TARGET: Target = Target {
    name: "log",
    promise: "a log with forged frames is refused, or goes on and is read the same after a close",
    run,
    seeds,
    words: &["\u{1}", "\u{2}", "\u{3}", "c", "order-4821", "\u{0}\u{0}\u{0}\u{0}"],
    bytes_max: 2048,
};

/// Frames: kind, flags, how far away, how many entries, how long, the entries.
fn run(input: &[u8]) -> Result<(), Broken> {
    let mut input = Input(input);
    let mut frames = Vec::new();
    while !input.is_over() && frames.len() < 8 {
        let (kind, flags, away) = (input.byte(), input.byte(), input.byte());
        let (entries, length) = (input.byte().into(), input.short().into());
        let follows = flags & 1 == 0;
        frames.push(Forged { kind, follows, away, entries, body: input.take(length) });
    }
    let disk = fixture::journal(Which::Crashed).copy();
    let log = fixture::log_of_the_crashed();
    let mut forged = Ok(());
    disk.edit(&log, |file| forged = bare::forge(file, &LOG_ID, &frames));
    forged?;
    let Ok(book) = fixture::open(&disk, false) else {
        return Ok(());
    };
    let id = ThreadId::new("one-more").unwrap();
    let before = fixture::wait(async {
        if let Some((mut pen, mut append)) = fixture::pen(&book, &id).await {
            let draft = Draft::new(&id, Kind::Marker).payload(Role::Value, vec![0xc3]);
            fixture::put(&mut pen, &mut append, draft);
            let _ = book.append(vec![append]).await;
        }
        let before = fixture::everything(&book).await?;
        Ok::<_, Broken>(book.close().await.is_ok().then_some(before))
    })?;
    drop(book);
    disk.unlock();
    let Some(before) = before else {
        return Ok(());
    };
    let book =
        fixture::open(&disk, true).map_err(|error| format!("closed and refused: {error}"))?;
    let after = fixture::wait(fixture::everything(&book))?;
    same("read again", &after, &before)
}

fn seeds() -> Vec<Vec<u8>> {
    let frame = |kind: u8, flags: u8, away: u8, entries: u8, body: &[u8]| {
        let length = (body.len() as u16).to_le_bytes();
        [&[kind, flags, away, entries][..], &length, body].concat()
    };
    let message = b"\x21\x02\x01c\x09\x09\x09\x09\x09\x09\x09\x09\x09\x09\x09\x09\x09\x09\x09\x09\x01\x02go\x01a\x05value";
    let erased = b"\x05\x03\x01c\x00\x03";
    let mut seeds = vec![
        Vec::new(),
        frame(2, 0, 0, 0, b""),
        frame(3, 0, 0, 0, b""),
        frame(1, 1, 0, 1, erased),
        frame(1, 0, 1, 1, erased),
        frame(1, 0, 0, 1, erased),
        frame(1, 0, 0, 1, message),
        [frame(1, 0, 0, 1, message), frame(1, 0, 0, 1, erased), frame(2, 0, 0, 0, b"")].concat(),
    ];
    // Real entries, said again.
    let stored = fixture::stored();
    for body in stored.iter().filter(|stored| stored[0] == 6) {
        seeds.push(frame(1, 0, 0, body[1], &body[2..]));
    }
    seeds
}
