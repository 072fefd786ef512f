//! SnapshotMetadata as its clients see it: against a comparison of every byte, on a fake machine.

use std::{fs::OpenOptions, os::unix::fs::FileExt, sync::Arc};

use crate::support::{self, Place, copy_of, fake::FakeHost, from_snapshot};
use claimcheck_csi::v1::{
    BlockMetadata, BlockMetadataType, GetMetadataAllocatedRequest, GetMetadataDeltaRequest,
    snapshot_metadata_server::SnapshotMetadata,
};
use claimcheck_driver::{Driver, id::SnapshotId};
use tokio_stream::StreamExt;
use tonic::{
    Code::{self, FailedPrecondition, InvalidArgument, NotFound, OutOfRange},
    Request, Status,
};

const BLOCK: i64 = 4096;

/// The content of a stream: the blocks, and how many in each message.
type Received = (Vec<BlockMetadata>, Vec<usize>);

macro_rules! received {
    ($answer:expr) => {{
        let mut stream = $answer.await?.into_inner();
        let mut received: Received = Default::default();
        while let Some(message) = stream.next().await {
            let message = message?;
            assert_eq!(message.block_metadata_type(), BlockMetadataType::VariableLength);
            assert_eq!(message.volume_capacity_bytes, support::IMAGE_BYTES);
            received.1.push(message.block_metadata.len());
            received.0.extend(message.block_metadata);
        }
        Ok(received)
    }};
}

async fn allocated(driver: &Driver, id: &str, start: i64, max_results: i32) -> Result<Received, Status> {
    received!(driver.get_metadata_allocated(Request::new(GetMetadataAllocatedRequest {
        snapshot_id: id.into(),
        starting_offset: start,
        max_results,
        ..Default::default()
    })))
}

async fn delta(driver: &Driver, base: &str, target: &str, start: i64, max: i32) -> Result<Received, Status> {
    received!(driver.get_metadata_delta(Request::new(GetMetadataDeltaRequest {
        base_snapshot_id: base.into(),
        target_snapshot_id: target.into(),
        starting_offset: start,
        max_results: max,
        ..Default::default()
    })))
}

fn snapshot(driver: &Driver, name: &str) -> String {
    driver.create_snapshot(support::snapshot(name)).unwrap().snapshot.unwrap().snapshot_id
}

fn blocks(received: &Received) -> Vec<i64> {
    received
        .0
        .iter()
        .flat_map(|range| (range.byte_offset..range.byte_offset + range.size_bytes).step_by(4096))
        .collect()
}

fn code<T: std::fmt::Debug>(answer: Result<T, Status>) -> Code {
    answer.unwrap_err().code()
}

