//! URLs.
//!
//! Mirrors apiserver pkg/cel/library/urls.go.

use std::collections::HashMap;

use cel::common::types::{CelBool, CelMap, CelMapKey, CelString};
use cel::common::value::Val;
use cel::{DeclarationError, Env, ExecutionError};

use crate::custom::rules::opaque::opaque;
use crate::custom::uri::{Uri, unescape};

opaque!(Uri, "kubernetes.URL");

pub fn declare(env: &mut Env) -> Result<(), DeclarationError> {
    cel::add_overload!(env, fn url: (CelString) -> Result<Uri>)?;
    cel::add_overload!(env, fn is_url: (CelString) -> CelBool, name = "isURL")?;
    cel::add_member_overload!(env, fn scheme: (Uri) -> CelString, name = "getScheme")?;
    cel::add_member_overload!(env, fn host: (Uri) -> CelString, name = "getHost")?;
    cel::add_member_overload!(env, fn hostname: (Uri) -> CelString, name = "getHostname")?;
    cel::add_member_overload!(env, fn port: (Uri) -> CelString, name = "getPort")?;
    cel::add_member_overload!(env, fn escaped_path: (Uri) -> CelString, name = "getEscapedPath")?;
    cel::add_member_overload!(env, fn query: (Uri) -> CelMap, name = "getQuery")
}

/// A URL, of which the fragment is left out.
fn url(text: &CelString<'_>) -> Result<Uri, ExecutionError> {
    let whole = Uri::parse(text.inner());
    let without_fragment = text.inner().split('#').next().unwrap_or_default();
    let error = || {
        let shown = crate::quote::quote(text.inner());
        let message =
            format!("URL parse error during conversion from string: parse {shown}: invalid URI for request");
        ExecutionError::function_error("url", message)
    };
    whole.and_then(|_| Uri::parse(without_fragment)).ok_or_else(error)
}

fn is_url(text: &CelString<'_>) -> CelBool {
    CelBool::from(Uri::parse(text.inner()).is_some())
}

fn scheme(url: &Uri) -> CelString<'static> {
    CelString::from(url.scheme.clone())
}

fn host(url: &Uri) -> CelString<'static> {
    CelString::from(url.host.clone())
}

/// The host without brackets, and its port.
fn parts(host: &str) -> (&str, &str) {
    let (name, port) = match (host.rfind(']'), host.rfind(':')) {
        (Some(bracket), Some(colon)) if colon < bracket => (host, ""),
        (_, Some(colon)) => (&host[..colon], &host[colon + 1..]),
        (_, None) => (host, ""),
    };
    (name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name), port)
}

fn hostname(url: &Uri) -> CelString<'static> {
    CelString::from(parts(&url.host).0.to_owned())
}

fn port(url: &Uri) -> CelString<'static> {
    CelString::from(parts(&url.host).1.to_owned())
}

fn escaped_path(url: &Uri) -> CelString<'static> {
    CelString::from(url.path.clone())
}

/// The values of each parameter.
fn query(url: &Uri) -> CelMap<'static> {
    let mut values: Vec<(String, Vec<Box<dyn Val>>)> = Vec::new();
    for pair in url.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let decode = |text: &str| unescape(&text.replace('+', " "));
        let (Some(name), Some(value)) = (decode(name), decode(value)) else { continue };
        let value: Box<dyn Val> = Box::new(CelString::from(value));
        match values.iter_mut().find(|(other, _)| *other == name) {
            Some((_, values)) => values.push(value),
            None => values.push((name, vec![value])),
        }
    }
    let entries = values.into_iter().map(|(name, values)| {
        let list: Box<dyn Val> = Box::new(super::owned_list(values));
        (CelMapKey::from(name), list)
    });
    CelMap::from(entries.collect::<HashMap<CelMapKey<'static>, Box<dyn Val>>>())
}
