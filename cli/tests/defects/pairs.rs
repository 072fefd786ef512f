//! Legal variants together: few drivers that between them have each pair of variants, and for which no case of
//! `claimcheck csi` fails either.

use std::collections::BTreeSet;

use claimcheck_driver::variant::Variant::{self, *};

use crate::{
    Directories, Volumes, several_at_a_time,
    variants::{failures, volumes},
};

/// Variants of which a driver has at most one: they answer the same question.
const ALTERNATIVES: &[&[Variant]] = &[
    &[WithoutTopology, NodeTopologyUnset, VolumeTopologyUnset, VolumeTopologyWider],
    &[ReadyUnset, ReadyLate],
    &[CapacityUnknown, CapacityLate, SizesInGibibytes],
    &[VolumeContextUnset, LongestVolumeContext],
    &[LongestIds, IdsWithSlashes],
    &[PagesByPosition, LongestTokens],
    &[SnapshotSizeUnknown, SnapshotSizeLate],
    &[TimesInSeconds, ListedTimesInSeconds],
    &[SnapshotsOfUnusedVolumes, SnapshotsOfUsedVolumes],
    &[MetadataFixedBlocks, MetadataLargeBlocks],
    &[StatsUnset, StatsOfBytes, StatsOfInodes, StatsOfTotals],
    &[AbortedWhileBusy, BusyAfterCancel, SerialCalls],
    &[Slow, SlowResponses],
];

/// Without these a driver has so little left that a pair says nothing: each is tried alone.
const ALONE: &[Variant] = &[WithoutController, WithoutCreateDeleteVolume];

/// At most this number of services and calls is missing in one driver, so that most cases run.
const MISSING: usize = 5;
/// The maximum number of variants of one driver.
const TOGETHER: usize = 24;

/// A driver of the selection.
#[derive(Debug)]
struct Row {
    volumes: Volumes,
    variants: Vec<Variant>,
}

type Pair = (Variant, Variant);

fn pair(a: Variant, b: Variant) -> Pair {
    if a < b { (a, b) } else { (b, a) }
}

fn is_missing(variant: Variant) -> bool {
    variant.name().starts_with("without-")
}

/// Whether a driver can have both.
fn are_compatible(a: Variant, b: Variant) -> bool {
    !ALTERNATIVES.iter().any(|group| group.contains(&a) && group.contains(&b))
}

/// The variants that have an effect with these volumes: those of drivers in general have it with all.
fn variants_with(of: Volumes) -> Vec<Variant> {
    // Block devices cannot be had without the access type.
    let is_contrary = |variant: &Variant| of == crate::Devices && *variant == WithoutRawBlock;
    let suits = |variant: &&Variant| {
        (volumes(**variant) == of || volumes(**variant) == Directories) && !is_contrary(variant)
    };
    Variant::all().iter().filter(suits).copied().filter(|variant| !ALONE.contains(variant)).collect()
}

/// The pairs of variants that a driver can have; of two that show with directories, these are tried with those.
fn pairs(of: Volumes) -> BTreeSet<Pair> {
    let all = variants_with(of);
    let counts = |a: Variant, b: Variant| of == Directories || volumes(a) == of || volumes(b) == of;
    let both = |a: Variant| all.iter().map(move |b| (a, *b));
    let both =
        all.iter().flat_map(|a| both(*a)).filter(|(a, b)| a < b && are_compatible(*a, *b) && counts(*a, *b));
    both.collect()
}

/// Drivers that between them have each pair: each takes the variants that add the most pairs which are still missing.
fn selection(of: Volumes) -> Vec<Row> {
    let (all, mut open, mut rows) = (variants_with(of), pairs(of), Vec::new());
    while let Some(&(a, b)) = open.first() {
        let mut row = vec![a, b];
        while row.len() < TOGETHER {
            let missing = row.iter().filter(|variant| is_missing(**variant)).count();
            let fits = |new: &&Variant| {
                row.iter().all(|has| has != *new && are_compatible(*has, **new))
                    && (missing < MISSING || !is_missing(**new))
            };
            let adds = |new: &Variant| row.iter().filter(|has| open.contains(&pair(**has, *new))).count();
            let best = all.iter().filter(fits).map(|new| (adds(new), *new)).max_by_key(|(adds, _)| *adds);
            let Some((1.., new)) = best else { break };
            row.push(new);
        }
        open.retain(|(a, b)| !(row.contains(a) && row.contains(b)));
        rows.push(Row { volumes: of, variants: row });
    }
    rows
}

/// The whole selection.
fn rows() -> Vec<Row> {
    [Directories, crate::Images, crate::Devices].into_iter().flat_map(selection).collect()
}

#[test]
fn the_selection_has_each_pair() {
    let rows = rows();
    for of in [Directories, crate::Images, crate::Devices] {
        for (a, b) in pairs(of) {
            let together =
                |row: &Row| row.volumes == of && row.variants.contains(&a) && row.variants.contains(&b);
            assert!(rows.iter().any(together), "no driver has {} and {}", a.name(), b.name());
        }
    }
    for row in &rows {
        for (at, a) in row.variants.iter().enumerate() {
            assert!(row.variants[..at].iter().all(|b| a != b && are_compatible(*a, *b)), "{row:?}");
        }
    }
    assert!(rows.len() < 120, "{} drivers", rows.len());
}

/// All cases with each driver of the selection: this takes minutes, so only `ci/variants` runs it.
#[test]
#[ignore = "ci/variants runs it"]
fn no_pair_of_variants_fails_any_case() {
    let rows = rows();
    let failed = several_at_a_time(&rows, |row| failures(row.volumes, &row.variants, &[]));
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    println!("no case fails for any of {} drivers with several variants", rows.len());
}
