//! IP addresses.
//!
//! Mirrors apiserver pkg/cel/library/ip.go; of cidr.go only `isCIDR`.

use std::net::IpAddr;

use cel::common::types::{CelBool, CelInt, CelString};
use cel::{DeclarationError, Env, ExecutionError};

use crate::custom::rules::opaque::opaque;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Address(IpAddr);

opaque!(Address, "net.IP");

pub fn declare(env: &mut Env) -> Result<(), DeclarationError> {
    cel::add_overload!(env, fn ip: (CelString) -> Result<Address>)?;
    cel::add_overload!(env, fn is_ip: (CelString) -> CelBool, name = "isIP")?;
    cel::add_overload!(env, fn is_canonical: (CelString) -> Result<CelBool>, name = "ip.isCanonical")?;
    cel::add_overload!(env, fn text: (Address) -> CelString, name = "string", id = "ip_to_string")?;
    cel::add_overload!(env, fn is_cidr: (CelString) -> CelBool, name = "isCIDR")?;
    cel::add_member_overload!(env, fn family: (Address) -> CelInt)?;
    cel::add_member_overload!(env, fn is_unspecified: (Address) -> CelBool)?;
    cel::add_member_overload!(env, fn is_loopback: (Address) -> CelBool)?;
    cel::add_member_overload!(env, fn is_link_local_multicast: (Address) -> CelBool)?;
    cel::add_member_overload!(env, fn is_link_local_unicast: (Address) -> CelBool)?;
    cel::add_member_overload!(env, fn is_global_unicast: (Address) -> CelBool)
}

/// An address, which must not be an IPv4 address in the form of an IPv6 address (`parseIPAddr`).
fn parse(text: &str) -> Option<IpAddr> {
    let address: IpAddr = text.parse().ok()?;
    match address {
        IpAddr::V6(six) if six.to_ipv4_mapped().is_some() => None,
        _ => Some(address),
    }
}

fn ip(text: &CelString<'_>) -> Result<Address, ExecutionError> {
    let error = || {
        let message = format!("IP Address {} parse error", crate::quote::quote(text.inner()));
        ExecutionError::function_error("ip", message)
    };
    parse(text.inner()).map(Address).ok_or_else(error)
}

fn is_ip(text: &CelString<'_>) -> CelBool {
    CelBool::from(parse(text.inner()).is_some())
}

fn is_canonical(text: &CelString<'_>) -> Result<CelBool, ExecutionError> {
    Ok(CelBool::from(ip(text)?.0.to_string() == text.inner()))
}

fn text(address: &Address) -> CelString<'static> {
    CelString::from(address.0.to_string())
}

fn is_cidr(text: &CelString<'_>) -> CelBool {
    let is_valid = text.inner().split_once('/').is_some_and(|(address, length)| {
        let length = length.parse::<u8>().ok().filter(|number| number.to_string() == length);
        let most = |address: IpAddr| if address.is_ipv4() { 32 } else { 128 };
        parse(address).zip(length).is_some_and(|(address, length)| length <= most(address))
    });
    CelBool::from(is_valid)
}

fn family(address: &Address) -> CelInt {
    CelInt::from(if address.0.is_ipv4() { 4 } else { 6 })
}

fn is_unspecified(address: &Address) -> CelBool {
    CelBool::from(address.0.is_unspecified())
}

fn is_loopback(address: &Address) -> CelBool {
    CelBool::from(address.0.is_loopback())
}

fn is_link_local_multicast(address: &Address) -> CelBool {
    CelBool::from(match address.0 {
        IpAddr::V4(four) => four.octets()[..3] == [224, 0, 0],
        IpAddr::V6(six) => six.segments()[0] & 0xff0f == 0xff02,
    })
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => four.is_link_local(),
        IpAddr::V6(six) => six.segments()[0] & 0xffc0 == 0xfe80,
    }
}

fn is_link_local_unicast(address: &Address) -> CelBool {
    CelBool::from(is_link_local(address.0))
}

fn is_global_unicast(address: &Address) -> CelBool {
    let is_broadcast = matches!(address.0, IpAddr::V4(four) if four.is_broadcast());
    let address = address.0;
    CelBool::from(
        !(is_broadcast
            || address.is_unspecified()
            || address.is_loopback()
            || address.is_multicast()
            || is_link_local(address)),
    )
}
