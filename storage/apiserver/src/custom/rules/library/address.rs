//! IP addresses and networks.
//!
//! Mirrors apiserver pkg/cel/library/ip.go and cidr.go.

use std::net::IpAddr;

use cel::common::types::{CelBool, CelInt, CelString};
use cel::{DeclarationError, Env, ExecutionError};

use crate::custom::rules::opaque::opaque;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Address(IpAddr);

opaque!(Address, "net.IP");

/// A network: an address in it, and the length of its prefix.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Network(IpAddr, u8);

opaque!(Network, "net.CIDR");

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
    cel::add_member_overload!(env, fn is_global_unicast: (Address) -> CelBool)?;
    cel::add_overload!(env, fn cidr: (CelString) -> Result<Network>)?;
    cel::add_overload!(env, fn network_text: (Network) -> CelString, name = "string", id = "cidr_to_string")?;
    cel::add_member_overload!(env, fn contains_ip: (Network, Address) -> CelBool,
        name = "containsIP", id = "cidr_contains_ip_ip")?;
    cel::add_member_overload!(env, fn contains_ip_text: (Network, CelString) -> Result<CelBool>,
        name = "containsIP", id = "cidr_contains_ip_string")?;
    cel::add_member_overload!(env, fn contains_cidr: (Network, Network) -> CelBool,
        name = "containsCIDR", id = "cidr_contains_cidr")?;
    cel::add_member_overload!(env, fn contains_cidr_text: (Network, CelString) -> Result<CelBool>,
        name = "containsCIDR", id = "cidr_contains_cidr_string")?;
    cel::add_member_overload!(env, fn start: (Network) -> Address, name = "ip", id = "cidr_ip")?;
    cel::add_member_overload!(env, fn prefix_length: (Network) -> CelInt)?;
    cel::add_member_overload!(env, fn masked: (Network) -> Network)
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

/// The bits of an address, as those of an IPv6 address, and how many they are.
fn bits(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(four) => (u128::from(four.to_bits()) << 96, 32),
        IpAddr::V6(six) => (six.to_bits(), 128),
    }
}

impl Network {
    fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        let length = length.parse::<u8>().ok().filter(|number| number.to_string() == length)?;
        let address = parse(address)?;
        (length <= bits(address).1).then_some(Self(address, length))
    }

    fn mask(self) -> u128 {
        u128::MAX.checked_shl(128 - u32::from(self.1)).unwrap_or(0)
    }

    fn contains(self, address: IpAddr) -> bool {
        let (own, other) = (bits(self.0), bits(address));
        own.1 == other.1 && own.0 & self.mask() == other.0 & self.mask()
    }
}

fn is_cidr(text: &CelString<'_>) -> CelBool {
    CelBool::from(Network::parse(text.inner()).is_some())
}

fn cidr(text: &CelString<'_>) -> Result<Network, ExecutionError> {
    let error = || {
        let message = format!(
            "network address parse error during conversion from string: invalid prefix {}",
            crate::quote::quote(text.inner())
        );
        ExecutionError::function_error("cidr", message)
    };
    Network::parse(text.inner()).ok_or_else(error)
}

fn network_text(network: &Network) -> CelString<'static> {
    CelString::from(format!("{}/{}", network.0, network.1))
}

fn contains_ip(network: &Network, address: &Address) -> CelBool {
    CelBool::from(network.contains(address.0))
}

fn contains_ip_text(network: &Network, address: &CelString<'_>) -> Result<CelBool, ExecutionError> {
    Ok(contains_ip(network, &ip(address)?))
}

fn contains_cidr(network: &Network, other: &Network) -> CelBool {
    CelBool::from(network.1 <= other.1 && network.contains(other.0))
}

fn contains_cidr_text(network: &Network, other: &CelString<'_>) -> Result<CelBool, ExecutionError> {
    Ok(contains_cidr(network, &cidr(other)?))
}

fn start(network: &Network) -> Address {
    Address(network.0)
}

fn prefix_length(network: &Network) -> CelInt {
    CelInt::from(i64::from(network.1))
}

fn masked(network: &Network) -> Network {
    let start = bits(network.0).0 & network.mask();
    let address = match network.0 {
        IpAddr::V4(_) => IpAddr::V4(((start >> 96) as u32).into()),
        IpAddr::V6(_) => IpAddr::V6(start.into()),
    };
    Network(address, network.1)
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
