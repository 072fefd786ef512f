//! The clock of the API server, by which objects are dated, compared with that of this machine: ages must not depend on
//! a local clock that is wrong.

use http::{Request, header::DATE};
use jiff::{SignedDuration, Timestamp, fmt::rfc2822};
use kube::{Client, client::Body};
use tracing::debug;

use crate::stuck::age;

/// The header has whole seconds.
const RESOLUTION: SignedDuration = SignedDuration::from_secs(1);
/// The least difference that is noted.
const NOTED: SignedDuration = SignedDuration::from_secs(5);

/// How far the clock of the API server is ahead of that of this machine; zero unless the difference is more than what can
/// be measured. None if it does not respond, or without its time.
pub(crate) async fn ahead(client: &Client) -> Option<SignedDuration> {
    let request = Request::get("/version").body(Body::empty()).ok()?;
    let before = Timestamp::now();
    let response =
        client.send(request).await.inspect_err(|error| debug!(%error, "no time of the API server")).ok()?;
    let after = Timestamp::now();
    let date = response.headers().get(DATE)?.to_str().ok()?;
    Some(difference(before, after, rfc2822::parse(date).ok()?.timestamp()))
}

/// The same of a response with this date, which was requested and received at these times.
fn difference(before: Timestamp, after: Timestamp, date: Timestamp) -> SignedDuration {
    let half = after.duration_since(before) / 2;
    // The date is that of the second that has begun.
    let ahead = date.duration_since(before) - half + RESOLUTION / 2;
    if ahead.abs() <= RESOLUTION + half.abs() { SignedDuration::ZERO } else { ahead }
}

/// The note of a status about a difference.
pub(crate) fn note(ahead: SignedDuration) -> Option<String> {
    let direction = if ahead.is_negative() { "ahead of" } else { "behind" };
    (ahead.abs() >= NOTED).then(|| {
        format!(
            "the clock of this machine is {} {direction} that of the API server, by which all ages are computed: \
             synchronize it",
            age(ahead.abs().as_secs_f64())
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_counts_if_it_is_more_than_what_can_be_measured() {
        let at = |millis| Timestamp::from_millisecond(millis).expect("it is in range");
        for (before, after, date, expected) in [
            (100_000, 100_010, 100_000, 0),
            (100_900, 100_990, 100_000, 0),
            (100_000, 104_000, 103_000, 0),
            (700_000, 700_000, 100_000, -599_500),
            (100_000, 100_200, 700_000, 600_400),
        ] {
            let ahead = difference(at(before), at(after), at(date));
            assert_eq!(ahead.as_millis(), expected, "{before} {after} {date}");
        }
        assert_eq!(note(SignedDuration::from_secs(3)), None);
        let note = note(SignedDuration::from_mins(-10)).expect("it is noted");
        assert!(
            note.starts_with("the clock of this machine is 10m ahead of that of the API server"),
            "{note}"
        );
    }
}
