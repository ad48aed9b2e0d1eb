//! Process facts: what a process says of itself in the journal's system thread.

use std::sync::Arc;

use deedbook::Deedbook;
use deedbook_journal::{
    checkpointer::Checkpointer as _,
    id::ThreadId,
    record::{Header, Kind},
};
use deedbook_memory::{MemoryHome, MemoryOptions};
use harness::{code::Code, outside::Outside};

#[tokio::test]
async fn a_process_says_that_it_began_and_that_it_ended_in_order() {
    let home = Arc::new(MemoryHome::new(MemoryOptions::new()));
    let code = Code::new(&Outside::default(), |_, _| async { Ok(Vec::new()) });
    let book = Deedbook::on(home.clone()).host(code).start().await.unwrap();
    book.run::<Code>("t", ()).await.unwrap();
    book.shutdown().await.unwrap();
    let home = MemoryHome::from_snapshot(home.snapshot(), None);
    let headers = async |thread: &ThreadId| -> Vec<Header> {
        let page = home.read(thread, 0, usize::MAX).await.unwrap();
        page.items.iter().map(|(_, record)| Header::parse(&record.header).unwrap()).collect()
    };
    let facts = headers(&ThreadId::system()).await;
    let said: Vec<_> = facts.iter().map(|h| (h.kind.clone(), h.process, h.call)).collect();
    assert_eq!(said, [(Kind::RunStart, None, None), (Kind::RunEnd, Some(0), None)]);
    let began = headers(&ThreadId::new("t").unwrap()).await.remove(0);
    assert_eq!((began.kind, began.process), (Kind::ThreadStart, Some(0)));
}
