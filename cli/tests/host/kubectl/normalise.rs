//! What differs between two runs of a command on equal clusters: uids, times, ages, versions, tokens, names with a
//! random part, ports and folders.

use std::sync::LazyLock;

use regex::Regex;

/// Replaced in this order, in each line.
const RULES: [(&str, &str); 21] = [
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uid>"),
    (r"eyJ[\w-]+\.[\w-]+\.[\w-]+", "<token>"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", "<time>"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? [+-]\d{4}( [A-Z]+)?", "<time>"),
    (r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "<time>"),
    // klog, with the number of the process; the lines of kubectl's sources remain.
    (r"^([EWIF])\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ ", "$1<time> "),
    (r#"(resourceVersion\\?"?: ?\\?"?)\d+"#, "${1}<version>"),
    (r"(Resource Version: +)\d+", "${1}<version>"),
    // Where kubectl diff and edit put their files.
    (r"\b(LIVE|MERGED)-\d+", "$1-<number>"),
    (r"kubectl-edit-\d+", "kubectl-edit-<number>"),
    (r"kube-api-access-[a-z0-9]{5}", "kube-api-access-<suffix>"),
    (r"\bgenerated-[a-z0-9]{5}\b", "generated-<suffix>"),
    // The name of an event.
    (r"\.[0-9a-f]{16}\b", ".<suffix>"),
    (r"\b(127\.0\.0\.1|localhost):\d{4,5}", "$1:<port>"),
    // Ages below two minutes are printed in seconds. Twice, since two ages share the blank between them.
    (AGE, "$1<age>$2"),
    (AGE, "$1<age>$2"),
    (r"x(\d+) over [0-9ms]+\b", "x$1 over <age>"),
    // The width of a column depends on the longest age.
    (r"<age> {2,}", "<age>   "),
    (r"\bAGE {2,}", "AGE   "),
    (r"\bAge {2,}", "Age   "),
    (r"in \d+(\.\d+)?(ms|s)\b", "in <age>"),
];
/// An age as a word.
const AGE: &str = r"(^|[\s(])(?:\d+y\d+d|\d{1,2}m(?:\d{1,2}s)?|(?:1[01]\d|\d{1,2})s)([\s)]|$)";

static COMPILED: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let compile = |(rule, with): (&str, &'static str)| (Regex::new(rule).expect("a rule is valid"), with);
    RULES.into_iter().map(compile).collect()
});

/// The text without what is different in each run; `folders` are those of this run, with what replaces them.
pub fn normal(text: &str, folders: &[(&str, &str)]) -> String {
    let text = folders.iter().fold(text.to_owned(), |text, (folder, name)| text.replace(folder, name));
    let line = |line: &str| {
        COMPILED
            .iter()
            .fold(line.to_owned(), |line, (rule, with)| rule.replace_all(&line, *with).into_owned())
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn what_depends_on_the_run_is_replaced() {
    for (text, expected) in [
        ("c   Bound   5s   Filesystem", "c   Bound   <age>   Filesystem"),
        ("2m3s        Normal", "<age>   Normal"),
        ("NAME   AGE    VOLUMEMODE", "NAME   AGE   VOLUMEMODE"),
        ("uid: 01234567-89ab-cdef-0123-456789abcdef", "uid: <uid>"),
        ("  resourceVersion: \"123\"", "  resourceVersion: \"<version>\""),
        (r#"{"resourceVersion":"7","x":1}"#, r#"{"resourceVersion":"<version>","x":1}"#),
        ("creationTimestamp: \"2026-11-23T05:00:03Z\"", "creationTimestamp: \"<time>\""),
        ("CreationTimestamp:  Mon, 23 Nov 2026 05:00:03 +0000", "CreationTimestamp:  <time>"),
        ("--- /f/LIVE-12/v1.x\t2026-11-23 05:00:03.1 +0000", "--- <folder>/LIVE-<number>/v1.x\t<time>"),
        ("E1123 05:00:03.123456   77 memcache.go:265] x", "E<time> memcache.go:265] x"),
        (
            "control plane is running at https://127.0.0.1:43121",
            "control plane is running at https://127.0.0.1:<port>",
        ),
        ("storage: 5Gi, 300s, key=10", "storage: 5Gi, 300s, key=10"),
    ] {
        assert_eq!(normal(text, &[("/f", "<folder>")]), expected);
    }
}
