//! Paginated lists, ordered by id.
//!
//! The page token is the last id of the previous page. So objects created or deleted between two pages neither
//! hide nor repeat others, and a token stays valid even after its volume or snapshot is deleted.

use std::ops::Bound;

use crate::{
    error::{Error, Result},
    fields,
    store::{Id, Store},
};

/// One page of a list.
pub(super) struct Page<R> {
    /// The page's records.
    pub(super) records: Vec<R>,
    /// The token of the next page; empty on the last one.
    pub(super) next_token: String,
}

/// Reads at most `max_entries` records (0: all) that are listed, starting after `starting_token`.
pub(super) fn page<I: Id>(
    store: &Store,
    max_entries: i32,
    starting_token: &str,
    is_listed: impl Fn(&I::Record) -> Result<bool>,
) -> Result<Page<I::Record>> {
    let max = usize::try_from(max_entries)
        .map_err(|_| Error::invalid("max_entries", format!("{max_entries} is negative")))?;
    fields::short("starting_token", starting_token)?;
    let after = match starting_token {
        "" => Bound::Unbounded,
        token => Bound::Excluded(I::parse(token).ok_or_else(|| Error::BadToken(token.to_owned()))?),
    };
    let mut records = Vec::new();
    let mut last = String::new();
    for id in store.ids::<I>()?.range((after, Bound::Unbounded)) {
        // No record: half made, or deleted since its directory was listed.
        let Some(record) = store.load(id)? else { continue };
        if !is_listed(&record)? {
            continue;
        }
        if max > 0 && records.len() == max {
            // There is one beyond the page, so the page ends with a token.
            return Ok(Page { records, next_token: last });
        }
        records.push(record);
        last = id.to_string();
    }
    Ok(Page { records, next_token: String::new() })
}
