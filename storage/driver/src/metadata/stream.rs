//! From ranges of a file to messages of a stream, on a blocking thread.

use std::{fs::File, io, ops::Range};

use claimcheck_csi::v1::{
    BlockMetadata, BlockMetadataType, GetMetadataAllocatedResponse, GetMetadataDeltaResponse,
};
use tokio::sync::mpsc::{self, Sender};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, codegen::BoxStream};

use crate::extents;

/// Maximum number of entries per message; 16 KiB.
pub(super) const PER_MESSAGE: usize = 1024;
/// Messages queued before the client has received earlier ones.
const AHEAD: usize = 4;

/// The request of a call, with its files open.
pub(crate) struct Listing {
    /// The base of the comparison; `None` for all allocated blocks.
    pub(super) base: Option<File>,
    pub(super) target: File,
    /// Offset of the first byte.
    pub(super) start: u64,
    /// Size of the target in bytes.
    pub(super) size: u64,
    pub(super) per_message: usize,
}

/// A message of either call.
pub(super) trait Message: Send + 'static {
    fn new(volume_capacity_bytes: i64, block_metadata: Vec<BlockMetadata>) -> Self;
}

macro_rules! message {
    ($message:ident) => {
        impl Message for $message {
            fn new(volume_capacity_bytes: i64, block_metadata: Vec<BlockMetadata>) -> Self {
                let block_metadata_type = BlockMetadataType::VariableLength.into();
                Self { block_metadata_type, volume_capacity_bytes, block_metadata }
            }
        }
    };
}

message!(GetMetadataAllocatedResponse);
message!(GetMetadataDeltaResponse);

impl Listing {
    /// Starts the worker. It ends early if the client disconnects.
    pub(super) fn stream<M: Message>(self) -> BoxStream<M> {
        let (sender, receiver) = mpsc::channel(AHEAD);
        tokio::task::spawn_blocking(move || {
            if let Err(error) = self.send(&sender) {
                let status = Status::internal(format!("cannot read the snapshot: {error}"));
                // The client has disconnected.
                drop(sender.blocking_send(Err(status)));
            }
        });
        Box::pin(ReceiverStream::new(receiver))
    }

    fn send<M: Message>(&self, sender: &Sender<Result<M, Status>>) -> io::Result<()> {
        let ranges: Box<dyn Iterator<Item = io::Result<Range<u64>>> + '_> = match &self.base {
            _ if self.start == self.size => Box::new(std::iter::empty()),
            Some(base) => Box::new(extents::changed(base, &self.target, self.start)?),
            None => Box::new(extents::allocated(&self.target, self.start)?),
        };
        let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let message = |blocks| Ok(M::new(signed(self.size), blocks));
        let mut blocks = Vec::new();
        let mut silent = true;
        for range in ranges {
            let Range { start, end } = range?;
            blocks.push(BlockMetadata { byte_offset: signed(start), size_bytes: signed(end - start) });
            if blocks.len() == self.per_message {
                silent = false;
                if sender.blocking_send(message(std::mem::take(&mut blocks))).is_err() {
                    return Ok(());
                }
            }
        }
        // Even where there is nothing to list the client learns how large the volume is.
        if silent || !blocks.is_empty() {
            drop(sender.blocking_send(message(blocks)));
        }
        Ok(())
    }
}
