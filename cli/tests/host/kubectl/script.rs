//! Scripts of kubectl commands, and recordings of their answers, which have the same format.
//!
//! ```text
//! # A comment.
//! == scenario            its commands run in a namespace of that name
//! # differs: reason      the next command may have another answer than that of a stock API server
//! $ kubectl get pvc      a command for sh; a here-document may follow
//! > a line of standard output
//! ! a line of standard error
//! = 1                    the exit code, unless it is 0
//! ```

use std::{fs, path::Path};

/// What a command prints, and its exit code: lines in the format of scripts.
pub type Answer = Vec<String>;

/// A command.
pub struct Step {
    /// The file and line of it.
    pub place: String,
    /// With its here-document.
    pub command: String,
    /// Why its answer may differ from that of a stock API server.
    pub reason: Option<String>,
    /// Of a recording, or of a script that contains its answers.
    pub answer: Answer,
}

/// Commands that depend on each other.
pub struct Scenario {
    pub name: String,
    pub steps: Vec<Step>,
}

/// A file.
pub struct Script {
    /// Its name without the extension.
    pub name: String,
    pub scenarios: Vec<Scenario>,
}

impl Script {
    /// Its commands, with the names of their scenarios.
    pub fn steps(&self) -> impl Iterator<Item = (&str, &Step)> {
        self.scenarios.iter().flat_map(|scenario| {
            let name = scenario.name.as_str();
            scenario.steps.iter().map(move |step| (name, step))
        })
    }
}

/// The scripts of a folder, in the order of their names.
pub fn read(folder: &Path) -> Vec<Script> {
    let files = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    files.sort();
    let scripts =
        files.into_iter().filter(|file| file.extension().is_some_and(|extension| extension == "txt"));
    let scripts = scripts.map(|file| {
        let name = file.file_stem().expect("a name").to_string_lossy().into_owned();
        parse(&name, &fs::read_to_string(&file).expect("a script is text"))
    });
    scripts.collect()
}

/// Panics with the line that has no meaning.
pub fn parse(name: &str, text: &str) -> Script {
    let mut scenarios: Vec<Scenario> = Vec::new();
    let mut reason = None;
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let place = format!("{name}.txt:{}", number + 1);
        if let Some(title) = line.strip_prefix("== ") {
            assert!(reason.is_none(), "{place}: a reason without a command before it");
            scenarios.push(Scenario { name: title.trim().to_owned(), steps: Vec::new() });
        } else if let Some(first) = line.strip_prefix("$ ") {
            let mut command = first.to_owned();
            if let Some(end) = here_document(first) {
                let mut is_complete = false;
                for (_, line) in lines.by_ref() {
                    command.push('\n');
                    command.push_str(line);
                    is_complete = line == end;
                    if is_complete {
                        break;
                    }
                }
                assert!(is_complete, "{place}: the here-document has no line {end}");
            }
            let step = Step { place: place.clone(), command, reason: reason.take(), answer: Vec::new() };
            let scenario = scenarios.last_mut();
            scenario.unwrap_or_else(|| panic!("{place}: a command before a scenario")).steps.push(step);
        } else if let Some(text) = line.strip_prefix("# differs: ") {
            reason = Some(text.to_owned());
        } else if is_answer(line) {
            let step = scenarios.last_mut().and_then(|scenario| scenario.steps.last_mut());
            step.unwrap_or_else(|| panic!("{place}: an answer without a command"))
                .answer
                .push(line.to_owned());
        } else {
            let is_blank = line.is_empty() || line.starts_with('#');
            assert!(is_blank, "{place}: neither a command, an answer nor a comment: {line}");
        }
    }
    assert!(reason.is_none(), "{name}.txt: a reason without a command at its end");
    Script { name: name.to_owned(), scenarios }
}

/// The word that ends the here-document of a command.
fn here_document(command: &str) -> Option<String> {
    let (_, after) = command.split_once("<<")?;
    let word = after.trim_start_matches(['\'', '-']);
    Some(word.chars().take_while(char::is_ascii_alphanumeric).collect())
}

fn is_answer(line: &str) -> bool {
    [">", "!"].contains(&line) || ["> ", "! ", "= "].iter().any(|prefix| line.starts_with(prefix))
}

/// The lines of an answer.
pub fn answer(stdout: &str, stderr: &str, code: i32) -> Answer {
    let with = |mark: char, line: &str| format!("{mark} {line}").trim_end().to_owned();
    let printed = stdout.lines().map(|line| with('>', line));
    let errors = stderr.lines().map(|line| with('!', line));
    let code = Some(format!("= {code}")).filter(|_| code != 0);
    printed.chain(errors).chain(code).collect()
}

/// A recording: the commands of a script with these answers, in the order of [`Script::steps`], of which `with` keeps some
/// by scenario and command.
pub fn render(
    script: &Script,
    answers: &[Answer],
    about: &str,
    with: impl Fn((&str, &str)) -> bool,
) -> String {
    let mut lines = vec![format!("# {about}")];
    let mut current = "";
    for ((scenario, step), answer) in script.steps().zip(answers) {
        if !with((scenario, &step.command)) {
            continue;
        }
        if scenario != current {
            lines.extend([String::new(), format!("== {scenario}")]);
            current = scenario;
        }
        lines.extend([String::new(), format!("$ {}", step.command)]);
        lines.extend(answer.iter().cloned());
    }
    lines.join("\n") + "\n"
}

#[test]
fn a_recording_is_read_as_it_was_written() {
    let text = "# c\n== one\n# differs: because\n$ kubectl apply -f - <<'EOF'\nkind: A\n\n$ x\nEOF\n$ true\n";
    let script = parse("s", text);
    let answers = vec![answer("a\n\nb", "", 0), answer("", "failed\n", 3)];
    let recording = parse("r", &render(&script, &answers, "about", |_| true));
    let steps = |script: &Script| -> Vec<(String, String)> {
        script.steps().map(|(scenario, step)| (scenario.to_owned(), step.command.clone())).collect()
    };
    assert_eq!(steps(&script), steps(&recording));
    assert_eq!(steps(&script)[0].1, "kubectl apply -f - <<'EOF'\nkind: A\n\n$ x\nEOF");
    assert_eq!(script.scenarios[0].steps[0].reason.as_deref(), Some("because"));
    let read: Vec<Answer> = recording.steps().map(|(_, step)| step.answer.clone()).collect();
    assert_eq!(read, answers);
    assert_eq!(read[1], ["! failed", "= 3"]);
}
