//! What happens next: the seed's decisions.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use deedbook::{
    Clock, Error, ErrorKind, StoreTime, ThreadId, VirtualClock, checkpointer::StoreIdentity,
};
use deedbook_journal::history::End;
use deedbook_memory::{MemoryHome, MemoryOptions};

use super::{Lived, process::Process};
use crate::{
    check::Check,
    durable::Durable,
    home::{GatedHome, Way},
    program::{Maker, Program, signals},
    random::Random,
    replay,
    world::World,
};

/// After so many rounds at most nothing bad happens any more.
const BAD_ROUNDS_MAX: u64 = 400;
/// What may go badly in one life.
const DEATHS_MAX: u64 = 5;
/// Processes of a journal at a time.
const PROCESSES_MAX: usize = 2;

pub(super) struct Journal {
    pub(super) home: Arc<MemoryHome>,
    pub(super) identity: StoreIdentity,
    pub(super) world: World,
}

/// What somebody sent to a thread.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub(super) name: String,
    pub(super) value: u64,
}

pub(super) struct Thread {
    pub(super) journal: usize,
    pub(super) id: ThreadId,
    pub(super) seed: u64,
    pub(super) program: Program,
    pub(super) durable: Arc<Mutex<Durable>>,
    /// The signals that are still to be sent: the line, and how many there were of it.
    pub(super) unsent: Vec<(u64, u64)>,
    pub(super) sent: Vec<Sent>,
    /// What people said last, and when.
    pub(super) said: BTreeMap<String, StoreTime>,
    /// Whether somebody will want it to be cancelled.
    pub(super) unwanted: bool,
    /// What was told of its end.
    pub(super) told: Vec<Result<u64, ErrorKind>>,
}

pub(super) struct Life {
    pub(super) random: Random,
    pub(super) clock: VirtualClock,
    pub(super) world: World,
    pub(super) journals: Vec<Journal>,
    pub(super) threads: Vec<Thread>,
    pub(super) processes: Vec<Process>,
    pub(super) counts: BTreeMap<&'static str, u64>,
    /// Before this round bad things happen.
    bad_until: u64,
    deaths: u64,
    started: u64,
}

