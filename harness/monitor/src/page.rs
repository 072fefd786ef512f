//! The status as one self-contained HTML page, in light and dark, from the width of a phone.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::stuck::{Leftover, Status, Waiting, age};

const STYLE: &str = include_str!("page.css");

/// The most rows of a page; `/status.json` has all of them.
const ROWS: usize = 500;

/// The page.
pub(crate) fn page(status: &Status) -> String {
    let omitted = status.waiting.len().saturating_sub(ROWS);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                // Seconds.
                meta http-equiv="refresh" content="30";
                title { "claimcheck monitor" }
                link rel="icon" href="data:,";
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { "Volumes that wait" }
                    p.dim { (status.headline()) }
                    @for note in &status.notes { p.note { (note) } }
                }
                main {
                    @if status.waiting.is_empty() {
                        p.good { "No volume waits." }
                    }
                    ul {
                        @for row in status.waiting.iter().take(ROWS) { (waiting(row)) }
                    }
                    @if omitted > 0 {
                        p.dim { (omitted) " more in " a href="status.json" { "status.json" } "." }
                    }
                    @if !status.leftovers.is_empty() {
                        h2 { "Objects without a known user" }
                        ul {
                            @for one in status.leftovers.iter().take(ROWS) { (leftover(one, status)) }
                        }
                    }
                }
                footer { "claimcheck " (env!("CARGO_PKG_VERSION")) ", " (status.at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()) }
            }
        }
    };
    page.into_string()
}

fn waiting(row: &Waiting) -> Markup {
    let since =
        row.since.map_or_else(|| "since an unknown time".to_owned(), |_| format!("for {}", age(row.seconds)));
    let state = if row.stuck { "stuck " } else { "" };
    let name = match (row.claim.is_empty(), row.namespace.is_empty()) {
        (true, _) => row.volume.clone(),
        (false, true) => row.claim.clone(),
        (false, false) => format!("{}/{}", row.namespace, row.claim),
    };
    html! {
        li.stuck[row.stuck] {
            span.state { (state) (since) }
            strong { (name) } " " (row.phase.name())
            p.dim { (subjects(row)) }
            @if let Some(message) = &row.message { p { code { (message) } } }
            p { "\u{2192} " (row.remedy) }
        }
    }
}

/// The objects of a row, apart from its claim.
fn subjects(row: &Waiting) -> String {
    let all =
        [("pod", &row.pod), ("node", &row.node), ("driver", &row.driver), ("class", &row.storage_class)];
    let named = all.into_iter().filter(|(_, name)| !name.is_empty());
    named.map(|(kind, name)| format!("{kind} {name}")).collect::<Vec<_>>().join(" \u{b7} ")
}

fn leftover(one: &Leftover, status: &Status) -> Markup {
    html! {
        li {
            @if let Some(age) = one.age(status.at) { span.state { "for " (age) } }
            strong { (one.object) } " " (one.kind.name())
            p.dim { (one.detail) }
            p { "\u{2192} " (one.kind.remedy()) }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{stuck::example, table::table};

    use super::*;

    #[test]
    fn the_page_has_every_wait_with_its_remedy_and_escapes_messages() {
        let page = page(&example());
        for part in [
            "prefers-color-scheme: dark",
            "width=device-width",
            "<li class=\"stuck\">",
            "default/data",
            "secret &quot;&lt;b&gt;&quot; not found",
            "create the secret in the namespace",
            "volume without claim",
            "for 10m",
            "Pod cannot be watched: &lt;i&gt;connection refused",
        ] {
            assert!(page.contains(part), "{part} is missing in\n{page}");
        }
        assert!(!page.contains("<script") && !page.contains("http://"), "it loads nothing");
    }

    #[test]
    fn the_table_has_a_line_per_wait_and_its_remedy_below() {
        let expected = "\
2 claims, 1 volume: 2 waiting, 1 of them stuck for more than 5m; 1 unused object
! Pod cannot be watched: <i>connection refused</i>

NAMESPACE  CLAIM   PHASE      SINCE  POD  NODE  DRIVER    STATE
default    data    publish    10m    web  n1    csi.test  stuck
    FailedMount: secret \"<b>\" not found
    -> create the secret in the namespace that the message or the StorageClass names, or correct the reference to it
default    unused  provision  -      -    -     csi.test  waiting
    -> nothing is wrong: the volume is created when a pod that uses the claim is scheduled

WITHOUT A KNOWN USER
volume without claim: old (claim default/gone no longer exists, and the reclaim policy is Retain), for 100m
    -> nothing is wrong: the reclaim policy preserves the data until an administrator decides about it
";
        assert_eq!(table(&example()), expected);
    }
}
