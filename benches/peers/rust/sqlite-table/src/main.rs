//! What a careful engineer writes without any library: a table of steps in SQLite, WAL and
//! `synchronous=FULL`, one transaction for each intent and one for each outcome, one connection
//! for all, and the arguments compared.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    thread,
};

use peer_protocol::{Peer, Result, Stage, arguments, drive};
use rusqlite::{Connection, params};

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS steps (
        workflow TEXT NOT NULL, number INTEGER NOT NULL, arguments TEXT NOT NULL, result TEXT,
        PRIMARY KEY (workflow, number)
    ) WITHOUT ROWID";

struct Program {
    stage: &'static Stage,
    table: Mutex<Connection>,
}

/// A step as recorded: its arguments, and its result if its outcome is known.
type Recorded = HashMap<u32, (String, Option<String>)>;

impl Program {
    fn with<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        Ok(work(&self.table.lock().unwrap_or_else(PoisonError::into_inner))?)
    }

    fn recorded(&self, id: &str) -> Result<Recorded> {
        self.with(|table| {
            let query = "SELECT number, arguments, result FROM steps WHERE workflow = ?";
            let mut query = table.prepare_cached(query)?;
            let rows =
                query.query_map([id], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?;
            rows.collect()
        })
    }

    fn step(&self, recorded: &Recorded, id: &str, number: u32) -> Result<String> {
        let arguments = arguments(number);
        match recorded.get(&number) {
            Some((before, _)) if *before != arguments => {
                return Err(format!("step {number} of {id} was recorded differently").into());
            }
            Some((_, Some(result))) => return Ok(result.clone()),
            // In doubt: the body is idempotent, so it is executed again.
            Some((_, None)) => {}
            None => {
                let intent = "INSERT INTO steps (workflow, number, arguments) VALUES (?, ?, ?)";
                let row = params![id, number, arguments];
                self.with(|table| table.prepare_cached(intent)?.execute(row))?;
            }
        }
        let result = self.stage.blocking_body(number);
        let outcome = "UPDATE steps SET result = ? WHERE workflow = ? AND number = ?";
        let row = params![result, id, number];
        self.with(|table| table.prepare_cached(outcome)?.execute(row))?;
        Ok(result)
    }

    fn workflow(&self, id: &str, steps: u32) -> Result<()> {
        let recorded = self.recorded(id)?;
        for number in 0..steps {
            self.step(&recorded, id, number)?;
            self.stage.finished(number);
        }
        Ok(())
    }
}

impl Peer for Program {
    fn open(stage: &'static Stage) -> Result<Self> {
        let table = Connection::open(stage.folder.join("steps.sqlite"))?;
        table.pragma_update(None, "journal_mode", "WAL")?;
        table.pragma_update(None, "synchronous", "FULL")?;
        table.execute_batch(SCHEMA)?;
        Ok(Self { stage, table: Mutex::new(table) })
    }

    fn run(&self, ids: &[String], steps: u32) -> Result<()> {
        thread::scope(|scope| {
            let all: Vec<_> =
                ids.iter().map(|id| scope.spawn(move || self.workflow(id, steps))).collect();
            all.into_iter().try_for_each(|one| one.join().map_err(|_| "a workflow panicked")?)
        })
    }
}

fn main() {
    drive::<Program>();
}
