//! Other pages than those of the driver: small ones, empty ones, and tokens that are positions.

use tonic::Status;

use super::{Variant, Variants};

/// The tokens of the pages after an empty first page, and of an empty last page.
const FIRST: &str = "first";
const LAST: &str = "last";
/// The size of pages without max_entries, with [`Variant::PagesByPosition`].
const SOME: usize = 3;

/// The entries of a page, and the token of the next one.
pub(super) type Page<E> = (Vec<E>, String);

/// A page of a list; `list` requests a page of the driver, with max_entries and a starting_token.
pub(super) async fn page<E, F>(
    variants: &Variants,
    (max_entries, token): (i32, String),
    list: impl Fn(i32, String) -> F,
) -> Result<Page<E>, Status>
where
    F: Future<Output = Result<Page<E>, Status>>,
{
    let Ok(limit) = usize::try_from(max_entries) else { return list(max_entries, token).await };
    if variants.has(Variant::PagesByPosition) {
        let start: usize = match token.as_str() {
            "" => 0,
            token => token.parse().map_err(|_| Status::aborted("starting_token is not a position"))?,
        };
        let (all, _) = list(0, String::new()).await?;
        return Ok(part(all, start, if limit == 0 { SOME } else { limit }));
    }
    let token = match token.as_str() {
        "" if variants.has(Variant::EmptyFirstPage) => return Ok((Vec::new(), FIRST.to_owned())),
        FIRST if variants.has(Variant::EmptyFirstPage) => String::new(),
        LAST if variants.has(Variant::EmptyLastPage) => return Ok((Vec::new(), String::new())),
        _ => token,
    };
    let max_entries = if variants.has(Variant::ManyPages) { 1 } else { max_entries };
    let (entries, mut next_token) = list(max_entries, token).await?;
    if variants.has(Variant::EmptyLastPage) && next_token.is_empty() && !entries.is_empty() {
        next_token = LAST.to_owned();
    }
    Ok((entries, next_token))
}

/// The entries from a position on, and the next position.
fn part<E>(all: Vec<E>, start: usize, size: usize) -> Page<E> {
    let end = start.saturating_add(size);
    let next_token = if end < all.len() { end.to_string() } else { String::new() };
    (all.into_iter().skip(start).take(size).collect(), next_token)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All entries of a list of five, in pages; and the number of pages.
    async fn read(variants: &[Variant], max_entries: i32) -> (Vec<i32>, usize) {
        let variants = Variants::new(variants.iter().copied());
        let list = |max_entries: i32, token: String| async move {
            let start = token.parse().unwrap_or(0);
            let size = if max_entries == 0 { 5 } else { usize::try_from(max_entries).unwrap() };
            Ok(part(vec![1, 2, 3, 4, 5], start, size))
        };
        let (mut entries, mut token, mut count) = (Vec::new(), String::new(), 0);
        loop {
            let (more, next) = page(&variants, (max_entries, token), list).await.unwrap();
            assert!(max_entries == 0 || i32::try_from(more.len()).unwrap() <= max_entries);
            entries.extend(more);
            count += 1;
            if next.is_empty() {
                return (entries, count);
            }
            token = next;
        }
    }

    #[tokio::test]
    async fn all_pages_together_are_the_list() {
        let table: [(&[Variant], i32, usize); 9] = [
            (&[], 0, 1),
            (&[], 2, 3),
            (&[Variant::ManyPages], 0, 5),
            (&[Variant::ManyPages], 2, 5),
            (&[Variant::EmptyFirstPage], 0, 2),
            (&[Variant::EmptyLastPage], 2, 4),
            (&[Variant::EmptyFirstPage, Variant::EmptyLastPage], 0, 3),
            (&[Variant::PagesByPosition], 0, 2),
            (&[Variant::PagesByPosition], 2, 3),
        ];
        for (variants, max_entries, pages) in table {
            assert_eq!(read(variants, max_entries).await, (vec![1, 2, 3, 4, 5], pages), "{variants:?}");
        }
    }
}
