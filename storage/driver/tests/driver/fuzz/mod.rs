//! Requests of any shape, in any order: no handler panics, and none touches anything but the state directory and
//! the paths that the request names.
//!
//! A fixed number of cases with the other tests; `CLAIMCHECK_FUZZ_SECONDS=3600 cargo test -p claimcheck-driver
//! fuzz -- --nocapture` for as long as one likes.

mod copies;
mod volumes;

use std::{
    collections::BTreeMap,
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::support::{self, Place, fake::FakeHost};
use claimcheck_csi::v1::{
    CapacityRange, VolumeCapability,
    volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume},
};
use claimcheck_driver::{
    error::Result,
    host::fault::FaultHost,
    id::{GroupId, SnapshotId, VolumeId},
};
use proptest::{
    prelude::*,
    test_runner::{Config, TestCaseError, TestRunner},
};
use prost::Message;

/// A text in a request.
#[derive(Clone, Debug)]
enum Text {
    /// One that means something: see [`Text::render`].
    Known(usize),
    Any(String),
    Huge,
}

const MEANINGFUL: [&str; 32] = [
    "",
    "{id}",
    "{id}",
    "{id}",
    "{id}",
    "pvc-0001",
    "pvc-0001",
    "csi-0123456789abcdef",
    "{place}/kubelet/staging",
    "{place}/kubelet/staging",
    "{place}/kubelet/target",
    "{place}/kubelet/target",
    "{place}/kubelet/link",
    "{place}/kubelet/link/deeper",
    "{place}/kubelet/../state",
    "{place}/state/volumes/{id}/data",
    "{place}/canary/file",
    "{place}/canary",
    "node-1",
    "../../../../../../etc/passwd",
    "/etc/passwd",
    "/proc/self/root",
    "nul\0",
    "image",
    "16777216",
    "ext4",
    "{copy}",
    "{snapshot}",
    "{group}",
    "{member}",
    "1",
    "2",
];
/// The names of objects created next to the volume of [`support::NAME`].
const COPY: &str = "pvc-copy";
const SNAPSHOT: &str = "snapshot-1";
const GROUP: &str = "group-1";

impl Text {
    fn strategy() -> impl Strategy<Value = Self> {
        prop_oneof![
            30 => (0..MEANINGFUL.len()).prop_map(Self::Known),
            4 => any::<String>().prop_map(Self::Any),
            1 => Just(Self::Huge),
        ]
    }

    fn render(&self, place: &Place) -> String {
        match self {
            Self::Known(index) => {
                let path = place.path().display().to_string();
                let group = GroupId::from_name(GROUP);
                let member = group.snapshot_of(&VolumeId::from_name(support::NAME));
                MEANINGFUL[*index]
                    .replace("{place}", &path)
                    .replace("{id}", &support::id())
                    .replace("{copy}", VolumeId::from_name(COPY).as_str())
                    .replace("{snapshot}", SnapshotId::from_name(SNAPSHOT).as_str())
                    .replace("{group}", group.as_str())
                    .replace("{member}", member.as_str())
            }
            Self::Any(text) => text.clone(),
            Self::Huge => "/x".repeat(1 << 19),
        }
    }
}

/// One call: what its fields are filled from, in turn, and which bytes of it are damaged on the wire.
#[derive(Clone, Debug)]
struct Step {
    call: usize,
    texts: Vec<Text>,
    numbers: Vec<i64>,
    damage: Vec<(usize, u8)>,
}

fn step() -> impl Strategy<Value = Step> {
    let number = prop_oneof![
        3 => 0..40i64,
        2 => (0..64u32).prop_map(|shift| 1i64.wrapping_shl(shift)),
        1 => any::<i64>(),
    ];
    // Mostly whole messages: damaged ones rarely get far.
    let damage = prop_oneof![
        4 => Just(Vec::new()),
        1 => prop::collection::vec((any::<usize>(), any::<u8>()), 1..4),
    ];
    let texts = prop::collection::vec(Text::strategy(), 1..8);
    (0..volumes::CALLS + copies::CALLS, texts, prop::collection::vec(number, 1..5), damage)
        .prop_map(|(call, texts, numbers, damage)| Step { call, texts, numbers, damage })
}

struct Source<'a> {
    step: &'a Step,
    place: &'a Place,
    next_text: usize,
    next_number: usize,
}

