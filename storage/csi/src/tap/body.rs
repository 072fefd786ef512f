//! The response body: passes every frame on and ends the call's record with the last.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::{HeaderMap, Response};
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::{Status, body::Body, codegen::Bytes};

use super::{
    no_response::{connection_lost, deadline_exceeded},
    service::{BODY_LIMIT, Call},
};

/// A response body under the tap. Streams pass frame by frame, as they come.
#[derive(Debug)]
pub struct TappedBody {
    inner: Body,
    call: Call,
    /// The data so far, if the response is read, and as long as a client would accept it.
    recorded: Option<Vec<u8>>,
    deadline: Pin<Box<Sleep>>,
}

impl TappedBody {
    /// Wraps the body; a response that consists only of a status ends the call at once.
    pub(super) fn around(mut response: Response<Body>, mut call: Call, deadline: Instant) -> Response<Self> {
        if let Some(status) = Status::from_header_map(response.headers()) {
            call.end(&status);
        }
        call.strip(response.headers_mut());
        let recorded = call.reads_response().then(Vec::new);
        response.map(|inner| Self { inner, call, recorded, deadline: Box::pin(sleep_until(deadline)) })
    }

    fn note(&mut self, frame: &Frame<Bytes>) {
        if let (Some(recorded), Some(data)) = (&mut self.recorded, frame.data_ref()) {
            if recorded.len() + data.len() <= BODY_LIMIT {
                recorded.extend_from_slice(data);
            } else {
                self.recorded = None;
            }
        }
        if let Some(trailers) = frame.trailers_ref() {
            self.end(trailers);
        }
    }

    fn stripped(&self, frame: Frame<Bytes>) -> Frame<Bytes> {
        match frame.into_trailers() {
            Ok(mut trailers) => {
                self.call.strip(&mut trailers);
                Frame::trailers(trailers)
            }
            Err(data) => data,
        }
    }

    fn end(&mut self, trailers: &HeaderMap) {
        if let Some(recorded) = self.recorded.take() {
            self.call.learn(&recorded);
        }
        self.call.end(&Status::from_header_map(trailers).unwrap_or_else(no_status));
    }
}

/// The status of a stream that ends without one; tonic's clients treat it as `Unknown` too.
fn no_status() -> Status {
    Status::unknown("the driver's response has no status")
}

impl http_body::Body for TappedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        // Before the body: a stream that never pauses is always ready.
        if this.deadline.as_mut().poll(cx).is_ready() {
            if this.call.is_over() {
                return Poll::Ready(None);
            }
            let status = deadline_exceeded();
            this.call.end(&status);
            return Poll::Ready(Some(Err(status)));
        }
        Poll::Ready(match ready!(Pin::new(&mut this.inner).poll_frame(cx)) {
            Some(Ok(frame)) => {
                this.note(&frame);
                Some(Ok(this.stripped(frame)))
            }
            Some(Err(status)) => {
                let status = connection_lost(status);
                this.call.end(&status);
                Some(Err(status))
            }
            None => {
                this.call.end(&no_status());
                None
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
