//! Reaches the driver, and bounds its calls.

use std::time::Duration;

use tonic::{Response, Status};

use super::RpcFailure;

/// How long a call may take before it counts as lost (15 s is external-attacher's default).
const TIMEOUT: Duration = Duration::from_secs(15);

/// The answer of a call; a driver that does not answer in 15 s failed with an unknown outcome.
pub async fn call<T>(answer: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, RpcFailure> {
    match tokio::time::timeout(TIMEOUT, answer).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(status.into()),
        Err(_) => {
            let message = format!("the driver did not answer within {} s", TIMEOUT.as_secs());
            Err(Status::deadline_exceeded(message).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::Certainty;

    #[tokio::test(start_paused = true)]
    async fn silence_is_an_unknown_outcome() {
        let failure = call(std::future::pending::<Result<Response<()>, Status>>()).await.unwrap_err();
        assert_eq!(failure.certainty, Certainty::Unknown);
    }
}