impl Source<'_> {
    fn text(&mut self) -> String {
        self.next_text += 1;
        self.step.texts[(self.next_text - 1) % self.step.texts.len()].render(self.place)
    }

    /// Mostly the volume that is there.
    fn id(&mut self) -> String {
        if self.number() % 4 == 0 { self.text() } else { support::id() }
    }

    fn path(&mut self, usual: PathBuf) -> String {
        if self.number() % 3 == 0 { self.text() } else { usual.display().to_string() }
    }

    fn number(&mut self) -> i64 {
        self.next_number += 1;
        let numbers = &self.step.numbers;
        numbers[(self.next_number - 1) % numbers.len()].wrapping_add(self.next_number as i64 / 3)
    }

    fn flag(&mut self) -> bool {
        self.number() & 1 == 1
    }

    fn map(&mut self, keys: &[&str]) -> BTreeMap<String, String> {
        (0..self.number().rem_euclid(3))
            .map(|_| {
                let key = keys[self.number().rem_euclid(keys.len() as i64) as usize];
                let key = if self.number() % 5 == 0 { self.text() } else { key.to_owned() };
                (key, self.text())
            })
            .collect()
    }

    fn range(&mut self) -> Option<CapacityRange> {
        let range = CapacityRange { required_bytes: self.number(), limit_bytes: self.number() };
        Some(range).filter(|_| self.flag())
    }

    fn capability(&mut self) -> VolumeCapability {
        let mode = if self.flag() { 1 } else { i32::try_from(self.number() % 9).unwrap_or(-1) };
        let access_type = match self.number() % 7 {
            0 => None,
            1 => Some(AccessType::Block(BlockVolume {})),
            2 => Some(AccessType::Mount(MountVolume {
                fs_type: self.text(),
                mount_flags: vec![self.text()],
                volume_mount_group: self.text(),
            })),
            _ => Some(AccessType::Mount(MountVolume::default())),
        };
        VolumeCapability { access_mode: Some(AccessMode { mode }), access_type }
    }

    fn parameters(&mut self) -> BTreeMap<String, String> {
        let kind = if self.flag() { "image" } else { "directory" };
        if self.number() % 4 == 0 {
            self.map(&["kind", "csi.storage.k8s.io/fstype"])
        } else {
            BTreeMap::from([("kind".to_owned(), kind.to_owned())])
        }
    }

    /// The message as it comes off the wire; `None` if it is damaged beyond reading.
    fn send<M: Message + Default>(&self, message: M) -> Option<M> {
        let mut bytes = message.encode_to_vec();
        for (at, value) in &self.step.damage {
            let len = bytes.len().max(1);
            if let Some(byte) = bytes.get_mut(at % len) {
                *byte = *value;
            }
        }
        M::decode(bytes.as_slice()).ok()
    }
}

/// The paths that a request names, and how it went; `None` if it could not be read.
type Outcome = Option<(Vec<String>, Result<()>)>;

/// Plays one case and gives how many of its calls were understood, and how many succeeded.
fn play(steps: &[Step]) -> Result<(usize, usize), TestCaseError> {
    let place = Place::new();
    let canary = place.path().join("canary");
    fs::create_dir(&canary).unwrap();
    fs::write(canary.join("file"), "untouched").unwrap();
    symlink(&canary, place.path().join("kubelet/link")).unwrap();
    let host = Arc::new(FaultHost::recording(FakeHost::default()));
    let driver = place.driver(host.clone()).unwrap();
    driver.create(support::create("image")).unwrap();
    let (mut seen, mut understood, mut succeeded) = (host.effects().len(), 0, 0);
    for step in steps {
        let mut source = Source { step, place: &place, next_text: 0, next_number: 0 };
        let outcome = match step.call.checked_sub(volumes::CALLS) {
            None => volumes::call(&driver, &mut source),
            Some(number) => copies::call(number, &driver, &mut source),
        };
        let Some((paths, outcome)) = outcome else { continue };
        understood += 1;
        succeeded += usize::from(outcome.is_ok());
        if let Err(error) = &outcome {
            prop_assert!(error.to_string().len() < 16 << 10, "a message as long as what was sent");
            // That of the machine: what it says about a place that is not there.
            prop_assert!(!error.to_string().contains("defect"), "{error}");
        }
        let named: Vec<PathBuf> = paths.iter().map(|path| Path::new(path).components().collect()).collect();
        let effects = host.effects();
        for effect in &effects[seen..] {
            let (_, path) = effect.split_once(' ').unwrap();
            let path = Path::new(path);
            let is_own_path =
                path.starts_with(place.state()) || path.starts_with("/fake") || path.starts_with("/dev");
            let recorded = path == place.staging();
            prop_assert!(
                is_own_path || recorded || named.iter().any(|named| named == path),
                "{effect}: {step:?}"
            );
        }
        seen = effects.len();
    }
    prop_assert_eq!(fs::read_to_string(canary.join("file")).unwrap(), "untouched");
    for name in place.volumes() {
        prop_assert!(VolumeId::parse(&name).is_some(), "{name}");
    }
    for name in place.names("snapshots") {
        prop_assert!(SnapshotId::parse(&name).is_some(), "{name}");
    }
    prop_assert_eq!(copies::panics(), 0, "a stream's thread panicked");
    Ok((understood, succeeded))
}

#[test]
fn requests_of_any_shape() {
    let seconds = env::var("CLAIMCHECK_FUZZ_SECONDS").ok().map(|text| text.parse().unwrap());
    let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let totals = std::cell::Cell::new((0, 0, 0));
    loop {
        let mut runner =
            TestRunner::new(Config { cases: 200, failure_persistence: None, ..Config::default() });
        let cases = prop::collection::vec(step(), 1..40);
        let outcome = runner.run(&cases, |steps| {
            let (understood, succeeded) = play(&steps)?;
            let (cases, calls, fine) = totals.get();
            totals.set((cases + 1, calls + understood, fine + succeeded));
            Ok(())
        });
        if let Err(failure) = outcome {
            panic!("{failure}");
        }
        if until.is_none_or(|until| Instant::now() >= until) {
            break;
        }
    }
    let (cases, calls, fine) = totals.get();
    println!("{cases} cases, {calls} calls, of which {fine} succeeded");
    assert!(fine * 10 > calls, "hardly any call gets past the checks: {fine} of {calls}");
}
