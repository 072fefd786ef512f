//! The columns of the tables that kubectl shows. They are data, in `columns.yaml`, which describes the format; those of kinds
//! on which nothing acts are in `inert.yaml`. Cells that are computed are functions in `cells.rs`.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::cells::Cell;

/// A column of a table.
#[derive(Debug)]
pub struct Column {
    /// Its heading.
    pub name: &'static str,
    /// `string`, `integer`, `boolean` or `date`.
    pub kind: &'static str,
    /// `name` for what identifies the object.
    pub format: &'static str,
    /// What it shows. Only custom kinds describe their columns.
    pub description: &'static str,
    /// 0 is always shown, 1 only with `-o wide`.
    pub priority: u8,
    /// Its cell in the row of an object.
    pub cell: Cell,
}

/// The column of names.
pub const NAME: Column = Column {
    name: "Name",
    kind: "string",
    format: "name",
    description: "",
    priority: 0,
    cell: Cell::Path("/metadata/name", ""),
};

/// The heading of the time of creation, of kinds without a printer.
pub const CREATED: &str = "Created At";

static TEXTS: LazyLock<HashMap<String, Map<String, Value>>> = LazyLock::new(|| {
    serde_saphyr::from_str(include_str!("columns.yaml")).expect("a test reads columns.yaml")
});

/// The columns of a kind.
pub fn of(kind: &str) -> &'static [Column] {
    static ALL: LazyLock<HashMap<&str, Vec<Column>>> =
        LazyLock::new(|| TEXTS.iter().map(|(kind, texts)| (kind.as_str(), read(kind, texts))).collect());
    ALL.get(kind).unwrap_or_else(|| &ALL["Other"])
}

/// Reads the columns of a kind.
pub(super) fn read(kind: &str, texts: &'static Map<String, Value>) -> Vec<Column> {
    let column = |(name, text): (&'static String, &'static Value)| {
        let text = text.as_str().unwrap_or_default();
        let (priority, text) = text.strip_prefix("wide ").map_or((0, text), |text| (1, text));
        let (given, text) = match text.split_once(' ') {
            Some((given @ ("string" | "date"), text)) => (Some(given), text),
            _ => (None, text),
        };
        let cell = Cell::read(text).unwrap_or_else(|| panic!("{kind}: no cell is {text:?}"));
        let of_cell = match cell {
            Cell::Number(_) | Cell::Count(_) => "integer",
            Cell::Flag(..) => "boolean",
            _ => "string",
        };
        let format = if name == NAME.name { NAME.format } else { "" };
        Column { name, kind: given.unwrap_or(of_cell), format, description: "", priority, cell }
    };
    let first = if texts.contains_key(NAME.name) { None } else { Some(NAME) };
    first.into_iter().chain(texts.iter().map(column)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources;

    #[test]
    fn each_row_is_of_a_served_kind_and_has_cells() {
        for (kind, texts) in TEXTS.iter() {
            let served = resources::all().iter().any(|row| row.kind == kind && row.inert.is_none());
            assert!(served || ["Scale", "Other"].contains(&kind.as_str()), "{kind}");
            assert_eq!(texts.values().filter(|text| text.is_string()).count(), texts.len(), "{kind}");
            of(kind).iter().for_each(|column| drop(column.cell.of(&Value::Null)));
        }
    }

    #[test]
    fn a_column_is_a_name_a_type_and_a_cell() {
        let shown = |kind: &str| -> Vec<String> {
            let text = |column: &Column| format!("{} {} {}", column.name, column.kind, column.priority);
            of(kind).iter().map(text).collect()
        };
        assert_eq!(shown("ServiceAccount"), ["Name string 0", "Age string 0"]);
        assert_eq!(shown("Role"), ["Name string 0", "Created At date 0"]);
        assert_eq!(shown("ConfigMap"), ["Name string 0", "Data string 0", "Age string 0"]);
        assert_eq!(shown("CSINode"), ["Name string 0", "Drivers integer 0", "Age string 0"]);
        assert_eq!(shown("Event").last().unwrap(), "Name string 1");
        assert_eq!(shown("VolumeAttachment")[4], "Attached boolean 0");
    }
}
