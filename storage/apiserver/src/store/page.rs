//! Pages of a collection, in the present and in a former state, at the cost of the page and of the changes since: the
//! objects are never copied, and those after a page are only counted.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use super::{Change, ChangeKind, Key, Object};

/// A part of a collection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span<'a> {
    /// The namespace; all if unset.
    pub namespace: Option<&'a str>,
    /// The key before the first object, if it does not begin with the collection.
    pub after: Option<&'a Key>,
    /// The maximum number of objects.
    pub limit: Option<usize>,
}

/// The objects of a span.
#[derive(Debug, Default)]
pub struct Page {
    /// In order of their keys.
    pub objects: Vec<Arc<Object>>,
    /// The number of objects that follow.
    pub rest: usize,
}

type Objects = BTreeMap<Key, Arc<Object>>;

impl Span<'_> {
    fn bounds(&self) -> (Bound<Key>, Bound<Key>) {
        let start = match (self.after, self.namespace) {
            (Some(after), _) => Bound::Excluded(after.clone()),
            (None, Some(namespace)) => Bound::Included(Key::new(namespace, "")),
            (None, None) => Bound::Unbounded,
        };
        // No name of a namespace comes between, since they are longer than the first by a letter or more.
        let end = self.namespace.map(|namespace| Bound::Excluded(Key::new(&format!("{namespace}\0"), "")));
        let end = end.unwrap_or(Bound::Unbounded);
        match (&start, &end) {
            // A token of another namespace: nothing, where a map would panic.
            (Bound::Excluded(first), Bound::Excluded(last)) if first >= last => {
                (Bound::Included(last.clone()), Bound::Excluded(last.clone()))
            }
            _ => (start, end),
        }
    }
}

/// The present state.
pub fn present(objects: &Objects, span: &Span<'_>) -> Page {
    let mut range = objects.range(span.bounds());
    let mut page = Page::default();
    let limit = span.limit.unwrap_or(usize::MAX);
    page.objects.extend(range.by_ref().take(limit).map(|(_, object)| object.clone()));
    // The whole collection has its length, and of other parts only keys are visited.
    page.rest = match span {
        Span { namespace: None, after: None, .. } => objects.len() - page.objects.len(),
        _ => range.count(),
    };
    page
}

/// The state before `changes`, which are all since then, oldest first.
pub fn past<'a>(
    objects: &Objects,
    changes: impl ExactSizeIterator<Item = &'a Arc<Change>> + Clone,
    span: &Span<'_>,
) -> Page {
    if changes.len() == 0 {
        return present(objects, span);
    }
    let limit = span.limit.unwrap_or(usize::MAX);
    let (start, end) = span.bounds();
    let bounds = (start.as_ref(), end.as_ref());
    // The page ends before this object: at most the added ones in between did not exist.
    let added = changes.clone().filter(|change| change.kind == ChangeKind::Added).count();
    let beyond = objects.range(bounds).nth(limit.saturating_add(added)).map(|(key, _)| key);
    // What has changed, as it was then: the first change of an object counts. Of those beyond the page, only the existence
    // matters.
    let mut former: BTreeMap<&Key, Option<&Arc<Object>>> = BTreeMap::new();
    for change in changes {
        let key = &change.object.key;
        let matters = change.kind != ChangeKind::Modified || beyond.is_none_or(|beyond| key <= beyond);
        if matters && bounds.contains(key) {
            former.entry(key).or_insert(change.previous.as_ref());
        }
    }
    let mut former = former.into_iter().peekable();
    let mut present = objects.range(bounds).peekable();
    let mut page = Page::default();
    while page.objects.len() < limit {
        let next = present.peek().map(|(key, _)| *key);
        match former.next_if(|(key, _)| next.is_none_or(|next| *key <= next)) {
            Some((key, then)) => {
                page.objects.extend(then.iter().map(|object| Arc::clone(object)));
                if next == Some(key) {
                    present.next();
                }
            }
            None => match present.next() {
                Some((_, object)) => page.objects.push(object.clone()),
                None => break,
            },
        }
    }
    page.rest = present.count();
    for (key, then) in former {
        match (objects.contains_key(key), then.is_some()) {
            (true, false) => page.rest -= 1,
            (false, true) => page.rest += 1,
            (true, true) | (false, false) => {}
        }
    }
    page
}
