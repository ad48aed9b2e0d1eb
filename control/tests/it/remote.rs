//! What a remote home does when its owner does not go on.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixListener,
    time::Duration,
};

use deedbook_control::{ConnectError, Remote};
use deedbook_journal::{
    checkpointer::{Append, Checkpointer, Claim, Filter, Message, StoreError},
    id::{Epoch, MessageId, ThreadId},
    message::SIGNAL,
    pen::{Draft, Pen},
    record::{Kind, RecordHash, Records, Role},
    row::{Row, Status},
};

use super::client::served;

fn row() -> Row {
    Row::new("refund", Status::Running, deedbook_journal::id::StoreTime(7))
}

async fn begin(home: &dyn Checkpointer, thread: &ThreadId, input: Vec<u8>) -> Append {
    let which = Claim::Thread { id: thread.clone(), create: Some(row()) };
    let lease = home.claim(which, "test", Duration::from_secs(60)).await.unwrap().remove(0);
    let log_id = home.identity().log_id;
    let mut pen = Pen::new(log_id, thread.clone(), lease.epoch, 0, RecordHash::ZERO);
    let start = Draft::new(thread, Kind::ThreadStart)
        .with(|h| h.workflow = Some("refund".into()))
        .payload(Role::Input, input);
    let record = pen.write(start, home.now().await.unwrap(), &mut || [3; 32]).1;
    let (thread, epoch) = (thread.clone(), lease.epoch);
    Append { thread, epoch, at: 0, records: vec![record].into(), consumes: Vec::new(), row: row() }
}

/// The largest value there is: 16 MiB of MessagePack.
fn largest() -> Vec<u8> {
    let length = (16 << 20) - 5;
    let mut bytes = vec![0xc6];
    bytes.extend_from_slice(&u32::try_from(length).unwrap().to_be_bytes());
    bytes.extend((0..length).map(|n| (n % 251) as u8));
    bytes
}

#[tokio::test]
async fn the_largest_payload_passes_both_ways() {
    let book = served();
    let remote = Remote::connect(book.journal()).await.unwrap();
    let thread = ThreadId::new("large").unwrap();
    let append = begin(&remote, &thread, largest()).await;
    let written = append.records.clone();
    assert_eq!(remote.append(vec![append]).await, [Ok(1)]);
    let page = remote.read(&thread, 0, usize::MAX).await.unwrap();
    assert_eq!(page.items[0].1, written[0]);
    assert_eq!(page.items, book.home.read(&thread, 0, usize::MAX).await.unwrap().items);
    // Several of them wait in an inbox, and come one answer after the other.
    for n in 0..3 {
        let message = Message {
            id: MessageId([n; 16]),
            kind: SIGNAL,
            name: "photo".into(),
            by: "test".into(),
            body: largest().into(),
        };
        remote.post(&thread, message).await.unwrap();
    }
    let inbox = remote.inbox(&thread).await.unwrap();
    assert_eq!(inbox, book.home.inbox(&thread).await.unwrap());
    assert_eq!(inbox.len(), 3);
}

#[tokio::test]
async fn what_does_not_fit_a_line_is_refused_and_nothing_else_suffers() {
    let book = served();
    let remote = Remote::connect(book.journal()).await.unwrap();
    let thread = ThreadId::new("huge").unwrap();
    let mut append = begin(&remote, &thread, largest()).await;
    let twice = append.records[0].clone();
    append.records.push(twice);
    let other = ThreadId::new("other").unwrap();
    let small = begin(&remote, &other, vec![0xc0]).await;
    let results = remote.append(vec![append, small]).await;
    assert!(matches!(&results[0], Err(StoreError::Refused { why }) if why.contains("at most")));
    assert_eq!(results[1], Ok(1));
}

