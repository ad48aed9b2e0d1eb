//! What such a decorator does.

use deedbook::Deedbook;

use crate::{
    Anyhow,
    bank::Bank,
    steps::{charge_by_key, charge_card, refund_by_key, send_payment, ship},
    tell::{say, told},
};

pub(crate) async fn quick_start(book: &Deedbook, bank: &Bank) -> Anyhow {
    say("1  Identified by its arguments");
    told("charge_card", bank, charge_card(book, "order-42", 1999, bank)).await;
    told("charge_card again", bank, charge_card(book, "order-42", 1999, bank)).await;
    told("charge_card, another amount", bank, charge_card(book, "order-42", 2999, bank)).await;
    Ok(())
}

pub(crate) async fn key_at_the_call(book: &Deedbook, bank: &Bank) -> Anyhow {
    say("\n2  Identified by a key at the call");
    let key = "charge-order-42";
    told("charge_by_key", bank, charge_by_key(book, 1999, key, bank)).await;
    told("charge_by_key again", bank, charge_by_key(book, 1999, key, bank)).await;
    told("the same key, another amount", bank, charge_by_key(book, 2999, key, bank)).await;
    told("the same key, another step", bank, refund_by_key(book, 1999, key, bank)).await;
    Ok(())
}

pub(crate) async fn key_by_a_function(book: &Deedbook, bank: &Bank) -> Anyhow {
    say("\n3  Identified by a function of its arguments");
    told("ship \"ORD-42\"", bank, ship(book, "ORD-42", bank)).await;
    told("ship \" ord-42\"", bank, ship(book, " ord-42", bank)).await;
    Ok(())
}

pub(crate) async fn scope(book: &Deedbook, bank: &Bank) -> Anyhow {
    say("\n4  Once in each conversation");
    for conversation in ["conversation-1", "conversation-2", "conversation-1", ""] {
        let call = send_payment(book, "ann", 700, conversation, bank);
        told(&format!("send_payment in {conversation:?}"), bank, call).await;
    }
    Ok(())
}