impl Life {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x11FE);
        let clock = VirtualClock::new();
        let world = World::new(seed, clock.clone());
        let bad_until = if random.once_in(16) { 0 } else { random.below(BAD_ROUNDS_MAX) };
        let mut life = Self {
            random,
            clock,
            world,
            journals: Vec::new(),
            threads: Vec::new(),
            processes: Vec::new(),
            counts: BTreeMap::new(),
            bad_until,
            deaths: 0,
            started: 0,
        };
        let journals = if life.random.once_in(6) { 2 } else { 1 };
        let threads = 1 + life.random.below(3);
        for journal in 0..journals {
            life.found(journal, seed, threads);
        }
        life
    }

    /// Two journals have threads of the same names and programs: nothing may come of that.
    fn found(&mut self, journal: u8, seed: u64, threads: u64) {
        let mut identity =
            StoreIdentity { log_id: [7 + journal; 16], namespace: [8; 16], secret: [9; 32] };
        identity.namespace[..8].copy_from_slice(&seed.to_le_bytes());
        identity.namespace[8] += journal;
        let options = MemoryOptions::new().identity(identity.clone());
        let options = match self.clock.source() {
            Some(source) => options.time(source),
            None => options,
        };
        let world = self.world.of(&format!("j{journal}/"));
        for number in 0..threads {
            let id = ThreadId::new(format!("t{number}")).unwrap();
            // Now and then two threads run one program.
            let program = (seed << 4)
                + if number > 0 && seed.is_multiple_of(3) { number - 1 } else { number };
            let durable = Durable::new(id.clone(), identity.secret);
            let durable = Arc::new(Mutex::new(durable));
            world.records(id.as_str(), durable.clone());
            let code = Maker::program(program);
            let mut unsent = Vec::new();
            for (line, count) in signals(&code) {
                unsent.extend((0..count).rev().map(|nth| (line, nth)));
            }
            self.threads.push(Thread {
                journal: usize::from(journal),
                id,
                seed: program,
                program: code,
                durable,
                unsent,
                sent: Vec::new(),
                said: BTreeMap::new(),
                unwanted: self.random.once_in(6),
                told: Vec::new(),
            });
        }
        let home = Arc::new(MemoryHome::new(options));
        self.journals.push(Journal { home, identity, world });
    }

    pub(super) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_insert(0) += 1;
    }

    /// How the thread ended, if that is durable.
    pub(super) fn ended(&self, thread: usize) -> Option<End> {
        self.threads[thread].durable.lock().unwrap().history.end().cloned()
    }

    pub(super) fn all_ended(&self) -> bool {
        (0..self.threads.len()).all(|thread| self.ended(thread).is_some())
    }

    /// Until every thread has ended, and its end was told.
    pub(super) async fn drive(&mut self, rounds_max: u64) {
        let most = self.bad_until + rounds_max;
        for round in 0..most {
            self.hear().await;
            tokio::task::yield_now().await;
            let good = round >= self.bad_until;
            if good && self.all_ended() && self.threads.iter().all(|t| !t.told.is_empty()) {
                self.count("lives");
                break;
            }
            if good {
                self.go_well().await;
            } else {
                self.go_on().await;
            }
        }
        for thread in 0..self.threads.len() {
            let ended = self.ended(thread).is_some();
            let (id, program) = (self.threads[thread].id.clone(), &self.threads[thread].program);
            let rows = || format!("{} {:?}", id.as_str(), program);
            self.world
                .check(Check::Ends, ended, || format!("no end after {most} rounds: {}", rows()));
        }
    }

    /// Callers hear what became of their threads.
    async fn hear(&mut self) {
        let mut at = 0;
        while at < self.processes.len() {
            let (told, over) = self.processes[at].go_on().await;
            for (thread, result) in told {
                self.tell(thread, result);
            }
            if over {
                self.remove(at);
            } else {
                at += 1;
            }
        }
    }

    fn tell(&mut self, thread: usize, result: Result<u64, Error>) {
        let told = match result {
            Ok(result) => Ok(result),
            Err(error) => Err(error.kind()),
        };
        let ends = [ErrorKind::Failed, ErrorKind::Cancelled];
        match told {
            Err(kind @ (ErrorKind::Diverged | ErrorKind::Stalled | ErrorKind::Panicked)) => {
                let id = self.threads[thread].id.clone();
                let why = || format!("{} is {kind:?}", id.as_str());
                self.world.check(Check::Replay, false, why);
                // It does not come to its end: once is enough.
                self.bad_until = 0;
            }
            Err(kind) if !ends.contains(&kind) => {}
            told => self.threads[thread].told.push(told),
        }
    }

    /// A process is no more; what it was at is dropped where it stands.
    pub(super) fn remove(&mut self, at: usize) {
        drop(self.processes.remove(at));
    }

    /// One thing happens, good or bad.
    async fn go_on(&mut self) {
        match self.random.below(100) {
            0..=59 => self.let_pass(),
            60..=74 => {
                let thread = self.random.index(self.threads.len());
                if !self.speak(thread).await {
                    self.let_pass();
                }
            }
            75..=82 => self.turn_clock(),
            83..=86 => self.kill(),
            87..=91 => self.cut_or_heal(),
            92 | 93 => self.fail_soon(),
            94 | 95 => {
                let journal = self.random.index(self.journals.len());
                self.start(journal);
            }
            96 => {
                if let Some(at) = self.any_process() {
                    self.processes[at].shut_down();
                    self.count("shutdowns");
                }
            }
            _ => {
                let thread = self.random.index(self.threads.len());
                self.call(thread);
            }
        }
        self.man();
    }

    /// Nothing bad happens: what can go on does, then people speak, then time passes.
    async fn go_well(&mut self) {
        for at in (0..self.processes.len()).rev() {
            self.processes[at].home.way.heal();
            if self.processes[at].home.way.has_ended() {
                self.die(at).await;
            }
        }
        self.man();
        if self.open_some() {
            return;
        }
        for thread in 0..self.threads.len() {
            if self.speak(thread).await {
                return;
            }
        }
        let called = (0..self.threads.len()).filter(|t| self.threads[*t].told.is_empty());
        let called: Vec<_> = called.collect();
        let mut any = false;
        for thread in called {
            any |= self.call(thread);
        }
        // A thread that a dead process holds is free only once time has passed.
        if !any || self.random.once_in(2) {
            self.turn_clock();
        }
    }

    fn open_some(&mut self) -> bool {
        let cut: Vec<u64> =
            self.processes.iter().filter(|p| p.home.way.is_cut()).map(|p| p.number).collect();
        self.world.open_some_of(&mut self.random, |process| !cut.contains(&process))
    }

    fn let_pass(&mut self) {
        if !self.open_some() {
            self.turn_clock();
        }
    }

    /// Time passes: to the next time that somebody waits for, or to any time before it. A request
    /// on its way arrives first: how long that takes at most is what probes rely on.
    fn turn_clock(&mut self) {
        while self.world.under_way() {
            self.world.open_some_of(&mut self.random, |_| false);
        }
        if self.random.once_in(4) {
            let some = self.random.below(3_000_000_000);
            self.clock.advance(std::time::Duration::from_nanos(some));
        } else {
            self.clock.advance_to_next();
        }
        self.world.arrive();
        self.count("turns of the clock");
    }

    fn any_process(&mut self) -> Option<usize> {
        (!self.processes.is_empty()).then(|| self.random.index(self.processes.len()))
    }

    fn kill(&mut self) {
        if self.deaths < DEATHS_MAX
            && let Some(at) = self.any_process()
        {
            self.deaths += 1;
            self.count("processes killed");
            self.remove(at);
        }
    }

    fn cut_or_heal(&mut self) {
        let Some(at) = self.any_process() else { return };
        let way = &self.processes[at].home.way;
        if way.is_cut() {
            way.heal();
        } else {
            way.cut();
            self.count("processes cut off");
        }
    }

    fn fail_soon(&mut self) {
        if self.deaths < DEATHS_MAX
            && let Some(at) = self.any_process()
        {
            self.deaths += 1;
            let (appends, stored) = (self.random.below(6), self.random.once_in(2));
            self.processes[at].home.way.end_after(appends, stored);
            self.count("journals that fail");
        }
    }

    /// A journal has failed in a process: nothing succeeds there any more, and it ends.
    async fn die(&mut self, at: usize) {
        let number = self.processes[at].number;
        if let Some(book) = self.processes[at].book.clone() {
            let signalled = book.signal("t0", "signal0", &0).await.is_ok();
            let cancelled = book.cancel("t0", "user:ada", "enough").await.is_ok();
            let why = || format!("process {number} goes on after its journal has failed");
            self.world.check(Check::Dead, !signalled && !cancelled, why);
        }
        self.remove(at);
    }

    /// Every journal is served by somebody.
    fn man(&mut self) {
        for journal in 0..self.journals.len() {
            let served = self.processes.iter().any(|p| p.journal == journal);
            if !served {
                self.start(journal);
            }
        }
    }

    fn start(&mut self, journal: usize) {
        let here = self.processes.iter().filter(|p| p.journal == journal).count();
        if here >= PROCESSES_MAX {
            return;
        }
        self.started += 1;
        let number = self.started;
        let world = self.journals[journal].world.in_process(number);
        let mine = self.threads.iter().filter(|t| t.journal == journal);
        let home = Arc::new(GatedHome {
            inner: self.journals[journal].home.clone(),
            world: world.clone(),
            gated: !self.random.once_in(4),
            durable: mine.map(|t| (t.id.clone(), t.durable.clone())).collect(),
            way: Way::default(),
        });
        let clock = self.clock.clone();
        self.processes.push(Process::start(number, journal, home, world, clock));
        self.count("processes");
    }

    /// Somebody waits for the end of a thread, in one of the processes that serve it.
    fn call(&mut self, thread: usize) -> bool {
        let Thread { journal, id, seed, .. } = &self.threads[thread];
        let (journal, id, seed) = (*journal, id.clone(), *seed);
        let here = |p: &Process| p.journal == journal && p.answers().is_some();
        let mine: Vec<_> =
            (0..self.processes.len()).filter(|at| here(&self.processes[*at])).collect();
        if mine.is_empty() {
            return false;
        }
        let at = mine[self.random.index(mine.len())];
        self.processes[at].call(thread, id.as_str(), seed)
    }

    /// Nobody is there any more.
    pub(super) fn end(&mut self) {
        self.processes.clear();
    }

    pub(super) fn lived(self) -> Lived {
        let mut print = 0xcbf2_9ce4_8422_2325_u64;
        let mut records = 0;
        for thread in &self.threads {
            let home = &self.journals[thread.journal].home;
            for record in replay::records(home, &thread.id, 0) {
                records += 1;
                for byte in record.hash.0 {
                    print = (print ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
                }
            }
        }
        let mut counts = self.counts;
        counts.insert("threads", self.threads.len() as u64);
        counts.insert("records", records);
        counts.insert("bodies begun", self.world.executions());
        Lived { checks: self.world.checks(), counts, wrongs: self.world.wrongs(), print }
    }
}
