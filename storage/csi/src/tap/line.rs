//! Records as lines of a container's log: from nodes without a tap socket.

use std::io;

use claimcheck_model::Stamp;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::mpsc::UnboundedReceiver,
};

use super::TapRecord;

/// One line of such a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapLine {
    /// Time of writing: lines are ordered by this and `seq`, records not quite.
    pub written: Stamp,
    /// Number of the line in its process, from 0.
    pub seq: u64,
    /// The record.
    pub record: TapRecord,
}

/// Writes each record as a line, until the sender is dropped.
///
/// # Errors
/// The reader of the output has exited.
pub async fn write_lines(
    mut records: UnboundedReceiver<TapRecord>,
    mut output: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut lines = Vec::new();
    let mut seq = 0;
    while let Some(record) = records.recv().await {
        serde_json::to_writer(&mut lines, &TapLine { written: Stamp::now(), seq, record })?;
        lines.push(b'\n');
        seq += 1;
        // A burst is one write.
        if records.is_empty() {
            output.write_all(&lines).await?;
            output.flush().await?;
            lines.clear();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use claimcheck_model::CsiMethod;
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;
    use crate::tap::CallId;

    #[tokio::test]
    async fn lines_are_numbered_and_read_back() {
        let (sender, records) = unbounded_channel();
        let id = CallId { pid: 1, seq: 7 };
        let record = TapRecord {
            driver: Some("d.io".into()),
            volume_id: Some("v\n".into()),
            ..TapRecord::started(id, "node/n", CsiMethod::NodeStageVolume, Stamp::now())
        };
        sender.send(record.clone()).unwrap();
        sender.send(record.clone()).unwrap();
        drop(sender);
        let mut output = Vec::new();
        write_lines(records, &mut output).await.unwrap();
        let lines: Vec<TapLine> = output
            .split(|b| *b == b'\n')
            .filter(|l| !l.is_empty())
            .map(|l| serde_json::from_slice(l).unwrap())
            .collect();
        assert_eq!(lines.iter().map(|line| line.seq).collect::<Vec<_>>(), [0, 1]);
        assert!(lines.iter().all(|line| line.record == record && line.written >= record.start));
    }
}