#[tokio::test]
async fn blocks_are_exact() {
    let place = Place::new();
    let driver = place.driver(Arc::new(FakeHost::default())).unwrap();
    driver.create(support::create("image")).unwrap();
    let image = place.state().join("volumes").join(support::id()).join("image");
    let image = OpenOptions::new().write(true).open(image).unwrap();
    let write = |block: i64, bytes: &[u8]| image.write_all_at(bytes, (block * BLOCK) as u64).unwrap();

    let blank = snapshot(&driver, "blank");
    let last = support::IMAGE_BYTES / BLOCK - 1;
    for block in [3, 4, 10, 100, last] {
        write(block, b"data");
    }
    let base = snapshot(&driver, "base");
    write(4, b"data");
    write(10, b"else");
    write(2000, b"new!");
    write(2002, &[0]);
    let target = snapshot(&driver, "target");

    let at = |blocks: &[i64]| blocks.iter().map(|block| block * BLOCK).collect::<Vec<_>>();
    let all = allocated(&driver, &base, 0, 0).await.unwrap();
    assert_eq!(blocks(&all), at(&[3, 4, 10, 100, last]));
    assert_eq!(all.1, [4], "two neighbours are one range");
    assert_eq!(blocks(&delta(&driver, &blank, &base, 0, 0).await.unwrap()), blocks(&all));
    let changed = delta(&driver, &base, &target, 0, 0).await.unwrap();
    assert_eq!(
        blocks(&changed),
        at(&[10, 2000]),
        "rewritten with the same, and zeros over a hole, are no change"
    );
    let none = (Vec::new(), vec![0]);
    assert_eq!(delta(&driver, &base, &base, 0, 0).await.unwrap(), none, "the size is returned all the same");
    assert_eq!(allocated(&driver, &blank, 0, 0).await.unwrap(), none);

    // In small messages, and continued after any of them.
    let small = allocated(&driver, &base, 0, 3).await.unwrap();
    assert_eq!((&small.0, &small.1[..]), (&all.0, &[3, 1][..]));
    for (index, range) in all.0.iter().enumerate() {
        let rest = allocated(&driver, &base, range.byte_offset + range.size_bytes, 1).await.unwrap();
        assert_eq!(rest.0, all.0[index + 1..]);
        let inside = allocated(&driver, &base, range.byte_offset + range.size_bytes - 1, 0).await.unwrap();
        let first = inside.0[0];
        assert!(first.byte_offset + first.size_bytes > range.byte_offset + range.size_bytes - 1);
        let later = delta(&driver, &blank, &base, range.byte_offset + range.size_bytes, 0).await.unwrap();
        assert_eq!(later.0, all.0[index + 1..]);
    }
    assert_eq!(allocated(&driver, &base, support::IMAGE_BYTES, 0).await.unwrap(), none);

    // What is restored has the same holes.
    driver.create(copy_of("image", "restored", from_snapshot(&base))).unwrap();

    let unknown = SnapshotId::from_name("none").to_string();
    assert_eq!(code(allocated(&driver, "", 0, 0).await), InvalidArgument);
    assert_eq!(code(allocated(&driver, &base, 0, -1).await), InvalidArgument);
    assert_eq!(code(allocated(&driver, &unknown, 0, 0).await), NotFound);
    assert_eq!(code(allocated(&driver, "nonsense", 0, 0).await), NotFound);
    for start in [-1, support::IMAGE_BYTES + 1, i64::MAX, i64::MIN] {
        assert_eq!(code(allocated(&driver, &base, start, 0).await), OutOfRange, "{start}");
        assert_eq!(code(delta(&driver, &base, &target, start, 0).await), OutOfRange, "{start}");
    }
    assert_eq!(code(delta(&driver, "", &target, 0, 0).await), InvalidArgument);
    assert_eq!(code(delta(&driver, &base, "", 0, 0).await), InvalidArgument);
    assert_eq!(code(delta(&driver, &unknown, &target, 0, 0).await), NotFound);
    assert_eq!(code(delta(&driver, &base, &unknown, 0, 0).await), NotFound);
    assert_eq!(code(delta(&driver, &target, &base, 0, 0).await), InvalidArgument, "the wrong way round");
}

#[tokio::test]
async fn many_blocks_come_in_many_messages_and_directories_have_none() {
    let place = Place::new();
    let driver = place.driver(Arc::new(FakeHost::default())).unwrap();
    driver.create(support::create("image")).unwrap();
    let image = place.state().join("volumes").join(support::id()).join("image");
    let image = OpenOptions::new().write(true).open(image).unwrap();
    let every_other: Vec<i64> = (0..support::IMAGE_BYTES).step_by(2 * 4096).collect();
    for offset in &every_other {
        image.write_all_at(b"x", *offset as u64).unwrap();
    }
    let id = snapshot(&driver, "s");
    let received = allocated(&driver, &id, 0, 0).await.unwrap();
    assert_eq!(blocks(&received), every_other);
    assert!(received.1.len() > 1, "{:?}", received.1);
    // A client that disconnects early has no effect on others.
    let request =
        GetMetadataAllocatedRequest { snapshot_id: id.clone(), max_results: 1, ..Default::default() };
    let mut stream = driver.get_metadata_allocated(Request::new(request)).await.unwrap().into_inner();
    assert!(stream.next().await.unwrap().is_ok());
    drop(stream);

    let mut directory = support::create("directory");
    directory.name = "directory".into();
    let mut request = support::snapshot("of-directory");
    request.source_volume_id = driver.create(directory).unwrap().volume.unwrap().volume_id;
    let of_directory = driver.create_snapshot(request).unwrap().snapshot.unwrap().snapshot_id;
    assert_eq!(code(allocated(&driver, &of_directory, 0, 0).await), FailedPrecondition);
    assert_eq!(code(delta(&driver, &id, &of_directory, 0, 0).await), InvalidArgument, "of another volume");
}
