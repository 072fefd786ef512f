//! Calls from the tap socket become evidence when they are over.

use claimcheck_csi::tap::TapRecord;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::{InFlight, Observation, in_flight::Origin};

/// Sends each call of the tap when it has ended, until either channel closes. Calls in progress
/// at that time, or of processes that exited meanwhile, are sent without an end.
pub async fn calls<I: From<Observation>>(
    mut records: UnboundedReceiver<TapRecord>,
    in_flight: InFlight,
    evidence: UnboundedSender<I>,
) {
    while let Some(record) = records.recv().await {
        if !send(in_flight.record(&Origin::Local, record), &evidence) {
            return;
        }
    }
    // If the run is over, the receiver was dropped.
    send(in_flight.lost(&Origin::Local), &evidence);
}

/// Sends these calls; false if the receiver was dropped.
pub(super) fn send<I: From<Observation>>(calls: Vec<TapRecord>, evidence: &UnboundedSender<I>) -> bool {
    calls.into_iter().all(|call| evidence.send(Observation::from(call).into()).is_ok())
}
