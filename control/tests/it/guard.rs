//! Guarded steps over the socket: what each answer is, and who waits for whom.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::client::{Client, Served, served};

fn claim(client: &mut Client, more: &Value) -> Value {
    let mut args = json!({
        "step": "charge", "scope": "journal", "policy": "idempotent", "key": "ORD-1",
        "arguments": {"amount": 4200},
    });
    for (name, value) in more.as_object().unwrap() {
        args[name] = value.clone();
    }
    client.ask(json!({"id": 1, "op": "guard.claim", "args": args}))
}

fn ask(client: &mut Client, op: &str, args: Value) -> Value {
    client.ask(json!({"id": 2, "op": op, "args": args}))
}

fn two(book: &Served) -> (Client, Client) {
    (book.client(), book.client())
}

#[test]
fn a_step_is_fresh_once_and_then_settled_for_all() {
    let book = served();
    let (mut one, mut other) = two(&book);
    let fresh = claim(&mut one, &json!({}));
    let ticket = fresh["ok"]["ticket"].clone();
    assert_eq!((&fresh["ok"]["is"], &fresh["ok"]["attempt"]), (&json!("fresh"), &json!(1)));
    assert!(fresh["ok"]["key"].as_str().unwrap().starts_with("dk1_"), "{fresh}");
    let flight = claim(&mut other, &json!({}));
    assert_eq!(flight["ok"]["is"], "in_flight", "{flight}");
    assert_eq!(flight["ok"]["key"], fresh["ok"]["key"]);
    // A ticket is its connection's.
    let stolen = ask(&mut other, "guard.complete", json!({"ticket": ticket, "result": 1}));
    assert_eq!(stolen["error"]["kind"], "bad_request", "{stolen}");
    let renewed =
        ask(&mut one, "guard.renew", json!({"ticket": ticket, "lease_ns": 60_000_000_000u64}));
    assert!(renewed["ok"]["until"].is_string(), "{renewed}");
    let done = ask(&mut one, "guard.complete", json!({"ticket": ticket, "result": {"id": "r_1"}}));
    assert_eq!(done["ok"]["outcome"]["result"]["id"], "r_1", "{done}");
    let twice = ask(&mut one, "guard.complete", json!({"ticket": ticket, "result": 2}));
    assert_eq!(twice["error"]["kind"], "bad_request", "{twice}");
    let told = claim(&mut other, &json!({}));
    assert_eq!(told["ok"]["outcome"], done["ok"]["outcome"]);
    let conflict = claim(&mut other, &json!({"arguments": {"amount": 1}}));
    assert_eq!(conflict["ok"]["is"], "conflict", "{conflict}");
    assert_eq!(conflict["ok"]["fields"], json!(["/amount"]));
    assert!(!conflict.to_string().contains("4200"), "{conflict}");
}

