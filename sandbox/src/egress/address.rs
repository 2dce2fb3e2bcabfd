//! Whose an address is. Only what is everybody's is open to a lane: behind the rest stand this
//! machine, its network's other machines, and the metadata services that hand out a cloud's keys.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What an address leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressKind {
    /// The internet.
    Public,
    /// This machine.
    Loopback,
    /// A network of one house: RFC 1918, unique local, site local.
    Private,
    /// A provider's network behind its NAT (RFC 6598).
    Shared,
    /// The same cable, and with it most clouds' metadata.
    LinkLocal,
    /// A cloud's metadata at an address of its own.
    Metadata,
    /// No single machine at all, or one that must not be guessed.
    Reserved,
}

impl AddressKind {
    /// As a person reads it, after "it is".
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Public => "a public address",
            Self::Loopback => "an address of this machine",
            Self::Private => "a private address",
            Self::Shared => "an address of a provider's own network",
            Self::LinkLocal => "a link-local address",
            Self::Metadata => "an address of a cloud's metadata",
            Self::Reserved => "a reserved address",
        }
    }

    /// Whether a host that the operator named with its port may be there. What is link-local or
    /// reserved is nobody's service by name, and a name that leads there was turned.
    #[must_use]
    pub const fn is_a_house(self) -> bool {
        matches!(self, Self::Loopback | Self::Private | Self::Shared)
    }
}

/// What `address` leads to. An IPv6 address that carries one of IPv4 is that one.
#[must_use]
pub fn kind_of(address: IpAddr) -> AddressKind {
    match address {
        IpAddr::V4(v4) => kind_of_v4(v4),
        IpAddr::V6(v6) => carried(v6).map_or_else(|| kind_of_v6(v6), kind_of_v4),
    }
}

fn kind_of_v4(address: Ipv4Addr) -> AddressKind {
    use AddressKind as Kind;
    match address.octets() {
        // Azure's, in the middle of the public ones.
        [168, 63, 129, 16] => Kind::Metadata,
        // Alibaba's, in the middle of a provider's.
        [100, 100, 100, 200] => Kind::Metadata,
        [127, ..] => Kind::Loopback,
        [10, ..] | [192, 168, ..] => Kind::Private,
        [172, second, ..] if second & 0xf0 == 16 => Kind::Private,
        [100, second, ..] if second & 0xc0 == 64 => Kind::Shared,
        [169, 254, ..] => Kind::LinkLocal,
        // "This network", protocol assignments, documentation, 6to4 relays, benchmarks, multicast
        // and what is behind it.
        [0, ..]
        | [192, 0, 0 | 2, _]
        | [192, 88, 99, _]
        | [198, 18 | 19, ..]
        | [198, 51, 100, _]
        | [203, 0, 113, _]
        | [224..=255, ..] => Kind::Reserved,
        _ => Kind::Public,
    }
}

fn kind_of_v6(address: Ipv6Addr) -> AddressKind {
    use AddressKind as Kind;
    if address.is_loopback() {
        return Kind::Loopback;
    }
    match address.segments() {
        [first, ..] if first & 0xfe00 == 0xfc00 => Kind::Private,
        [first, ..] if first & 0xffc0 == 0xfec0 => Kind::Private,
        [first, ..] if first & 0xffc0 == 0xfe80 => Kind::LinkLocal,
        // Teredo and other protocols' (2001::/23), documentation.
        [0x2001, second, ..] if second < 0x0200 || second == 0x0db8 => Kind::Reserved,
        [0x3fff, second, ..] if second < 0x1000 => Kind::Reserved,
        // All that was ever given out as public.
        [first, ..] if first & 0xe000 == 0x2000 => Kind::Public,
        _ => Kind::Reserved,
    }
}

/// The address of IPv4 in one of IPv6: mapped, compatible, translated (RFC 6052), 6to4.
fn carried(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let v4 = |high: u16, low: u16| Some(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)));
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            v4(high, low)
        }
        // Translated without a checksum's change (RFC 2765).
        [0, 0, 0, 0, 0xffff, 0, high, low] => v4(high, low),
        [0x2002, high, low, ..] => v4(high, low),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_is_known_for_what_it_is() {
        use AddressKind as Kind;
        for (kind, addresses) in [
            (Kind::Public, "1.1.1.1 100.63.0.1 100.128.0.1 172.15.0.1 172.32.0.1 192.1.0.1"),
            (Kind::Public, "169.253.0.1 223.255.255.254 2606:4700::1111 2a00::1 64:ff9b::1.1.1.1"),
            (Kind::Public, "::ffff:1.1.1.1 2002:101:101::1"),
            (Kind::Loopback, "127.0.0.1 127.255.255.254 ::1 ::ffff:127.0.0.1 ::127.0.0.1"),
            (Kind::Loopback, "64:ff9b::127.0.0.1 2002:7f00:1::1 ::ffff:0:127.0.0.1"),
            (Kind::Private, "10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 fc00::1 fd00:ec2::254"),
            (Kind::Private, "fec0::1 ::ffff:10.0.0.1 2002:a00:1:: 64:ff9b::192.168.0.1"),
            (Kind::Shared, "100.64.0.1 100.127.255.255 ::ffff:100.64.0.1"),
            (Kind::LinkLocal, "169.254.169.254 169.254.170.2 fe80::1 ::ffff:169.254.169.254"),
            (Kind::Metadata, "168.63.129.16 100.100.100.200 ::ffff:168.63.129.16"),
            (Kind::Reserved, "0.0.0.0 0.1.2.3 192.0.0.8 192.0.2.1 198.18.0.1 198.51.100.1"),
            (Kind::Reserved, "203.0.113.1 224.0.0.1 255.255.255.255 240.0.0.1 :: ff02::1"),
            (Kind::Reserved, "2001:db8::1 2001::1 3fff::1 100::1 64:ff9b:1::1 4000::1 5f00::1"),
            (Kind::Reserved, "::ffff:0.0.0.0 192.88.99.1"),
        ] {
            for address in addresses.split(' ') {
                assert_eq!(kind_of(address.parse().unwrap()), kind, "{address}");
            }
        }
    }

    #[test]
    fn a_house_is_no_metadata() {
        for (address, house) in [
            ("127.0.0.1", true),
            ("10.1.2.3", true),
            ("100.64.0.1", true),
            ("fd00::1", true),
            ("169.254.169.254", false),
            ("168.63.129.16", false),
            ("0.0.0.0", false),
            ("224.0.0.1", false),
        ] {
            assert_eq!(kind_of(address.parse().unwrap()).is_a_house(), house, "{address}");
        }
    }
}
