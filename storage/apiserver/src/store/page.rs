//! Pages of a collection, in the present and in a former state, at the cost of the page and of the changes since: the
//! objects are never copied, and those after a page are only counted.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::{Change, Key, Object};

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
    changes: impl DoubleEndedIterator<Item = &'a Arc<Change>> + ExactSizeIterator,
    span: &Span<'_>,
) -> Page {
    if changes.len() == 0 {
        return present(objects, span);
    }
    // What has changed, as it was then: the first change of an object counts.
    let mut former: BTreeMap<&Key, Option<&Arc<Object>>> = BTreeMap::new();
    for change in changes {
        former.entry(&change.object.key).or_insert(change.previous.as_ref());
    }
    let (start, end) = span.bounds();
    let mut former = former.range::<Key, _>((start.as_ref(), end.as_ref())).peekable();
    let mut present = objects.range((start.as_ref(), end.as_ref())).peekable();
    let mut page = Page::default();
    while page.objects.len() < span.limit.unwrap_or(usize::MAX) {
        let next = present.peek().map(|(key, _)| *key);
        match former.next_if(|(key, _)| next.is_none_or(|next| **key <= next)) {
            Some((key, then)) => {
                page.objects.extend(then.iter().map(|object| Arc::clone(object)));
                if next == Some(*key) {
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
        match (objects.contains_key(*key), then.is_some()) {
            (true, false) => page.rest -= 1,
            (false, true) => page.rest += 1,
            (true, true) | (false, false) => {}
        }
    }
    page
}
