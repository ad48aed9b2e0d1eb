//! What was promised, held against what is in the journal and what the downstreams have.

use std::collections::BTreeMap;

use deedbook::{Checkpointer, Filter, Status, Waits};
use deedbook_journal::{
    policy::Policy,
    record::{Header, Kind, Place},
};

use crate::{
    downstream::Service,
    world::{Lookup, World},
};

/// What a journal says, as far as it matters here.
#[derive(Debug, Default)]
pub(crate) struct Book {
    /// Steps with an effect, by operation key.
    steps: BTreeMap<String, Step>,
    /// Threads that did not come to their end, and what they wait for.
    pub(crate) open: Vec<String>,
    /// The steps that are in doubt, and why.
    pub(crate) doubts: Vec<Doubtful>,
    /// Whether a thread has diverged.
    pub(crate) diverged: bool,
}

/// A step that is in doubt.
#[derive(Debug)]
pub(crate) struct Doubtful {
    /// Its step id, as shown.
    pub(crate) step: String,
    pub(crate) why: String,
}

#[derive(Debug)]
struct Step {
    name: String,
    policy: Option<Policy>,
    done: bool,
}

/// Reads the journal of a world in which nothing runs.
pub(crate) fn read(world: &World) -> Result<Book, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let home = world.state().place().open(None)?;
    let book = runtime.block_on(read_all(&*home));
    world.state().place().end();
    book
}

async fn read_all(home: &dyn Checkpointer) -> Result<Book, String> {
    let mut book = Book::default();
    let mut after = None;
    loop {
        let page = home.list(&Filter::default(), after.as_ref(), 1000).await;
        let page = page.map_err(|error| error.to_string())?;
        for info in page.items {
            let (id, row) = (info.id.as_str(), &info.row);
            book.diverged |= row.status == Status::Diverged;
            if let Some(Waits::Doubt { step, .. }) = row.waits_for() {
                let why = row.detail.as_deref().unwrap_or("nothing known").to_owned();
                book.doubts.push(Doubtful { step: step.to_string(), why });
            }
            if !row.status.is_ended() {
                let detail = row.detail.as_deref().unwrap_or("nothing known");
                book.open.push(format!("{id} is {} ({detail})", row.status.as_str()));
            }
            let mut from = 0;
            let mut keys = BTreeMap::new();
            while from < info.next {
                let read = home.read(&info.id, from, 1 << 20).await;
                let records = read.map_err(|error| error.to_string())?.items;
                if records.is_empty() {
                    break;
                }
                for (_, record) in records {
                    let header = Header::parse(&record.header).map_err(|e| e.to_string())?;
                    from = header.n + 1;
                    book.take(header, &mut keys);
                }
            }
        }
        after = page.next;
        if after.is_none() {
            return Ok(book);
        }
    }
}

impl Book {
    fn take(&mut self, header: Header, keys: &mut BTreeMap<u64, String>) {
        match header.kind {
            Kind::StepIntent => {
                let Some(key) = header.key.map(|key| key.to_string()) else { return };
                keys.insert(header.n, key.clone());
                let name = header.place.as_ref().map_or("a step".to_owned(), step_name);
                let policy = header.policy;
                self.steps.entry(key).or_insert(Step { name, policy, done: false });
            }
            // Settled by its body, or by a probe or a person who says that it happened.
            Kind::StepDone | Kind::StepResolve
                if header.kind == Kind::StepDone
                    || header.verdict.as_deref() == Some("happened") =>
            {
                let key = header.call.and_then(|call| keys.get(&call));
                if let Some(step) = key.and_then(|key| self.steps.get_mut(key)) {
                    step.done = true;
                }
            }
            _ => {}
        }
    }

