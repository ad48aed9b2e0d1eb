//! Rules broken on purpose, each noticed by the rig that must. `deedbook-simulation planted
//! --every-rig` asks the others too.

use deedbook_journal::embedded::planted::Broken;
use deedbook_simulation::planted::{must_notice, notices};

use crate::{PROGRAM, alone, crew};

fn noticed(fault: Broken) {
    let _alone = alone();
    let rig = must_notice(fault);
    let found = notices(&crew(), PROGRAM.as_ref(), rig, fault).unwrap();
    assert!(found, "{rig:?} does not notice {fault:?}");
}

#[test]
fn a_frame_that_is_not_synced_is_noticed() {
    noticed(Broken::SkipSync);
}

#[test]
fn an_answer_before_the_frame_is_noticed() {
    noticed(Broken::TellEarly);
}

#[test]
fn a_drain_ahead_of_the_log_is_noticed() {
    noticed(Broken::DrainUnsynced);
}

#[test]
fn a_drain_that_does_not_say_how_far_it_went_is_noticed() {
    noticed(Broken::DrainWithoutSettled);
}

#[test]
fn a_generation_that_is_used_again_is_noticed() {
    noticed(Broken::StaleGeneration);
}

#[test]
fn a_name_that_is_not_durable_is_noticed() {
    noticed(Broken::SkipFolderSync);
}

#[test]
fn found_frames_that_are_believed_are_noticed() {
    noticed(Broken::TrustFoundFrames);
}

#[test]
fn frames_behind_found_frames_are_noticed() {
    noticed(Broken::AppendBehindFrames);
}

#[test]
fn a_sync_that_is_tried_again_is_noticed() {
    noticed(Broken::TrySyncAgain);
}

#[test]
fn a_commit_in_one_phase_is_noticed() {
    noticed(Broken::OnePhaseCommit);
}

#[test]
fn a_checksum_that_is_not_checked_is_noticed() {
    noticed(Broken::SkipChecksum);
}

#[test]
fn a_damaged_frame_before_others_is_not_taken_for_a_torn_one() {
    noticed(Broken::IgnoreDamagedFrame);
}

#[test]
fn a_journal_without_its_log_is_not_opened() {
    noticed(Broken::OpenWithoutLog);
}

#[test]
fn a_title_that_is_not_durable_is_noticed() {
    noticed(Broken::SkipTitleSync);
}

#[test]
fn found_tables_that_are_believed_are_noticed() {
    noticed(Broken::TrustFoundTables);
}

#[test]
fn a_log_that_goes_before_it_is_drained_is_noticed() {
    noticed(Broken::ReleaseEarly);
}

#[test]
fn a_handle_that_lives_on_is_noticed() {
    noticed(Broken::LiveOn);
}

#[test]
fn a_commit_in_doubt_that_is_said_not_to_have_happened_is_noticed() {
    noticed(Broken::CallItFailed);
}

#[test]
fn an_older_copy_that_is_opened_is_noticed() {
    noticed(Broken::IgnoreAnchor);
}

#[test]
fn an_owner_that_lost_its_thread_and_writes_is_noticed() {
    noticed(Broken::SkipFence);
}
