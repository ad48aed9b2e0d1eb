//! The cases, by promise.

mod append;
mod claims;
mod durable;
mod inbox;
mod lists;
mod reads;

use crate::report::Case;

/// Makes a [`Case`] of an async function.
macro_rules! case {
    ($module:ident :: $name:ident) => {
        Case {
            name: concat!(stringify!($module), "::", stringify!($name)),
            run: |subject| Box::pin($module::$name(subject)),
        }
    };
}

/// Every case, in the order in which they are run.
#[must_use]
pub fn cases() -> Vec<Case> {
    vec![
        case!(append::is_conditional_on_the_position),
        case!(append::is_conditional_on_the_epoch),
        case!(append::of_an_unknown_thread_is_refused),
        case!(append::stores_an_element_whole_or_not_at_all),
        case!(append::answers_each_element_of_a_group),
        case!(append::chains_elements_of_one_group),
        case!(append::refuses_what_breaks_the_chain),
        case!(append::without_records_replaces_the_row),
        case!(append::by_many_at_once_is_gapless),
        case!(append::of_one_position_by_many_succeeds_once),
        case!(inbox::takes_each_id_once),
        case!(inbox::takes_each_id_once_after_consumption),
        case!(inbox::refuses_unknown_and_ended_threads),
        case!(inbox::keeps_order_and_content),
        case!(inbox::is_consumed_with_the_records),
        case!(inbox::consumption_is_all_or_nothing),
        case!(claims::raise_the_epoch),
        case!(claims::make_threads_that_nobody_sees_yet),
        case!(claims::keep_others_out_until_they_expire),
        case!(claims::are_renewed_and_released),
        case!(claims::that_are_lost_are_not_renewed),
        case!(claims::of_due_threads_find_those_with_something_to_do),
        case!(claims::of_due_threads_wait_for_the_time),
        case!(claims::of_due_threads_share_out),
        case!(claims::fence_a_zombie),
        case!(claims::do_not_create_unasked),
        case!(lists::filter),
        case!(lists::page_in_byte_order),
        case!(lists::hide_reserved_threads),
        case!(lists::show_inbox_and_holder),
        case!(lists::take_any_thread_id),
        case!(reads::page_by_bytes),
        case!(reads::begin_anywhere),
        case!(reads::of_an_unknown_thread_are_errors),
        case!(reads::take_large_payloads),
        case!(reads::take_many_records),
        case!(reads::of_the_log_are_contiguous),
        case!(reads::of_erased_payloads_keep_the_chain),
        case!(reads::refuse_impossible_erasures),
        case!(durable::after_reopening),
        case!(durable::message_ids_after_reopening),
        case!(durable::messages_of_ended_threads),
        case!(durable::fences_after_reopening),
        case!(durable::clock_never_goes_back),
        case!(durable::clock_is_not_behind_the_records),
        case!(durable::observers_see_what_was_acknowledged),
        case!(durable::nothing_after_close),
    ]
}
