//! Legal variants of the driver: no case of `claimcheck csi` fails for them.

use std::{collections::BTreeSet, env, fmt::Write, fs};

use claimcheck_driver::variant::Variant::{self, *};
use claimcheck_saboteur::row::Suite;

use crate::{
    Devices, Directories, Images, Volumes, is_possible, reported, several_at_a_time, summary, wrong,
};

/// Set by `ci/variants --write`.
const WRITE: &str = "CLAIMCHECK_WRITE_VARIANTS";
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/variants.md");
const SPECIFICATION: &str = "https://github.com/container-storage-interface/spec/blob/v1.12.0/spec.md";

/// Variants that one driver has together, and cases that could fail for them: a run of all cases with each variant alone
/// takes minutes, so only `ci/variants` does that.
struct Pack {
    volumes: Volumes,
    variants: &'static [Variant],
    cases: &'static [&'static str],
}

const fn pack(volumes: Volumes, variants: &'static [Variant], cases: &'static [&'static str]) -> Pack {
    Pack { volumes, variants, cases }
}

/// Each variant is in at least one pack.
const PACKS: &[Pack] = &[
    pack(
        Directories,
        &[
            WithoutPublishReadonly,
            WithoutListVolumesPublishedNodes,
            WithoutSingleNodeMultiWriter,
            WithoutOnlineExpansion,
            WithoutVolumeCondition,
            WithoutModifyVolume,
            WithoutMultiNodeReaderOnly,
            WithoutMultiNodeSingleWriter,
            WithoutMultiNodeMultiWriter,
            WithoutInlineEphemeral,
            WithoutListSnapshots,
            WithoutGetSnapshot,
            WithoutGroupSnapshot,
            WithoutSnapshotMetadata,
        ],
        &["declarations::", "capabilities::", "controller_", "lifecycle::"],
    ),
    pack(
        Directories,
        &[
            WithoutPublishUnpublishVolume,
            WithoutListVolumes,
            WithoutGetCapacity,
            WithoutStageUnstageVolume,
            WithoutGetVolumeStats,
            WithoutExpandVolume,
            WithoutGetVolume,
            WithoutRawBlock,
            WithoutCreateDeleteSnapshot,
            WithoutCloneVolume,
        ],
        &["declarations::", "capabilities::", "node_", "lifecycle::"],
    ),
    pack(Directories, &[WithoutCreateDeleteVolume, WithoutTopology, NodeLimitUnset], &[]),
    pack(Directories, &[WithoutController], &[]),
    pack(Directories, &[NodeTopologyUnset], &["topology", "declarations::"]),
    pack(Directories, &[VolumeTopologyUnset], &["topology", "declarations::"]),
    pack(
        Directories,
        &[
            VolumeTopologyWider,
            LongestNodeId,
            ManifestSet,
            ReadyUnset,
            ContentSourceUnset,
            PublishContextSet,
            PublishedNodesStale,
            NodeExpansionRequired,
            NotFoundWhenGone,
            StatsUnset,
            NodeExpandedSizeUnset,
        ],
        &["identity::", "topology", "clones::", "controller_publish::", "controller_list::", "node_"],
    ),
    pack(
        Directories,
        &[
            CapacityLate,
            LongestVolumeContext,
            LongestIds,
            LongestTokens,
            ManyPages,
            TimesInSeconds,
            SnapshotSizeLate,
            ExpandSmallerRefused,
        ],
        &["controller_", "snapshots::ListSnapshots", "snapshots::GetSnapshot", "groups::"],
    ),
    pack(
        Directories,
        &[
            CapacityUnknown,
            VolumeContextUnset,
            IdsWithSlashes,
            EmptyFirstPage,
            EmptyLastPage,
            ListStatusUnset,
            CapacityLimitsUnset,
            ConfirmedWithoutContext,
            SnapshotSizeUnknown,
            ListedTimesInSeconds,
        ],
        &["controller_", "snapshots::", "groups::", "clones::"],
    ),
    pack(
        Directories,
        &[PagesByPosition, SizesInGibibytes],
        &["controller_", "snapshots::ListSnapshots", "node_expand::"],
    ),
    pack(Directories, &[ReadyToUseLate, DeleteRefusedWithSnapshots], &["snapshots::", "CreateSnapshot"]),
    pack(Directories, &[SourcesInUse], &["snapshots::", "clones::", "groups::", "CreateVolume from"]),
    pack(Images, &[StatsOfTotals], &["node_stats::"]),
    pack(Images, &[StatsOfBytes], &["node_stats::"]),
    pack(Images, &[StatsOfInodes], &["node_stats::"]),
    pack(Devices, &[MetadataLargeBlocks], &["metadata::"]),
    pack(Devices, &[MetadataUntracked], &["metadata::"]),
    pack(Directories, &[GroupsOfOneVolume], &["groups::", "VolumeGroupSnapshot"]),
    pack(Directories, &[SnapshotsOfUnusedVolumes], &["snapshots::", "metadata::"]),
    pack(
        Directories,
        &[SnapshotsOfUsedVolumes],
        &["snapshots::", "CreateSnapshot", "groups::", "VolumeGroupSnapshot"],
    ),
    pack(Devices, &[MetadataFixedBlocks, MetadataSingleBlocks, MetadataEmptyMessages], &["metadata::"]),
    pack(Directories, &[Slow, ReadyLate], &["lifecycle::", "interruptions::"]),
    pack(Directories, &[SlowResponses, SerialCalls], &["lifecycle::", "concurrency::"]),
    pack(Directories, &[AbortedWhileBusy], &["concurrency::", "interruptions::"]),
    pack(Directories, &[BusyAfterCancel], &["interruptions::CreateVolume", "interruptions::NodeStageVolume"]),
];

/// Kinds of volumes with which a variant has an effect on cases.
pub(crate) fn volumes(variant: Variant) -> Volumes {
    let of = PACKS.iter().find(|pack| pack.variants.contains(&variant));
    of.map_or(Directories, |pack| pack.volumes)
}

/// The failures of a driver with these variants; an error if no case passes.
pub(crate) fn failures(volumes: Volumes, variants: &[Variant], cases: &[&str]) -> Option<String> {
    let names: Vec<String> = variants.iter().map(|variant| variant.name()).collect();
    if !is_possible(volumes, &names.join(", ")) {
        return None;
    }
    let flags: Vec<String> = names.iter().map(|name| format!("--variant {name}")).collect();
    let summary = summary(&flags.join(" "), volumes, &["--ready-timeout", "20"], cases).summary;
    reported(&names.join(", "), &wrong(&summary))
}

#[test]
fn each_variant_is_in_a_pack() {
    let packed: BTreeSet<Variant> = PACKS.iter().flat_map(|pack| pack.variants).copied().collect();
    let missing: Vec<_> = Variant::all().iter().filter(|variant| !packed.contains(variant)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn no_variant_fails_the_cases_that_could_fail_for_it() {
    let failed = several_at_a_time(PACKS, |pack| failures(pack.volumes, pack.variants, pack.cases));
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// All cases with each variant alone: this takes minutes, so only `ci/variants` runs it.
#[test]
#[ignore = "ci/variants runs it"]
fn no_variant_fails_any_case() {
    let failed = several_at_a_time(Variant::all(), |&variant| failures(volumes(variant), &[variant], &[]));
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    println!("no case fails for any of {} variants", Variant::all().len());
}

/// The page `docs/variants.md`.
fn page() -> String {
    let mut page = String::from(
        "# Legal variants of the driver\n\n\
         `claimcheck driver --variant NAME` is the built-in driver with another of the answers that the CSI specification\n\
         permits. No case of `claimcheck csi` may fail for any of them, nor one of `claimcheck run` for drivers that have\n\
         several: `ci/variants` runs all cases against each. Generated by `ci/variants --write`.\n\n\
         | variant | effect | permitted by |\n\
         |---|---|---|\n",
    );
    let cell = |text: &str| text.replace('|', "\\|").replace('<', "&lt;");
    for variant in Variant::all() {
        let permit = variant.permit();
        let (name, effect) = (variant.name(), cell(&variant.effect()));
        // Links within the specification.
        let sentence = permit.sentence.replace("](#", &format!("]({SPECIFICATION}#"));
        let (section, sentence) = (&permit.section, cell(&sentence));
        writeln!(page, "| `{name}` | {effect} | {section}: \"{sentence}\" |").unwrap();
    }
    write!(page, "\n{} variants.\n", Variant::all().len()).unwrap();
    let legal = claimcheck_saboteur::legal().unwrap();
    page.push_str(
        "\n# Legal behaviour around the driver\n\n\
         These rows are `testing/saboteur/legal`: what a proxy before any driver, the embedded API server, another program\n\
         or a setting may also do. `claimcheck csi --sabotage NAME` and `claimcheck run --sabotage NAME` run them, also\n\
         several together (`NAME,NAME`); rows of settings are arguments of `claimcheck run`. No case may fail for them, and\n\
         `ci/variants` fails, too, if a rule of a row did not apply in a run.\n\n\
         | row | suite | effect | permitted by |\n\
         |---|---|---|---|\n",
    );
    for row in &legal {
        let suite = if row.suite == Suite::Csi { "csi" } else { "run" };
        let permitted = cell(row.permitted.as_deref().unwrap_or_default());
        writeln!(
            page,
            "| `{}` | {suite} | {} | {permitted} |",
            row.name,
            cell(row.does.trim_end_matches('.'))
        )
        .unwrap();
    }
    write!(page, "\n{} rows.\n", legal.len()).unwrap();
    page
}

#[test]
fn the_page_has_each_variant_and_what_permits_it() {
    if env::var_os(WRITE).is_some() {
        fs::write(PAGE, page()).unwrap();
    }
    let stored = fs::read_to_string(PAGE).unwrap_or_default();
    assert!(stored == page(), "docs/variants.md is stale: run ci/variants --write\nexpected:\n{}", page());
}
