//! `ci/e2e-expect`, which compares results of Kubernetes' own e2e tests with a list, and `ci/agnhost`, which stands for
//! an image of these tests.

#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::{fs, path::Path, process::Command};

use crate::workspace;

const LIST: &str = "# Specs.\npasses\n    [Testpattern: A] volumes should store data\n\n\
    passes with online expansion\n    [Testpattern: A] volume-expand should resize\n\n\
    skips: the driver has none\n    [Testpattern: B] volumes should store data\n\n\
    fails: there is no kubelet\n    [Testpattern: A] disruptive should restart\n";

/// A report with the specs of `LIST` in these states.
fn report(states: [&str; 4]) -> String {
    let specs = [
        "A] volumes should store data",
        "A] volume-expand should resize",
        "B] volumes should store data",
        "A] disruptive should restart",
    ];
    let case = |(spec, state): (&&str, &str)| {
        let name = format!("[It] External Storage [Driver: d] [Testpattern: {spec}");
        let detail = match state {
            "skipped" => "<skipped message=\"skipped - Driver has none\"></skipped>",
            "failed" => "<failure message=\"it is broken\" type=\"failed\"></failure>",
            _ => "",
        };
        format!("<testcase name=\"{name}\" status=\"{state}\">{detail}</testcase>")
    };
    let unfocused = "<testcase name=\"[It] External Storage [Driver: d] [Testpattern: Z] other\" status=\"skipped\">\
        <skipped message=\"skipped\"></skipped></testcase>";
    let cases: String = specs.iter().zip(states).map(case).collect();
    format!("<testsuites><testsuite>{cases}{unfocused}</testsuite></testsuites>")
}

/// The exit code, and what is printed.
fn compared(folder: &Path, list: &str, online: bool, states: [&str; 4]) -> (i32, String) {
    let write = |name: &str, text: String| fs::write(folder.join(name), text).unwrap();
    write("list", list.to_owned());
    write("driver", format!("DriverInfo:\n  Capabilities:\n    onlineExpansion: {online}\n"));
    write("junit", report(states));
    let script = workspace().join("ci/e2e-expect");
    let ran = Command::new(script).args(["list", "driver", "junit"]).current_dir(folder).output().unwrap();
    let text = [ran.stdout, ran.stderr].concat();
    (ran.status.code().unwrap(), String::from_utf8(text).unwrap())
}

#[test]
#[ignore = "requires python"]
fn each_difference_from_the_list_is_an_error() {
    claimcheck_needs::require("python");
    let folder = tempfile::tempdir().unwrap();
    let run = |online, states| compared(folder.path(), LIST, online, states);
    assert_eq!(run(true, ["passed", "passed", "skipped", "failed"]).0, 0);
    assert_eq!(run(false, ["passed", "skipped", "skipped", "failed"]).0, 0);
    for (online, states, expected) in [
        (true, ["failed", "passed", "skipped", "failed"], "fails: it is broken\n    list: passes"),
        (true, ["skipped", "passed", "skipped", "failed"], "skips: Driver has none\n    list: passes"),
        (true, ["passed", "skipped", "skipped", "failed"], "skips: Driver has none\n    list: passes"),
        (true, ["passed", "passed", "skipped", "passed"], "passes\n    list: fails: there is no kubelet"),
        (
            false,
            ["passed", "passed", "skipped", "failed"],
            "list: skips: the driver file has no online expansion",
        ),
    ] {
        let (code, text) = run(online, states);
        assert!(code == 1 && text.contains(expected) && text.contains("1 differ"), "{expected}: {text}");
    }
    let unlisted = LIST.replace("[Testpattern: B] volumes", "[Testpattern: C] volumes");
    let (code, text) = compared(folder.path(), &unlisted, true, ["passed", "passed", "skipped", "failed"]);
    assert!(code == 1 && text.contains("did not run") && text.contains("not in the list"), "{text}");
    let spec = "    [Testpattern: A] volumes should store data\n";
    for (list, expected) in [
        (format!("{LIST}{spec}"), "listed twice"),
        (format!("passes: all\n{spec}"), "not a section"),
        (spec.to_owned(), "before the first section"),
        ("passes\n    a spec\n".to_owned(), "not the name of a spec"),
        (String::new(), "no specs"),
    ] {
        let (code, text) = compared(folder.path(), &list, true, ["passed"; 4]);
        assert!(code == 2 && text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn agnhost_prints_files_in_the_words_of_the_image() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f").display().to_string();
    let run = |args: &[String]| {
        let ran = Command::new(workspace().join("ci/agnhost")).arg("mounttest").args(args).output().unwrap();
        (ran.status.code().unwrap(), String::from_utf8(ran.stdout).unwrap())
    };
    let (code, text) = run(&[format!("--new_file_0660={file}"), format!("--file_mode={file}")]);
    let expected =
        format!("content of file \"{file}\": mount-tester new file\n\nmode of file \"{file}\": -rw-rw----\n");
    assert_eq!((code, text), (0, expected));
    let (code, text) = run(&[format!("--file_content={file}x")]);
    assert!(
        code == 1 && text.starts_with(&format!("error reading file content for \"{file}x\": ")),
        "{text}"
    );
    assert_eq!(run(&["--unknown=1".to_owned()]).0, 1);
}
