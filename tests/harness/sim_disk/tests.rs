use std::path::Path;

use deedbook_journal::embedded::{Disk, DiskFile};

use super::*;

const A: &str = "/sim/a";

fn file(disk: &SimDisk) -> Arc<dyn DiskFile> {
    let file = disk.create_new(Path::new(A)).unwrap();
    disk.sync_dir(Path::new("/sim")).unwrap();
    file.write_at(0, &[1; 8192]).unwrap();
    file.sync().unwrap();
    file
}

fn lost(disk: &SimDisk) -> Vec<u8> {
    let image = disk.after_power_loss(disk.operations(), Loss::Everything, &mut Random::new(1));
    image.read(Path::new(A)).unwrap()
}

/// Makes the next operation fail.
fn fail_next(disk: &SimDisk, run: impl Fn() -> std::io::Result<()>) {
    disk.fail(disk.tried().len(), Fault::Device, false, 0);
    assert_eq!(run().unwrap_err().raw_os_error(), Some(5));
    assert!(disk.mend() > 0);
}

#[test]
fn what_a_failed_sync_lost_is_seen_and_later_syncs_do_not_write_it() {
    let disk = SimDisk::default();
    let file = file(&disk);
    file.write_at(0, &[2; 100]).unwrap();
    // Of the seeds, one under which nothing was kept.
    let seed = (0..).find(|seed| {
        let mut platter = disk.state().platter.clone();
        let op = platter.failed_sync(0, &mut Random::new(*seed));
        matches!(op, Op::FailedSync(_, kept) if kept.is_empty())
    });
    disk.fail(disk.tried().len(), Fault::Device, false, seed.unwrap());
    assert!(file.sync().is_err());
    disk.mend();
    file.sync().unwrap();
    assert_eq!(disk.read(Path::new(A)).unwrap()[..100], [2; 100]);
    assert_eq!(lost(&disk)[..100], [1; 100]);
    // A write to another page does not help; one to the same page does.
    file.write_at(4096, &[3; 10]).unwrap();
    file.sync().unwrap();
    assert_eq!(lost(&disk)[..100], [1; 100]);
    file.write_at(200, &[3; 10]).unwrap();
    file.sync().unwrap();
    assert_eq!(lost(&disk)[..100], [2; 100]);
}

#[test]
fn what_the_system_drops_from_memory_is_read_as_the_disk_has_it() {
    let disk = SimDisk::default();
    let file = file(&disk);
    file.write_at(0, &[2; 8192]).unwrap();
    fail_next(&disk, || file.sync());
    file.write_at(5000, &[4; 8]).unwrap();
    let there = disk.state().platter.with_pending(0);
    disk.evict();
    let read = disk.read(Path::new(A)).unwrap();
    assert_eq!(read, there);
    assert_eq!(read[5000..5008], [4; 8]);
}

#[test]
fn a_short_write_has_happened_for_its_first_half() {
    let disk = SimDisk::default();
    let file = file(&disk);
    for (fault, half) in [(Fault::Device, 2), (Fault::Short, 3), (Fault::Full, 4)] {
        disk.fail(disk.tried().len(), fault, false, 0);
        assert!(file.write_at(0, &[half; 10]).is_err());
        disk.mend();
        let read = disk.read(Path::new(A)).unwrap();
        assert_eq!(read[..5] == [half; 5], fault != Fault::Device, "{fault:?}");
        assert_ne!(read[5..10], [half; 5]);
    }
}

#[test]
fn a_length_or_a_name_that_fails_has_not_happened() {
    let disk = SimDisk::default();
    let file = file(&disk);
    fail_next(&disk, || file.set_len(10));
    fail_next(&disk, || disk.remove(Path::new(A)));
    fail_next(&disk, || disk.link(Path::new(A), Path::new("/sim/b")));
    assert_eq!(disk.names(), [Path::new(A)]);
    assert_eq!(disk.read(Path::new(A)).unwrap().len(), 8192);
}

#[test]
fn a_length_whose_sync_failed_stays_on_its_way() {
    let disk = SimDisk::default();
    let file = file(&disk);
    file.set_len(20_000).unwrap();
    fail_next(&disk, || file.sync());
    file.sync().unwrap();
    assert_eq!(lost(&disk).len(), 20_000);
}

#[test]
fn names_whose_sync_failed_become_durable_with_the_next_change() {
    let disk = SimDisk::default();
    file(&disk);
    let (b, folder) = (Path::new("/sim/b"), Path::new("/sim"));
    disk.link(Path::new(A), b).unwrap();
    let durable = |disk: &SimDisk| {
        let image = disk.after_power_loss(disk.operations(), Loss::Everything, &mut Random::new(1));
        image.names().contains(&b.to_owned())
    };
    let seed = (0..).find(|seed| Random::new(*seed).index(2) == 0);
    disk.fail(disk.tried().len(), Fault::Device, false, seed.unwrap());
    assert!(disk.sync_dir(folder).is_err());
    disk.mend();
    disk.sync_dir(folder).unwrap();
    assert!(!durable(&disk));
    disk.link(b, Path::new("/sim/c")).unwrap();
    disk.sync_dir(folder).unwrap();
    assert!(durable(&disk));
}

/// Whoever writes the directory after that does not know of them.
#[test]
fn names_whose_sync_failed_are_gone_for_good_where_the_system_drops_them() {
    let disk = SimDisk::default();
    file(&disk);
    disk.sync_dir(Path::new("/sim")).unwrap();
    let (b, c) = (PathBuf::from("/sim/b"), PathBuf::from("/sim/c"));
    disk.link(Path::new(A), &b).unwrap();
    let seed = (0..).find(|seed| Random::new(*seed).index(2) == 0);
    disk.fail(disk.tried().len(), Fault::Device, false, seed.unwrap());
    assert!(disk.sync_dir(Path::new("/sim")).is_err());
    disk.mend();
    disk.evict();
    assert!(!disk.names().contains(&b));
    disk.link(Path::new(A), &c).unwrap();
    disk.sync_dir(Path::new("/sim")).unwrap();
    let image = disk.after_power_loss(disk.operations(), Loss::Everything, &mut Random::new(1));
    assert!(image.names().contains(&c) && !image.names().contains(&b));
}
