//! The result of `exec` and `attach`: a `Status` in the error stream.
//! Upstream: `ServeExec` in `cri-streaming/pkg/streaming/remotecommand/exec.go`, `v4WriteStatusFunc`.

use claimcheck_runtime::Exit;
use hyper::body::Bytes;
use serde_json::{Value, json};

/// The program exited, or the container of an `attach`.
pub fn success() -> Bytes {
    bytes(&json!({ "metadata": {}, "status": "Success" }))
}

/// The program has exited.
pub fn exited(command: &[String], exit: Exit) -> Bytes {
    let code = exit.code();
    if code == 0 {
        return success();
    }
    let command = command.join(" ");
    bytes(&json!({
        "metadata": {},
        "status": "Failure",
        "message": format!(
            "command terminated with non-zero exit code: error executing command [{command}], exit code {code}"
        ),
        "reason": "NonZeroExitCode",
        "details": { "causes": [{ "reason": "ExitCode", "message": code.to_string() }] },
    }))
}

/// It could not be started, or not be served to its end.
pub fn failed(operation: &str, error: &str) -> Bytes {
    let error = format!("error {operation} container: {error}");
    bytes(&json!({
        "metadata": {},
        "status": "Failure",
        "message": format!("Internal error occurred: {error}"),
        "reason": "InternalError",
        "details": { "causes": [{ "message": error }] },
        "code": 500,
    }))
}

fn bytes(status: &Value) -> Bytes {
    Bytes::from(status.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_causes() {
        let command = ["sh".to_owned(), "-c".to_owned()];
        for (exit, expected) in
            [(Exit::Code(0), None), (Exit::Code(3), Some("3")), (Exit::Signal(9), Some("137"))]
        {
            let status: Value = serde_json::from_slice(&exited(&command, exit)).unwrap();
            let cause = &status["details"]["causes"][0];
            assert_eq!(cause["message"].as_str(), expected, "{status}");
            let outcome = if expected.is_some() { "Failure" } else { "Success" };
            assert_eq!(status["status"], outcome, "{status}");
        }
        let status: Value = serde_json::from_slice(&failed("executing command in", "no tar")).unwrap();
        let expected = "Internal error occurred: error executing command in container: no tar";
        assert_eq!((&status["message"], &status["code"]), (&json!(expected), &json!(500)));
    }
}
