//! Errors of the API server as client-go prints them: the message of its response alone. kube adds the whole response,
//! which is readable neither in an Event nor in a log.

use kube::runtime::watcher;

/// The message of an error.
pub fn message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// The same of a watch.
pub fn watch_error(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => message(error),
        watcher::Error::WatchError(status) => status.message.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn only_the_message_is_printed() {
        let text = "secrets \"s\" not found";
        let error = || kube::Error::Api(Box::new(Status::failure(text, "NotFound").with_code(404)));
        assert_eq!(message(&error()), text);
        assert_eq!(watch_error(&watcher::Error::InitialListFailed(error())), text);
    }
}
