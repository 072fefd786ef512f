//! The matrix for people: on the terminal, and as the page `docs/defects.md`.

use std::{collections::BTreeSet, env, fmt::Write, fs, path::Path};

use claimcheck_driver::defect::Defect;
use comfy_table::{ContentArrangement, Table, TableStyle};

use crate::{
    Trial,
    due::{Devices, Directories, Due, Images, due_of},
};

/// Set by `ci/defects --write`.
const WRITE: &str = "CLAIMCHECK_WRITE_DEFECTS";
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/defects.md");
/// How many characters of a message are shown.
const MESSAGE: usize = 200;
/// How many of the other cases are named on the terminal.
const OTHERS: usize = 3;

/// The first line of what the case says that was to catch the defect.
fn message(trial: &Trial) -> String {
    let message = trial.caught().map(|finding| finding.message.as_str()).unwrap_or_default();
    message.lines().next().unwrap_or_default().chars().take(MESSAGE).collect()
}

/// The other cases that found something.
fn others(trial: &Trial) -> Vec<&str> {
    let mut others: Vec<&str> = trial.found.iter().map(|finding| finding.case.as_str()).collect();
    others.retain(|case| *case != due_of(trial.defect).case);
    let mut named = BTreeSet::new();
    others.retain(|case| named.insert(*case));
    others
}

/// The matrix as `ci/defects` prints it.
pub(crate) fn table(trials: &[Trial]) -> Table {
    let mut table = Table::new();
    table.load_style(TableStyle::new()).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(200).set_header(["DEFECT", "CAUGHT BY", "MESSAGE"]);
    for trial in trials {
        let others = others(trial);
        let mut cases = vec![due_of(trial.defect).case.to_owned()];
        cases.extend(others.iter().take(OTHERS).map(ToString::to_string));
        if others.len() > OTHERS {
            cases.push(format!("and {} more", others.len() - OTHERS));
        }
        let told = trial.missed.as_ref().map_or_else(|| message(trial), |why| format!("MISSED: {why}"));
        table.add_row([trial.defect.name(), cases.join("\n"), told]);
    }
    table
}

/// What the page says of a defect whatever a run brings.
fn fixed(defect: Defect) -> String {
    let Due { volumes, case, .. } = due_of(defect);
    let of = match volumes {
        Directories => "",
        Images => " (images)",
        Devices => " (raw block)",
    };
    format!("| `{}` | {}{of} | {case} |", defect.name(), defect.effect())
}

/// Text for a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

/// Writes the page, where that is asked for.
pub(crate) fn write(trials: &[Trial]) {
    if env::var_os(WRITE).is_none() {
        return;
    }
    let mut page = String::from(
        "# What catches which defect\n\n\
         `claimcheck driver --defect NAME` is our driver with one thing wrong. This is what `claimcheck csi`, run whole\n\
         against each, finds: the case that is to catch it, how many others fail or remark something too, and the first\n\
         line of what the case says. Volumes are directories unless it says otherwise. Written by `ci/defects --write`,\n\
         which ends with an error unless each defect is caught in words that name its effect.\n\n\
         | defect | what is wrong | caught by | others | in these words |\n\
         |---|---|---|---:|---|\n",
    );
    for trial in trials {
        let (others, message) = (others(trial).len(), cell(&message(trial)));
        writeln!(page, "{} {others} | {message} |", fixed(trial.defect)).unwrap();
    }
    write!(page, "\n{} defects, all of them caught.\n", trials.len()).unwrap();
    fs::create_dir_all(Path::new(PAGE).parent().unwrap()).unwrap();
    fs::write(PAGE, page).unwrap();
}

#[test]
fn the_page_has_each_defect_and_what_catches_it() {
    let page = fs::read_to_string(PAGE).unwrap();
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    assert_eq!(rows.len(), Defect::all().len(), "docs/defects.md is stale: run ci/defects --write");
    for (row, &defect) in rows.iter().zip(Defect::all()) {
        let words = cell(due_of(defect).words);
        let fresh = row.starts_with(&fixed(defect)) && row.contains(&words);
        assert!(
            fresh,
            "docs/defects.md is stale: run ci/defects --write\nhas  {row}\nwant {}",
            fixed(defect)
        );
    }
}
