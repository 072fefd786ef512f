//! The text of an error and its sources. The client of the API server repeats the source in its text, and adds the whole
//! response: here each text is printed once, and of a response the message alone.

use std::{error::Error, iter::successors};

/// The text.
pub fn explain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let response = response(cause);
        let part = response.clone().unwrap_or_else(|| cause.to_string());
        // Also as part of the text before it.
        if !text.ends_with(&part) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&part);
        }
        if response.is_some() {
            break;
        }
    }
    text
}

/// An error with its sources, such as the line of a file that is no YAML.
pub fn with_sources(error: &dyn Error) -> String {
    let sources = successors(error.source(), |&source| source.source());
    sources.fold(error.to_string(), |text, source| format!("{text}: {source}"))
}

/// The message of the API server, if it responded.
fn response(cause: &(dyn Error + 'static)) -> Option<String> {
    let boxed = cause.downcast_ref::<Box<kube::Error>>().map(|boxed| &**boxed);
    match boxed.or_else(|| cause.downcast_ref())? {
        kube::Error::Api(status) => Some(status.message.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use anyhow::Context;
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_response_is_its_message() {
        let message = "namespaces \"n\" is forbidden";
        let api = || kube::Error::Api(Status::failure(message, "Forbidden").with_code(403).boxed());
        let plain = Err::<(), _>(api()).context("no list").expect_err("an error");
        assert_eq!(explain(&plain), format!("no list: {message}"));
        // As errors of crates contain it.
        let boxed = Err::<(), _>(Box::new(api())).context("no list").expect_err("an error");
        assert_eq!(explain(&boxed), format!("no list: {message}"));
    }

    #[test]
    fn a_text_that_contains_its_source_is_printed_once() {
        let refused = || io::Error::other("refused");
        let error = anyhow::Error::from(refused()).context("cannot connect: refused").context("no cluster");
        assert_eq!(explain(&error), "no cluster: cannot connect: refused");
        let error = anyhow::Error::from(refused()).context("no cluster");
        assert_eq!(explain(&error), "no cluster: refused");
    }
}
