//! Responses with a message in time, and a status that follows after the caller's deadline.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use claimcheck_csi::Services;
use http_body::{Frame, SizeHint};
use tokio::time::{Sleep, sleep};
use tonic::{
    Status,
    body::Body,
    codegen::{BoxFuture, Bytes, Service, http::Request, http::Response},
};

use super::Hostile;

/// How long after its deadline a call gets its status.
const LATE: Duration = Duration::from_millis(200);
/// The deadline of a call that names none, and the maximum.
const DEADLINE: Duration = Duration::from_secs(30);

/// The services of a driver, with late trailers.
#[derive(Clone, Debug)]
pub(super) struct LateTrailers {
    pub services: Services,
    pub driver: Hostile,
}

impl Service<Request<Body>> for LateTrailers {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Response<Body>, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let timeout = request.headers().get("grpc-timeout").and_then(|value| value.to_str().ok());
        let deadline = timeout.and_then(parse).map_or(DEADLINE, |deadline| deadline.min(DEADLINE));
        let delay = self.driver.trailers_after(deadline + LATE);
        let response = self.services.call(request);
        Box::pin(async move {
            let response = response.await?;
            Ok(match delay {
                Some(delay) => response.map(|body| Body::new(Late::new(body, delay))),
                None => response,
            })
        })
    }
}

/// As the gRPC protocol writes deadlines: at most 8 digits, and a unit.
fn parse(timeout: &str) -> Option<Duration> {
    let (value, unit) = timeout.split_at_checked(timeout.len().checked_sub(1)?)?;
    let value = value.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(value * 3600)),
        "M" => Some(Duration::from_secs(value * 60)),
        "S" => Some(Duration::from_secs(value)),
        "m" => Some(Duration::from_millis(value)),
        "u" => Some(Duration::from_micros(value)),
        "n" => Some(Duration::from_nanos(value)),
        _ => None,
    }
}

/// A body with late trailers.
struct Late {
    body: Body,
    pause: Pin<Box<Sleep>>,
    /// What follows the pause.
    trailers: Option<Frame<Bytes>>,
}

impl Late {
    fn new(body: Body, delay: Duration) -> Self {
        Self { body, pause: Box::pin(sleep(delay)), trailers: None }
    }
}

impl http_body::Body for Late {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.trailers.is_none() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) if frame.is_trailers() => self.trailers = Some(frame),
                other => return Poll::Ready(other),
            }
        }
        ready!(self.pause.as_mut().poll(cx));
        Poll::Ready(self.trailers.take().map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.trailers.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_have_units() {
        assert_eq!(parse("999999u"), Some(Duration::from_micros(999_999)));
        assert_eq!(parse("15S"), Some(Duration::from_secs(15)));
        assert_eq!(parse("1H"), Some(Duration::from_secs(3600)));
        assert_eq!((parse(""), parse("S"), parse("1"), parse("1ü")), (None, None, None, None));
    }
}
