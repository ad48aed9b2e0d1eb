//! Clients that do not behave: a clear error, and everybody else is served all the same.

use std::{
    io::{Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    thread,
    time::{Duration, Instant},
};

use deedbook_control::limits::{CONNECTIONS_MAX, LINE_BYTES_MAX};
use serde_json::{Value, json};

use super::client::{Client, Served, served};

fn kind(answer: &Value) -> &str {
    answer["error"]["kind"].as_str().unwrap_or("none")
}

/// Whether somebody who behaves is served.
fn serves(book: &Served) {
    let now = book.client().ask(json!({"id": 7, "op": "now"}));
    assert!(now["ok"]["now"].is_string() && now["id"] == 7, "{now}");
}

#[test]
fn what_is_not_understood_is_told_with_its_id_and_the_connection_goes_on() {
    let book = served();
    let mut client = book.client();
    for (line, wanted, id) in [
        ("", "bad_json", json!(null)),
        ("{", "bad_json", json!(null)),
        ("nonsense", "bad_json", json!(null)),
        ("[1,2]", "bad_request", json!(null)),
        (r#"{"op":"now"}"#, "bad_request", json!(null)),
        (r#"{"id":-1,"op":"now"}"#, "bad_request", json!(null)),
        (r#"{"id":3}"#, "bad_request", json!(3)),
        (r#"{"id":4,"op":"fly"}"#, "bad_request", json!(4)),
        (r#"{"id":5,"op":"now","args":{"x":1}}"#, "bad_request", json!(5)),
        (r#"{"id":6,"op":"now","more":1}"#, "bad_request", json!(6)),
        (r#"{"id":7,"op":"read","args":{}}"#, "bad_request", json!(7)),
        (r#"{"id":8,"op":"read","args":{"thread":""}}"#, "bad_request", json!(8)),
        (r#"{"id":9,"op":"hello","args":{"v":1}}"#, "bad_request", json!(9)),
        (r#"{"id":10,"op":"read","args":{"thread":"none"}}"#, "no_such_thread", json!(10)),
        (r#"{"id":11,"op":"backup","args":{"to":"here"}}"#, "bad_request", json!(11)),
        (r#"{"id":12,"op":"append","args":{"group":[{}]}}"#, "bad_request", json!(12)),
    ] {
        client.say(line);
        let answer = client.hear();
        assert_eq!((kind(&answer), &answer["id"]), (wanted, &id), "{line}: {answer}");
        assert!(answer["error"]["message"].as_str().unwrap().len() > 5, "{answer}");
    }
    let deep = format!(r#"{{"id":1,"op":"now","args":{}1{}}}"#, "[".repeat(9999), "]".repeat(9999));
    client.say(&deep);
    assert_eq!(kind(&client.hear()), "bad_request");
    client.write.write_all(b"\xff\xfe\n").unwrap();
    assert_eq!(kind(&client.hear()), "bad_json");
    assert!(client.ask(json!({"id": 20, "op": "now"}))["ok"]["now"].is_string());
}

#[test]
fn a_client_says_hello_first_and_in_this_version() {
    let book = served();
    for (line, wanted) in [
        (json!({"id": 0, "op": "now"}), "no_hello"),
        (json!({"id": 0, "op": "hello", "args": {"v": 2}}), "version"),
        (json!({"id": 0, "op": "hello", "args": {}}), "bad_request"),
        (
            json!({"id": 0, "op": "hello", "args": {"v": 1, "log_id": "00".repeat(16)}}),
            "other_journal",
        ),
    ] {
        let mut client = Client::new(&book.socket());
        let answer = client.ask(line.clone());
        assert_eq!(kind(&answer), wanted, "{line}: {answer}");
        if wanted == "version" {
            assert_eq!(answer["error"]["versions"], json!([1]));
        }
        assert_eq!(client.hear(), Value::Null, "the connection is over");
    }
    serves(&book);
}

#[test]
fn a_line_that_is_too_long_is_refused_before_it_is_read() {
    let book = served();
    let mut client = book.client();
    let mut writer = client.write.try_clone().unwrap();
    let sent = thread::spawn(move || {
        let chunk = vec![b'x'; 1 << 20];
        (0..LINE_BYTES_MAX / chunk.len() + 8).all(|_| writer.write_all(&chunk).is_ok())
    });
    let answer = client.hear();
    assert_eq!(kind(&answer), "too_long", "{answer}");
    assert_eq!(answer["error"]["bytes_max"], LINE_BYTES_MAX);
    sent.join().unwrap();
    serves(&book);
}

#[test]
fn half_a_line_and_a_client_that_goes_are_no_trouble() {
    let book = served();
    let mut client = book.client();
    client.write.write_all(br#"{"id":1,"op":"no"#).unwrap();
    client.write.shutdown(Shutdown::Write).unwrap();
    let answer = client.hear();
    assert_eq!(kind(&answer), "bad_json", "{answer}");
    // What was asked is answered, also when nothing more is asked.
    let mut client = book.client();
    client.say(r#"{"id":1,"op":"now"}"#);
    client.write.shutdown(Shutdown::Write).unwrap();
    assert!(client.hear()["ok"]["now"].is_string());
    for cut in 0..40 {
        let mut client = book.client();
        let line = br#"{"id":1,"op":"list"}"#;
        let _ = client.write.write_all(&line[..cut % line.len()]);
        drop(client);
    }
    serves(&book);
}

#[test]
fn a_thousand_quick_connections_are_served() {
    let book = served();
    let socket = book.socket();
    let workers: Vec<_> = (0..10)
        .map(|_| {
            let socket = socket.clone();
            thread::spawn(move || {
                for _ in 0..100 {
                    let mut client = Client::new(&socket);
                    let hello = client.ask(json!({"id": 0, "op": "hello", "args": {"v": 1}}));
                    assert_eq!(hello["ok"]["v"], 1, "{hello}");
                    assert!(client.ask(json!({"id": 1, "op": "now"}))["ok"]["now"].is_string());
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
    // Others hang up without a word.
    for _ in 0..1000 {
        drop(UnixStream::connect(&socket).unwrap());
    }
    serves(&book);
}

#[test]
fn more_clients_than_there_is_room_for_are_told() {
    let book = served();
    let kept: Vec<_> = (0..CONNECTIONS_MAX).map(|_| book.client()).collect();
    let mut late = Client::new(&book.socket());
    assert_eq!(kind(&late.hear()), "busy");
    drop(kept);
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let mut client = Client::new(&book.socket());
        if client.ask(json!({"id": 0, "op": "hello", "args": {"v": 1}}))["ok"]["v"] == 1 {
            break;
        }
        assert!(Instant::now() < until, "there is no room any more");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn many_requests_in_flight_are_all_answered_once() {
    let book = served();
    let mut client = book.client();
    let mut writer = client.write.try_clone().unwrap();
    let sender = thread::spawn(move || {
        for id in 0..2000 {
            let op = if id % 3 == 0 { "list" } else { "now" };
            writer.write_all(format!("{{\"id\":{id},\"op\":\"{op}\"}}\n").as_bytes()).unwrap();
        }
    });
    let mut ids: Vec<u64> = (0..2000).map(|_| client.hear()["id"].as_u64().unwrap()).collect();
    sender.join().unwrap();
    ids.sort_unstable();
    assert_eq!(ids, (0..2000).collect::<Vec<_>>());
}

#[test]
fn a_flood_whose_answers_nobody_reads_holds_up_nobody_else() {
    let book = served();
    let client = book.client();
    client.write.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut writer = client.write.try_clone().unwrap();
    let line = b"{\"id\":1,\"op\":\"now\"}\n".repeat(1000);
    // The server stops reading when its answers are not read: memory stays bounded.
    let mut sent = 0;
    while sent < 64 << 20 {
        match writer.write(&line) {
            Ok(written) => sent += written,
            Err(_) => break,
        }
    }
    assert!(sent < 64 << 20, "it took everything");
    serves(&book);
}

#[test]
fn a_server_that_stops_answers_what_was_asked_and_is_gone() {
    let mut book = served();
    let socket = book.socket();
    let mut client = book.client();
    client.say(r#"{"id":1,"op":"now"}"#);
    assert!(client.hear()["ok"]["now"].is_string());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(book.serving.take().unwrap().stop());
    let mut rest = Vec::new();
    client.read.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty());
    assert!(UnixStream::connect(&socket).is_err());
    assert!(!socket.exists());
}
