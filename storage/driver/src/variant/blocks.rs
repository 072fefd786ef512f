//! Other blocks of snapshot metadata than those of the driver, which are of variable length.

use claimcheck_csi::v1::{
    BlockMetadata, BlockMetadataType, GetMetadataAllocatedResponse, GetMetadataDeltaResponse,
};
use tokio_stream::StreamExt;
use tonic::{Response, Status, codegen::BoxStream};

use super::{Variant, Variants, service::Answer};

/// The size of blocks, with [`Variant::MetadataFixedBlocks`] and [`Variant::MetadataLargeBlocks`].
const FIXED: i64 = 4 << 10;
const LARGE: i64 = 8 << 20;
/// The maximum number of blocks per message, unless the caller requests fewer.
const PER_MESSAGE: usize = 1024;

/// A message of either call.
pub(super) trait Message: Clone + Send + 'static {
    /// Its type of blocks, and its blocks.
    fn parts(&mut self) -> (&mut i32, &mut Vec<BlockMetadata>);
}

macro_rules! message {
    ($message:ident) => {
        impl Message for $message {
            fn parts(&mut self) -> (&mut i32, &mut Vec<BlockMetadata>) {
                (&mut self.block_metadata_type, &mut self.block_metadata)
            }
        }
    };
}

message!(GetMetadataAllocatedResponse);
message!(GetMetadataDeltaResponse);

/// The stream of a response, as callers see it.
pub(super) async fn rewritten<M: Message>(
    variants: &Variants,
    max_results: i32,
    answer: Response<BoxStream<M>>,
) -> Answer<BoxStream<M>> {
    let all: Vec<Result<M, Status>> = answer.into_inner().collect().await;
    let mut end = 0;
    let messages = all.into_iter().flat_map(|message| match message {
        Ok(message) => rewrite(variants, max_results, message, &mut end).into_iter().map(Ok).collect(),
        failed => vec![failed],
    });
    let messages: Vec<Result<M, Status>> = messages.collect();
    Ok(Response::new(Box::pin(tokio_stream::iter(messages))))
}

/// The messages in place of one; the previous block ended at `last`.
fn rewrite<M: Message>(variants: &Variants, max_results: i32, mut message: M, last: &mut i64) -> Vec<M> {
    let (kind, blocks) = message.parts();
    let mut blocks = std::mem::take(blocks);
    let sizes = [(Variant::MetadataFixedBlocks, FIXED), (Variant::MetadataLargeBlocks, LARGE)];
    if let Some((_, size)) = sizes.into_iter().find(|(variant, _)| variants.has(*variant)) {
        *kind = BlockMetadataType::FixedLength.into();
        blocks = fixed(&blocks, size, last);
    }
    let most = match usize::try_from(max_results) {
        _ if variants.has(Variant::MetadataSingleBlocks) => 1,
        Ok(most) if most > 0 => most.min(PER_MESSAGE),
        _ => PER_MESSAGE,
    };
    let mut parts: Vec<Vec<BlockMetadata>> = blocks.chunks(most).map(<[_]>::to_vec).collect();
    if parts.is_empty() || variants.has(Variant::MetadataEmptyMessages) {
        // The capacity is in a message without blocks, too.
        parts.insert(0, Vec::new());
    }
    let with = |blocks| {
        let mut message = message.clone();
        *message.parts().1 = blocks;
        message
    };
    parts.into_iter().map(with).collect()
}

/// The blocks of one size that contain these ranges, after those that end at `last`.
fn fixed(ranges: &[BlockMetadata], size: i64, last: &mut i64) -> Vec<BlockMetadata> {
    let mut blocks = Vec::new();
    for range in ranges {
        let mut start = (range.byte_offset / size * size).max(*last);
        while start < range.byte_offset + range.size_bytes {
            blocks.push(BlockMetadata { byte_offset: start, size_bytes: size });
            start += size;
            *last = start;
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: i64 = 1 << 20;

    fn message(blocks: &[(i64, i64)]) -> GetMetadataAllocatedResponse {
        let block = |&(byte_offset, size_bytes): &(i64, i64)| BlockMetadata { byte_offset, size_bytes };
        GetMetadataAllocatedResponse {
            block_metadata_type: BlockMetadataType::VariableLength.into(),
            volume_capacity_bytes: 64 * MIB,
            block_metadata: blocks.iter().map(block).collect(),
        }
    }

    /// The blocks of the messages in place of these ones.
    fn written(variant: Variant, max: i32, messages: &[&[(i64, i64)]]) -> Vec<Vec<(i64, i64)>> {
        let (variants, mut last) = (Variants::new([variant]), 0);
        let all = messages.iter().flat_map(|blocks| rewrite(&variants, max, message(blocks), &mut last));
        let blocks = |message: GetMetadataAllocatedResponse| {
            message.block_metadata.iter().map(|block| (block.byte_offset, block.size_bytes)).collect()
        };
        all.map(blocks).collect()
    }

    #[test]
    fn ranges_in_one_large_block_are_one_block() {
        let ranges: [&[(i64, i64)]; 2] = [&[(MIB, 65536), (5 * MIB, 65536)], &[(6 * MIB, 3 * MIB)]];
        let blocks = written(Variant::MetadataLargeBlocks, 0, &ranges);
        assert_eq!(blocks, [[(0, LARGE)], [(LARGE, LARGE)]]);
        let blocks = written(Variant::MetadataFixedBlocks, 2, &[&[(4096, 3 * 4096)]]);
        assert_eq!(blocks, [vec![(4096, 4096), (8192, 4096)], vec![(12288, 4096)]]);
    }

    #[test]
    fn messages_have_one_block_or_none() {
        let ranges: [&[(i64, i64)]; 1] = [&[(0, 4096), (8192, 4096)]];
        let single = written(Variant::MetadataSingleBlocks, 0, &ranges);
        assert_eq!(single, [[(0, 4096)], [(8192, 4096)]]);
        let empty = written(Variant::MetadataEmptyMessages, 0, &ranges);
        assert_eq!(empty, [vec![], vec![(0, 4096), (8192, 4096)]]);
        let none = written(Variant::MetadataLargeBlocks, 0, &[&[]]);
        assert_eq!(none, [Vec::<(i64, i64)>::new()]);
    }
}
