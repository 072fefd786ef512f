//! An account for each of the controllers that share a process, and for the cache that watches for all of them.

use std::{collections::BTreeMap, fmt};

use http::{HeaderValue, header::AUTHORIZATION};
use kube::{Client, client::Body};
use tower::service_fn;

use crate::Name;

/// The credentials of the accounts. All requests share the connections of one client, which must have no credentials.
#[derive(Clone)]
pub struct Accounts {
    cache: HeaderValue,
    controllers: BTreeMap<Name, HeaderValue>,
}

/// Without the tokens.
impl fmt::Debug for Accounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Accounts").field(&self.controllers.keys()).finish()
    }
}

/// A token that no header can contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the token contains characters that no HTTP header can have: request another one")]
pub struct InvalidToken;

fn bearer(token: &str) -> Result<HeaderValue, InvalidToken> {
    let mut header = HeaderValue::from_str(&format!("Bearer {}", token.trim())).map_err(|_| InvalidToken)?;
    header.set_sensitive(true);
    Ok(header)
}

impl Accounts {
    /// The bearer token of the cache, and those of the controllers.
    ///
    /// # Errors
    /// One is no token.
    pub fn new(cache: &str, controllers: &BTreeMap<Name, String>) -> Result<Self, InvalidToken> {
        let with_header = |(name, token): (&Name, &String)| Ok((*name, bearer(token)?));
        let controllers = controllers.iter().map(with_header).collect::<Result<_, _>>()?;
        Ok(Self { cache: bearer(cache)?, controllers })
    }

    /// The client with the credentials of the cache.
    pub(crate) fn for_cache(&self, client: &Client) -> Client {
        with_credentials(client, self.cache.clone())
    }

    /// The client with the credentials of a controller; without any if it has no account.
    pub(crate) fn for_controller(&self, client: &Client, name: Name) -> Client {
        match self.controllers.get(&name) {
            Some(header) => with_credentials(client, header.clone()),
            None => client.clone(),
        }
    }
}

/// The same client, which sends these credentials: its connections are shared.
fn with_credentials(client: &Client, header: HeaderValue) -> Client {
    let inner = client.clone();
    let service = service_fn(move |mut request: http::Request<Body>| {
        let inner = inner.clone();
        request.headers_mut().insert(AUTHORIZATION, header.clone());
        async move { inner.send(request).await }
    });
    Client::new(service, client.default_namespace())
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{Arc, Mutex},
    };

    use http::Response;

    use super::*;

    #[tokio::test]
    async fn each_controller_sends_its_own_token() {
        let sent = Arc::new(Mutex::new(Vec::new()));
        let record = sent.clone();
        let service = service_fn(move |request: http::Request<Body>| {
            let header = request.headers().get(AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
            record.lock().unwrap().push(header);
            async { Ok::<_, Infallible>(Response::new(Body::empty())) }
        });
        let client = Client::new(service, "default");
        let tokens = BTreeMap::from([(Name::Binder, "of-binder\n".to_owned())]);
        let accounts = Accounts::new("of-cache", &tokens).unwrap();
        for client in [
            accounts.for_cache(&client),
            accounts.for_controller(&client, Name::Binder),
            accounts.for_controller(&client, Name::Scheduler),
        ] {
            client.send(http::Request::get("/api").body(Body::empty()).unwrap()).await.unwrap();
        }
        let sent = sent.lock().unwrap().clone();
        assert_eq!(sent, [Some("Bearer of-cache".to_owned()), Some("Bearer of-binder".to_owned()), None]);
        assert!(!format!("{accounts:?}").contains("of-binder"), "{accounts:?}");
    }

    #[test]
    fn a_token_of_several_lines_is_an_error() {
        assert_eq!(Accounts::new("a\nb", &BTreeMap::new()).unwrap_err(), InvalidToken);
    }
}
