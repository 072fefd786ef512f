//! How fast this machine is, while a run goes on: a fixed piece of work, done again and again.
//!
//! Processors are not equally fast from one minute to the next, those of a virtual machine least of all: what their
//! neighbours do shows in no clock and in no count of stolen time. Of two equal runs one may well take half as long
//! again. Only work that is always the same tells that from a change of the program.
//!
//! Work that goes on for long has its caches to itself and hardly notices; what a run does is many short pieces, each
//! of which finds the caches cold. So the work is to wake up and to pass on a message: of 33 loads whose phases varied
//! by 11 %, its cost told all but 2.6 % of that, where 200 messages in a row told all but 9 %.

use std::{
    io::{self, Read, Write},
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread::{self, JoinHandle},
    time::Duration,
};

use claimcheck_model::Pace;
use rustix::time::{ClockId, clock_gettime};

/// Some thousandth of a processor is spent on it.
const EVERY: Duration = Duration::from_millis(10);
/// What goes through a pipe. It is the kernel's work, and so the same in every build of ours.
const MESSAGE: [u8; 64] = [0; 64];
/// Which work this is: what another one cost is not to be compared with it.
const WORK: u32 = 2;

/// Work going on beside a run.
pub struct Yardstick {
    /// The work ends when this goes.
    stop: Sender<()>,
    working: JoinHandle<io::Result<Pace>>,
}

impl Yardstick {
    /// Starts to work, on a thread of its own.
    pub fn start() -> Self {
        let (stop, stopped) = mpsc::channel();
        let working = thread::spawn(move || {
            let (mut reader, mut writer) = io::pipe()?;
            let mut pace = Pace { work: WORK, ..Pace::default() };
            let began = processor_time();
            let mut read = MESSAGE;
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                writer.write_all(&MESSAGE)?;
                reader.read_exact(&mut read)?;
                pace.times += 1;
            }
            pace.seconds = processor_time() - began;
            Ok(pace)
        });
        Self { stop, working }
    }

    /// Ends it; none where there was no time to work, or no pipe to be had.
    pub fn finish(self) -> Option<Pace> {
        drop(self.stop);
        let pace = self.working.join().ok()?.ok()?;
        (pace.times > 0).then_some(pace)
    }
}

/// Of this thread; seconds.
fn processor_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_time_and_ends_when_it_is_told_to() {
        let yardstick = Yardstick::start();
        thread::sleep(EVERY * 3);
        let pace = yardstick.finish().expect("there was time for a round");
        assert!(pace.times >= 1 && pace.seconds > 0.0, "{pace:?}");
        assert_eq!(Yardstick::start().finish(), None, "no time to work");
    }
}
