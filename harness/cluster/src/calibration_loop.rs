//! The calibration loop: measures the machine speed during a run with a fixed, repeated workload.
//!
//! The speed of processors varies from one minute to the next, particularly in virtual machines: the load of
//! neighbours shows in no clock and in no steal time. Of two equal runs one may take half as long
//! again. Only a fixed workload distinguishes that from a change of the program.
//!
//! A long-running computation keeps its caches warm and is hardly affected; a run consists of many short pieces, each
//! of which starts with cold caches. So the workload is to wake up and to pass on a message: of 33 loads with phases
//! that varied by 11 %, its cost explained all but 2.6 % of that, while 200 messages in a row explained all but 9 %.

use std::{
    io::{self, Read, Write},
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread::{self, JoinHandle},
    time::Duration,
};

use claimcheck_model::Calibration;
use rustix::time::{ClockId, clock_gettime};

/// It uses about a thousandth of a processor.
const EVERY: Duration = Duration::from_millis(10);
/// The message through a pipe. It is the kernel's work, and so independent of the build of claimcheck.
const MESSAGE: [u8; 64] = [0; 64];
/// The version of the workload: costs of different workloads are not comparable.
const WORK: u32 = 2;

/// The calibration loop in the background of a run.
pub struct CalibrationLoop {
    /// The loop ends when this is dropped.
    stop: Sender<()>,
    working: JoinHandle<io::Result<Calibration>>,
}

impl CalibrationLoop {
    /// Starts the loop on a separate thread.
    pub fn start() -> Self {
        let (stop, stopped) = mpsc::channel();
        let working = thread::spawn(move || {
            let (mut reader, mut writer) = io::pipe()?;
            let mut calibration = Calibration { work: WORK, ..Calibration::default() };
            let began = processor_time();
            let mut read = MESSAGE;
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                writer.write_all(&MESSAGE)?;
                reader.read_exact(&mut read)?;
                calibration.times += 1;
            }
            calibration.seconds = processor_time() - began;
            Ok(calibration)
        });
        Self { stop, working }
    }

    /// Stops the loop; none without a complete iteration, or without a pipe.
    pub fn finish(self) -> Option<Calibration> {
        drop(self.stop);
        let calibration = self.working.join().ok()?.ok()?;
        (calibration.times > 0).then_some(calibration)
    }
}

/// The CPU time of this thread; seconds.
fn processor_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loop_measures_time_and_ends_when_stopped() {
        let calibration_loop = CalibrationLoop::start();
        thread::sleep(EVERY * 3);
        let calibration = calibration_loop.finish().expect("there was time for a round");
        assert!(calibration.times >= 1 && calibration.seconds > 0.0, "{calibration:?}");
        assert_eq!(CalibrationLoop::start().finish(), None, "no time to work");
    }
}
