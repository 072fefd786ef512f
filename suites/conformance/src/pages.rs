//! The bounds of a list in pages: a driver may return pages without end.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
};

use anyhow::{Result, bail};

/// The maximum number of entries of a list; a page counts as one entry at least.
const ENTRIES: usize = 100_000;
/// The maximum size of a list in bytes.
const BYTES: usize = 64 << 20;
/// The maximum number of characters of a token in messages.
const QUOTED: usize = 128;

/// The pages of a list so far.
#[derive(Debug)]
pub(crate) struct Pages {
    call: &'static str,
    /// Hashes of the tokens: a token may be megabytes long.
    tokens: HashSet<u64>,
    entries: usize,
    bytes: usize,
}

impl Pages {
    /// Of this call.
    pub(crate) fn of(call: &'static str) -> Self {
        Self { call, tokens: HashSet::new(), entries: 0, bytes: 0 }
    }

    /// Whether no page has been read.
    pub(crate) fn is_first(&self) -> bool {
        self.tokens.is_empty()
    }

    /// The call for the next page, for messages: the driver has chosen the token of every page but the first.
    pub(crate) fn call(&self) -> String {
        match self.tokens.len() {
            0 => self.call.to_owned(),
            read => format!("{} with the next_token that it returned with page {read}", self.call),
        }
    }

    /// Adds a page with entries of these sizes; returns the token of the next page, unless the list ends.
    ///
    /// # Errors
    /// The list has no end: a token is returned twice, or there are too many entries.
    pub(crate) fn next(
        &mut self,
        sizes: impl IntoIterator<Item = usize>,
        next_token: String,
    ) -> Result<Option<String>> {
        let (mut entries, call) = (0, self.call);
        for size in sizes {
            (entries, self.bytes) = (entries + 1, self.bytes.saturating_add(size));
        }
        self.entries += entries.max(1);
        if next_token.is_empty() {
            return Ok(None);
        }
        if self.entries > ENTRIES || self.bytes > BYTES {
            bail!(
                "{call} returns more than {ENTRIES} entries, or more than {} MiB, and does not end",
                BYTES >> 20
            );
        }
        let mut hasher = DefaultHasher::new();
        next_token.hash(&mut hasher);
        if !self.tokens.insert(hasher.finish()) {
            let token: String = next_token.chars().take(QUOTED).collect();
            bail!("{call} returns the next_token {token:?} a second time: the list does not end");
        }
        Ok(Some(next_token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of pages until a list ends, or the error.
    fn read(token: impl Fn(usize) -> String, size: usize) -> Result<usize> {
        let mut pages = Pages::of("ListVolumes");
        for number in 1.. {
            if pages.next([size], token(number))?.is_none() {
                return Ok(number);
            }
        }
        unreachable!("a list has an end, or too many pages")
    }

    #[test]
    fn a_list_that_ends_is_read_to_its_end() {
        let token = |number| if number < 50_000 { format!("{number}") } else { String::new() };
        assert_eq!(read(token, 100).unwrap(), 50_000);
    }

    #[test]
    fn an_error_of_a_later_page_is_about_a_token_of_the_driver() {
        let mut pages = Pages::of("ListVolumes");
        assert_eq!((pages.call().as_str(), pages.is_first()), ("ListVolumes", true));
        pages.next([1], "a".to_owned()).unwrap();
        let second = "ListVolumes with the next_token that it returned with page 1";
        assert_eq!((pages.call().as_str(), pages.is_first()), (second, false));
    }

    #[test]
    fn a_list_without_end_is_an_error() {
        let alternating = read(|number| ["a", "b"][number % 2].to_owned(), 100).unwrap_err();
        assert!(alternating.to_string().contains("the next_token \"b\" a second time"), "{alternating}");
        let endless = read(|number| format!("{number}"), 0).unwrap_err();
        assert!(endless.to_string().contains("more than 100000 entries"), "{endless}");
        let large = read(|number| format!("{number}"), 1 << 20).unwrap_err();
        assert!(large.to_string().contains("64 MiB"), "{large}");
    }
}