#[test]
fn what_failed_may_be_tried_again_unless_it_failed_for_good() {
    let book = served();
    let mut client = book.client();
    let failure = json!({"message": "no answer", "code": "timeout"});
    for attempt in 1..=2 {
        let fresh = claim(&mut client, &json!({}));
        assert_eq!(fresh["ok"]["attempt"], attempt, "{fresh}");
        let args = json!({"ticket": fresh["ok"]["ticket"], "failure": failure});
        assert_eq!(ask(&mut client, "guard.fail", args)["ok"]["is"], "open");
    }
    let fresh = claim(&mut client, &json!({}));
    let args = json!({"ticket": fresh["ok"]["ticket"], "failure": failure, "final": true});
    let over = ask(&mut client, "guard.fail", args);
    assert_eq!(over["ok"]["outcome"]["failed"]["code"], "timeout", "{over}");
    // Nobody knows: at most once, it is a person's.
    let once = json!({"policy": "at_most_once", "key": "ORD-2"});
    let fresh = claim(&mut client, &once);
    // A word that an attempt cannot end with takes nothing away.
    for word in ["crash", "key_window", "unreadable", "so-so"] {
        let args = json!({"ticket": fresh["ok"]["ticket"], "failure": failure, "why": word});
        let refused = ask(&mut client, "guard.unknown", args);
        assert_eq!(refused["error"]["kind"], "bad_request", "{word}: {refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains("timeout"), "{refused}");
    }
    let args = json!({"ticket": fresh["ok"]["ticket"], "failure": failure, "why": "timeout"});
    let doubt = ask(&mut client, "guard.unknown", args);
    assert_eq!(
        (&doubt["ok"]["is"], &doubt["ok"]["doubt"]),
        (&json!("in_doubt"), &json!("timeout"))
    );
    assert_eq!(claim(&mut client, &once)["ok"]["is"], "in_doubt");
    for bad in [
        json!({"scope": null}),
        json!({"scope": {"thread": ""}}),
        json!({"policy": "often"}),
        json!({"identified_by": 1}),
        json!({"step": ""}),
        json!({"key": ""}),
    ] {
        let refused = claim(&mut client, &bad);
        assert_eq!(refused["error"]["kind"], "bad_request", "{bad}: {refused}");
    }
}

#[test]
fn what_is_settled_can_be_reset_and_happens_under_a_fresh_key() {
    let book = served();
    let mut client = book.client();
    let fresh = claim(&mut client, &json!({}));
    let args = json!({"ticket": fresh["ok"]["ticket"], "result": 1});
    let thread = fresh["ok"]["thread"].clone();
    let reset = json!({"thread": thread, "by": "user:ann", "reason": "wanted twice"});
    let early = ask(&mut client, "guard.reset", reset.clone());
    assert_eq!(early["error"]["kind"], "refused", "somebody is at it: {early}");
    assert_eq!(ask(&mut client, "guard.complete", args)["ok"]["is"], "settled");
    let nobody = json!({"thread": thread, "by": "", "reason": "wanted twice"});
    assert_eq!(ask(&mut client, "guard.reset", nobody)["error"]["kind"], "refused");
    let done = ask(&mut client, "guard.reset", reset);
    assert!(done["ok"]["position"].is_u64(), "{done}");
    let again = claim(&mut client, &json!({}));
    assert_eq!((&again["ok"]["is"], &again["ok"]["thread"]), (&json!("fresh"), &thread));
    assert_ne!(again["ok"]["key"], fresh["ok"]["key"]);
}

#[test]
fn who_waits_is_woken_when_it_is_done_and_when_its_owner_goes() {
    let book = served();
    let (mut one, mut other) = two(&book);
    let fresh = claim(&mut one, &json!({}));
    let waits = json!({"wait_ns": 30_000_000_000u64});
    let waiting = {
        let waits = waits.clone();
        thread::spawn(move || (claim(&mut other, &waits), Instant::now(), other))
    };
    thread::sleep(Duration::from_millis(300));
    let args = json!({"ticket": fresh["ok"]["ticket"], "result": null});
    let ended = Instant::now();
    assert_eq!(ask(&mut one, "guard.complete", args)["ok"]["is"], "settled");
    let (told, woken, mut other) = waiting.join().unwrap();
    assert_eq!(told["ok"]["outcome"]["result"], Value::Null, "{told}");
    assert!(woken - ended < Duration::from_millis(300), "polled, not woken");
    // A connection that ends lets go at once, whatever its lease is.
    let fresh = claim(&mut one, &json!({"key": "ORD-2", "lease_ns": 3_600_000_000_000u64}));
    assert_eq!(fresh["ok"]["is"], "fresh");
    let waiting = thread::spawn(move || {
        let args = json!({"key": "ORD-2", "wait_ns": 30_000_000_000u64});
        (claim(&mut other, &args), Instant::now())
    });
    thread::sleep(Duration::from_millis(300));
    let gone = Instant::now();
    drop(one);
    let (again, woken) = waiting.join().unwrap();
    assert_eq!((&again["ok"]["is"], &again["ok"]["attempt"]), (&json!("fresh"), &json!(2)));
    assert_eq!(again["ok"]["key"], fresh["ok"]["key"]);
    assert!(woken - gone < Duration::from_millis(300), "{:?}", woken - gone);
}

#[test]
fn a_wait_ends_when_the_caller_said() {
    let book = served();
    let (mut one, mut other) = two(&book);
    claim(&mut one, &json!({}));
    let since = Instant::now();
    let told = claim(&mut other, &json!({"wait_ns": 400_000_000u64}));
    assert_eq!(told["ok"]["is"], "in_flight", "{told}");
    assert!(since.elapsed() >= Duration::from_millis(400));
    assert!(since.elapsed() < Duration::from_secs(5));
}
