//! Records as lines of a container's log: from nodes without a tap socket.

use std::io;

use claimcheck_model::Stamp;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::{
        mpsc::{self, UnboundedReceiver},
        oneshot,
    },
};

use super::TapRecord;

/// The page of a component's HTTP endpoint with its [`NewestLine`]: the harness reads the log up to that line before it
/// counts calls.
pub const NEWEST_LINE: &str = "/calls/newest";

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

/// Identifies a line of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineId {
    /// Time of writing.
    pub written: Stamp,
    /// Its number.
    pub seq: u64,
}

/// Writes records as lines.
#[derive(Debug)]
pub struct LineWriter {
    records: UnboundedReceiver<TapRecord>,
    queries: UnboundedReceiver<oneshot::Sender<Option<LineId>>>,
}

/// Returns the newest line of a [`LineWriter`]. Clones are of the same.
#[derive(Clone, Debug)]
pub struct NewestLine(mpsc::UnboundedSender<oneshot::Sender<Option<LineId>>>);

impl NewestLine {
    /// The line of the newest record, which precedes this call; none if there is no record yet.
    pub async fn get(&self) -> Option<LineId> {
        let (query, newest) = oneshot::channel();
        self.0.send(query).ok()?;
        newest.await.ok()?
    }
}

impl LineWriter {
    /// A writer of these records.
    pub fn new(records: UnboundedReceiver<TapRecord>) -> (Self, NewestLine) {
        let (queries, queried) = mpsc::unbounded_channel();
        (Self { records, queries: queried }, NewestLine(queries))
    }

    /// Writes each record as a line, until the sender is dropped.
    ///
    /// # Errors
    /// The reader of the output has exited.
    pub async fn write(mut self, mut output: impl AsyncWrite + Unpin) -> io::Result<()> {
        let mut lines = Vec::new();
        let (mut seq, mut newest) = (0, None);
        loop {
            tokio::select! {
                // A query is about all records that precede it.
                biased;
                record = self.records.recv() => {
                    let Some(record) = record else { return Ok(()) };
                    let line = TapLine { written: Stamp::now(), seq, record };
                    newest = Some(LineId { written: line.written, seq });
                    serde_json::to_writer(&mut lines, &line)?;
                    lines.push(b'\n');
                    seq += 1;
                    // A burst is one write.
                    if self.records.is_empty() {
                        output.write_all(&lines).await?;
                        output.flush().await?;
                        lines.clear();
                    }
                }
                Some(query) = self.queries.recv() => {
                    // The caller may have given up.
                    let _ = query.send(newest);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use claimcheck_model::CsiMethod;
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;
    use crate::tap::CallId;

    fn record() -> TapRecord {
        let id = CallId { pid: 1, seq: 7 };
        TapRecord {
            driver: Some("d.io".into()),
            volume_id: Some("v\n".into()),
            ..TapRecord::started(id, "node/n", CsiMethod::NodeStageVolume, Stamp::now())
        }
    }

    fn lines(output: &[u8]) -> Vec<TapLine> {
        let lines = output.split(|b| *b == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
    }

    #[tokio::test]
    async fn lines_are_numbered_and_read_back() {
        let (sender, records) = unbounded_channel();
        let record = record();
        sender.send(record.clone()).unwrap();
        sender.send(record.clone()).unwrap();
        drop(sender);
        let mut output = Vec::new();
        LineWriter::new(records).0.write(&mut output).await.unwrap();
        let lines = lines(&output);
        assert_eq!(lines.iter().map(|line| line.seq).collect::<Vec<_>>(), [0, 1]);
        assert!(lines.iter().all(|line| line.record == record && line.written >= record.start));
    }

    #[tokio::test]
    async fn the_newest_line_is_that_of_the_last_record_before_the_query() {
        let (sender, records) = unbounded_channel();
        let (writer, newest) = LineWriter::new(records);
        let mut output = Vec::new();
        let queries = async {
            assert_eq!(newest.get().await, None);
            let mut seen = Vec::new();
            for burst in [1, 20] {
                for _ in 0..burst {
                    sender.send(record()).unwrap();
                }
                seen.extend(newest.get().await);
            }
            drop(sender);
            seen
        };
        let (written, seen) = tokio::join!(writer.write(&mut output), queries);
        written.unwrap();
        let lines: Vec<LineId> =
            lines(&output).iter().map(|line| LineId { written: line.written, seq: line.seq }).collect();
        assert_eq!(seen, [lines[0], lines[20]]);
        assert_eq!(newest.get().await, None, "the process ends");
    }
}