    /// What the world outside has that this journal does not account for, and the other way
    /// round. `usual` says which keys have an effect when nothing crashes.
    pub(crate) fn wrongs(&self, world: &World, usual: &BTreeMap<String, u32>) -> Vec<String> {
        let mut wrongs = Vec::new();
        let effects = effects(world);
        for (key, effects) in &effects {
            let Some(step) = self.steps.get(key) else {
                let service = service_of(world, key);
                wrongs.push(format!(
                    "{service} was asked under the key {key}, and no step of the journal has it: \
                     send `op.key()`; a `read`, and code outside of a step, may have no effect; \
                     and workflows run on a `World::book`"
                ));
                continue;
            };
            if *effects > 1 {
                let policy = step.policy.map_or("no policy", Policy::as_str);
                wrongs.push(format!("{} ({policy}) was done {effects} times", step.name));
            }
        }
        for (key, step) in &self.steps {
            if step.done && usual.contains_key(key) && !effects.contains_key(key) {
                wrongs.push(format!("{} is recorded as done and never happened", step.name));
            }
        }
        wrongs.extend(self.asked_twice(world));
        wrongs.extend(self.looked_up_wrongly(world));
        wrongs
    }

    /// Look-ups that cannot have found what they were for.
    fn looked_up_wrongly(&self, world: &World) -> Vec<String> {
        let state = world.state();
        let wrongs = state.kept.lookups.iter().filter_map(|lookup| {
            let Lookup { service, key, early } = lookup;
            match self.steps.get(key) {
                None => Some(format!(
                    "{service} was asked whether something happened under the key {key}, and no \
                     step of the journal has it: ask with `op.key()`"
                )),
                Some(step) if *early => Some(format!(
                    "{} was looked up while a request of it was still on its way to {service}: \
                     its `quiet` is shorter than the matrix' `on_its_way`",
                    step.name
                )),
                Some(_) => None,
            }
        });
        wrongs.collect()
    }

    /// Whether a doubt is what its policy promises where the process has died.
    pub(crate) fn is_at_most_once(&self, step: &str) -> bool {
        let mut named = self.steps.values().filter(|known| known.name == step);
        named.any(|known| known.policy == Some(Policy::AtMostOnce))
    }

    fn asked_twice(&self, world: &World) -> Vec<String> {
        let mut asked: BTreeMap<String, u32> = BTreeMap::new();
        for request in &world.state().kept.requests {
            if let Some((_, key)) = request.rsplit_once(' ') {
                *asked.entry(key.to_owned()).or_default() += 1;
            }
        }
        let strict = self.steps.iter().filter(|(_, s)| s.policy == Some(Policy::AtMostOnce));
        let twice = strict.filter_map(|(key, step)| {
            let times = *asked.get(key).filter(|times| **times > 1)?;
            Some(format!("{} (at_most_once) was asked for {times} times", step.name))
        });
        twice.collect()
    }

    /// The name of the step with this key.
    pub(crate) fn name(&self, key: &str) -> Option<&str> {
        self.steps.get(key).map(|step| step.name.as_str())
    }
}

/// How often something was done under each key.
pub(crate) fn effects(world: &World) -> BTreeMap<String, u32> {
    let state = world.state();
    let mut effects = BTreeMap::new();
    for (key, times) in state.kept.services.values().flat_map(|service| service.effects()) {
        *effects.entry(key.to_owned()).or_default() += times;
    }
    effects
}

/// A step's id, as people see it.
pub(crate) fn step_name(place: &Place) -> String {
    let branch: String = place.branch.parts().iter().map(|p| format!("{}/", p.as_str())).collect();
    let name = place.name.as_str();
    match &place.business_key {
        Some(key) => format!("{branch}{name}={key}"),
        None => format!("{branch}{name}#{}", place.occurrence),
    }
}

/// The downstream that was asked under this key.
fn service_of(world: &World, key: &str) -> String {
    let state = world.state();
    let asked = |service: &Service| service.effects().any(|(known, _)| known == key);
    let found = state.kept.services.iter().find(|(_, service)| asked(service));
    found.map_or_else(|| "somebody".to_owned(), |(name, _)| name.clone())
}
