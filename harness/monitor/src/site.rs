//! What a monitor serves over HTTP.

use std::sync::Arc;

use claimcheck_report::serve::{Page, PageRequest, Site};

use crate::{page::page, run::Shared};

/// The pages of a monitor.
#[derive(Clone)]
pub(crate) struct Pages(pub Arc<Shared>);

impl Site for Pages {
    async fn page(&self, request: PageRequest<'_>) -> Option<Page> {
        let shared = &self.0;
        match request.path {
            "/healthz" | "/livez" => Some(Page::ok("ok\n")),
            "/readyz" if shared.is_synced() => Some(Page::ok("ok\n")),
            "/readyz" => Some(Page::unavailable("not every kind was listed yet\n")),
            "/metrics" => Some(Page::ok(shared.metrics())),
            "/" | "/status.json" if !shared.is_synced() => {
                Some(Page::unavailable("not every kind was listed yet: try again in a moment\n"))
            }
            "/" => Some(Page::html(page(&shared.status()))),
            "/status.json" => {
                let status = serde_json::to_value(shared.status()).expect("a status has string keys only");
                Some(Page::json(&status))
            }
            _ => None,
        }
    }
}
