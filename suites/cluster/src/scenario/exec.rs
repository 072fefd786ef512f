//! Scripts in the containers of pods.

use anyhow::{Context, Result, anyhow};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::AttachParams};
use tokio::io::AsyncReadExt;

/// How a script has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// The exit code.
    pub code: i32,
    /// What it printed to standard output, without white space at both ends.
    pub output: String,
    /// What it printed to standard error.
    pub errors: String,
}

/// Runs a script with `sh -c` in a container of a pod, the first if none is named.
///
/// # Errors
/// The API server or the node refuses it, or the connection ends before the script does.
pub(super) async fn run(api: &Api<Pod>, pod: &str, container: Option<&str>, script: &str) -> Result<Ended> {
    let mut params = AttachParams::default().stdout(true).stderr(true);
    if let Some(container) = container {
        params = params.container(container);
    }
    let begun = api.exec(pod, ["sh", "-c", script], &params).await;
    let mut process = begun.map_err(|error| match error {
        kube::Error::Api(status) => anyhow!("no script can be run in pod {pod}: {}", status.message),
        other => anyhow::Error::new(other).context(format!("no script can be run in pod {pod}")),
    })?;
    let status = process.take_status();
    let (mut output, mut errors) = (String::new(), String::new());
    let (stdout, stderr) = (process.stdout(), process.stderr());
    tokio::try_join!(read_all(stdout, &mut output), read_all(stderr, &mut errors))?;
    let status = match status {
        Some(status) => status.await,
        None => None,
    };
    let status =
        status.with_context(|| format!("the connection to pod {pod} ended before its script did"))?;
    let causes = status.details.into_iter().flat_map(|details| details.causes.unwrap_or_default());
    let mut exits = causes.filter(|cause| cause.reason.as_deref() == Some("ExitCode"));
    let exit = exits.next().and_then(|cause| cause.message?.parse().ok());
    let succeeded = (status.status.as_deref() == Some("Success")).then_some(0);
    // Without an exit code the kubelet was not reached, or could not run the script.
    let code = succeeded.or(exit).with_context(|| {
        format!("no script can be run in pod {pod}: {}", status.message.unwrap_or_default())
    })?;
    Ok(Ended { code, output: output.trim().to_owned(), errors: errors.trim().to_owned() })
}

async fn read_all(stream: Option<impl AsyncReadExt + Unpin>, text: &mut String) -> std::io::Result<()> {
    let Some(mut stream) = stream else { return Ok(()) };
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await?;
    *text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(())
}
