//! What a monitor serves over HTTP.

use std::sync::Arc;

use claimcheck_telemetry::serve::{Page, PageRequest, Site};

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
            "/readyz" => Some(unready(shared)),
            "/metrics" => Some(Page::ok(shared.metrics())),
            "/" | "/status.json" if !shared.is_synced() => Some(unready(shared)),
            "/" => Some(Page::html(page(&shared.status()))),
            "/status.json" => {
                let status = serde_json::to_value(shared.status()).expect("a status has string keys only");
                Some(Page::json(&status))
            }
            _ => None,
        }
    }
}

/// The answer until every kind was listed, with the reason if that is not the time it takes.
fn unready(shared: &Shared) -> Page {
    let reasons: String = shared.notes().iter().map(|note| format!("{note}\n")).collect();
    Page::unavailable(format!("not every kind was listed yet\n{reasons}"))
}