#[tokio::test]
async fn an_owner_that_goes_leaves_a_write_unknown_and_a_read_failed() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    // An owner that hears every request and dies before it answers.
    let owner = std::thread::spawn(move || {
        for _ in 0..2 {
            let (stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            lines.next().unwrap().unwrap();
            let hex = |n| "0".repeat(n);
            let hello = format!(
                "{{\"id\":0,\"ok\":{{\"v\":1,\"log_id\":\"{}\",\"namespace\":\"{}\",\"secret\":\"{}\",\
                 \"pid\":1,\"program\":\"x\",\"runs\":false,\"file\":null,\
                 \"limits\":{{\"line_bytes\":1,\"in_flight\":1}}}}}}\n",
                hex(32),
                hex(32),
                hex(64)
            );
            (&stream).write_all(hello.as_bytes()).unwrap();
            lines.next().unwrap().unwrap();
        }
    });
    let thread = ThreadId::new("t").unwrap();
    let remote = Remote::connect_to(&socket).await.unwrap();
    let append = Append {
        thread: thread.clone(),
        epoch: Epoch(1),
        at: 0,
        records: Records::default(),
        consumes: Vec::new(),
        row: row(),
    };
    let results = remote.append(vec![append.clone()]).await;
    assert!(matches!(results[0], Err(StoreError::Unknown { .. })), "{results:?}");
    // This handle is dead: nothing more is written, and that is known.
    let again = remote.append(vec![append]).await;
    assert!(matches!(again[0], Err(StoreError::Failed { .. })), "{again:?}");
    let remote = Remote::connect_to(&socket).await.unwrap();
    let listed = remote.list(&Filter::default(), None, 9).await;
    assert!(matches!(listed, Err(StoreError::Failed { .. })), "{listed:?}");
    owner.join().unwrap();
    drop(folder);
    assert!(matches!(Remote::connect_to(&socket).await, Err(ConnectError::NotServed)));
}

#[tokio::test]
async fn closing_a_remote_home_leaves_the_journal_open() {
    let book = served();
    let remote = Remote::connect(book.journal()).await.unwrap();
    remote.close().await.unwrap();
    assert_eq!(remote.now().await, Err(StoreError::Closed));
    assert_eq!(remote.close().await, Err(StoreError::Closed));
    book.home.now().await.unwrap();
    // The other way round everybody is told.
    let remote = Remote::connect(book.journal()).await.unwrap();
    book.home.close().await.unwrap();
    assert_eq!(remote.now().await, Err(StoreError::Closed));
}

#[tokio::test]
async fn a_backup_is_made_by_the_owner_who_tells_how_far_it_is() {
    let book = served();
    let remote = Remote::connect(book.journal()).await.unwrap();
    let thread = ThreadId::new("t").unwrap();
    let append = begin(&remote, &thread, vec![0xc0]).await;
    assert_eq!(remote.append(vec![append]).await, [Ok(1)]);
    let mut told = 0;
    let copy = book.folder.path().join("copy.redb");
    let made = remote.backup(&copy, |_| told += 1).await.unwrap();
    assert_eq!((made.records, made.threads, &made.path), (1, 1, &copy));
    assert!(told > 0);
    let error = remote.backup(&copy, |_| {}).await.unwrap_err();
    assert!(matches!(&error, StoreError::Refused { why } if why.contains("already")), "{error}");
}

#[tokio::test]
async fn a_client_that_goes_lets_go_of_its_threads() {
    let book = served();
    let (one, other) = (
        Remote::connect(book.journal()).await.unwrap(),
        Remote::connect(book.journal()).await.unwrap(),
    );
    let id = ThreadId::new("t").unwrap();
    let append = begin(&one, &id, vec![0xc0]).await;
    assert_eq!(one.append(vec![append]).await, [Ok(1)]);
    let claim = || other.claim(Claim::Thread { id: id.clone(), create: None }, "x", HOUR);
    assert!(matches!(claim().await, Err(StoreError::Held { .. })));
    drop(one);
    let since = std::time::Instant::now();
    while let Err(error) = claim().await {
        assert!(matches!(error, StoreError::Held { .. }), "{error}");
        assert!(since.elapsed() < Duration::from_secs(20), "it is not let go of");
    }
}

const HOUR: Duration = Duration::from_secs(3600);
