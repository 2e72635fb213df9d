//! Where packets to an address end up. An IPv4 address inside an IPv6 one is taken out where the layout says where it is;
//! this file knows no policy and must never look at how an address was spelt.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::Ipv6Net;

/// Networks of the IANA special-purpose registry (RFC 6890 and successors) that are no public target. Inside 192.0.0.0/24
/// the two anycast addresses are globally reachable by the registry, but they mean a service of the nearest network.
const SPECIAL_V4: &[(Ipv4Addr, u32)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

fn pair(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(high) << 16 | u32::from(low))
}

/// The IPv4 address that packets go to, for the layouts that fix its place: mapped (RFC 4291 section 2.5.5.2), 6to4
/// (RFC 3056) and NAT64 with the well-known prefix (RFC 6052). Any other address stands for itself.
#[must_use]
pub fn destination(ip: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = ip else { return ip };
    match v6.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            IpAddr::V4(pair(high, low))
        }
        _ => ip,
    }
}

/// The prefixes by which an IPv6 address carries an IPv4 one: compatible, mapped, translated, NAT64, local-use NAT64, Teredo,
/// 6to4.
const CARRIERS: &[Ipv6Net] = &[
    Ipv6Net::new_assert(Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 0), 96),
    Ipv6Net::new_assert(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96),
    Ipv6Net::new_assert(Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, 0, 0), 96),
    Ipv6Net::new_assert(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96),
    Ipv6Net::new_assert(Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48),
    Ipv6Net::new_assert(Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32),
    Ipv6Net::new_assert(Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
];

/// Whether an IPv6 network means this address. One that carries an IPv4 address is meant by no wider network than its
/// carrier: who allows `::/0` has not spoken of 10.0.0.1.
#[must_use]
pub fn is_meant_by(ip: IpAddr, network: &Ipv6Net) -> bool {
    let IpAddr::V6(v6) = ip else { return false };
    let carrier = CARRIERS.iter().find(|carrier| carrier.contains(&v6) && !v6.is_loopback());
    network.contains(&v6) && carrier.is_none_or(|carrier| carrier.contains(network))
}

/// Whether packets to this address leave for the public internet.
#[must_use]
pub fn is_public(ip: IpAddr) -> bool {
    let outer = match destination(ip) {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    };
    outer && isatap(ip).is_none_or(is_public_v4)
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    !SPECIAL_V4.iter().any(|(net, bits)| (ip.to_bits() ^ net.to_bits()).leading_zeros() >= *bits)
}

/// Only global unicast (2000::/3), without the blocks of the registry that are no public target. So everything that
/// embeds an IPv4 address below ::/8, local-use NAT64 (64:ff9b:1::/48), 100::/64, 5f00::/16, unique local, site-local,
/// link-local and multicast addresses are refused without being named.
fn is_public_v6(ip: Ipv6Addr) -> bool {
    match ip.segments() {
        // Inside the protocol assignments: AMT relays and AS112 servers are ordinary public hosts.
        [0x2001, 3, ..] | [0x2001, 4, 0x112, ..] => true,
        // 2001::/23: Teredo, benchmarks, identifiers that are no locators, anycast of the nearest network.
        // Then the documentation blocks 2001:db8::/32 and 3fff::/20.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => false,
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

/// The IPv4 address in an ISATAP interface id (RFC 5214 section 6.1), under any prefix.
fn isatap(ip: IpAddr) -> Option<Ipv4Addr> {
    match ip {
        IpAddr::V4(_) => None,
        IpAddr::V6(v6) => match v6.segments() {
            [_, _, _, _, 0 | 0x200, 0x5efe, high, low] => Some(pair(high, low)),
            _ => None,
        },
    }
}

/// Link-local, metadata, unspecified, multicast and broadcast addresses, also inside of any layout that embeds an IPv4
/// address: no network setting makes them a receiver.
#[must_use]
pub fn is_never_a_receiver(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => never_v4(v4),
        IpAddr::V6(v6) => {
            let [first, second, ..] = v6.segments();
            v6.is_unspecified()
                || first & 0xffc0 == 0xfe80
                || first & 0xff00 == 0xff00
                // The metadata, DNS and time services of an instance (fd00:ec2::254, ::253, ::123 and neighbours).
                || (first, second) == (0xfd00, 0xec2)
                || embedded(v6).any(never_v4)
        }
    }
}

fn never_v4(ip: Ipv4Addr) -> bool {
    ip.octets()[0] == 0 || ip.is_link_local() || ip.is_multicast() || ip.is_broadcast()
}

/// Every IPv4 address that some known layout sees in this address, also where that layout does not travel.
fn embedded(ip: Ipv6Addr) -> impl Iterator<Item = Ipv4Addr> {
    let s = ip.segments();
    let low = pair(s[6], s[7]);
    let found = match s {
        // The loopback address is not the compatible form of 0.0.0.1.
        [0, 0, 0, 0, 0, 0, 0, 1] => [None, None],
        // Compatible (RFC 4291 section 2.5.5.1), mapped, translated (RFC 2765).
        [0, 0, 0, 0, 0, 0 | 0xffff, ..] | [0, 0, 0, 0, 0xffff, 0, ..] => [Some(low), None],
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => [Some(low), None],
        // Local-use NAT64 (RFC 8215): a /96 of it, or the /48 layout around the reserved byte (RFC 6052 section 2.2). In
        // the layout that it is not, the place holds zeros.
        [0x64, 0xff9b, 1, high, mid, next, ..] => {
            [low, pair(high, mid << 8 | next >> 8)].map(|v4| Some(v4).filter(|v4| v4.octets()[0] != 0))
        }
        [0x2002, high, next, ..] => [Some(pair(high, next)), None],
        // Teredo (RFC 4380): server, and client with its bits flipped.
        [0x2001, 0, high, next, ..] => [Some(pair(high, next)), Some(pair(!s[6], !s[7]))],
        _ => [None, None],
    };
    found.into_iter().flatten().chain(isatap(IpAddr::V6(ip)))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// One IPv6 address per known layout that holds this IPv4 address.
    pub(crate) fn layouts(v4: Ipv4Addr) -> Vec<(&'static str, Ipv6Addr)> {
        let bits = v4.to_bits();
        let (high, low) = ((bits >> 16) as u16, bits as u16);
        let at = |prefix: [u16; 6]| {
            let [a, b, c, d, e, f] = prefix;
            Ipv6Addr::new(a, b, c, d, e, f, high, low)
        };
        vec![
            ("mapped", at([0, 0, 0, 0, 0, 0xffff])),
            ("nat64", at([0x64, 0xff9b, 0, 0, 0, 0])),
            ("6to4", Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1)),
            ("compatible", at([0, 0, 0, 0, 0, 0])),
            ("translated", at([0, 0, 0, 0, 0xffff, 0])),
            ("local nat64", at([0x64, 0xff9b, 1, 0, 0, 0])),
            ("local nat64 /48", Ipv6Addr::new(0x64, 0xff9b, 1, high, low >> 8, low << 8, 0, 0)),
            ("isatap", at([0x2a00, 0x1450, 0x4001, 0x81b, 0, 0x5efe])),
            ("isatap, global bit", at([0x2a00, 0x1450, 0x4001, 0x81b, 0x200, 0x5efe])),
            ("teredo client", Ipv6Addr::new(0x2001, 0, 0x808, 0x808, 0, 0, !high, !low)),
            ("teredo server", Ipv6Addr::new(0x2001, 0, high, low, 0, 0, 0xf7f7, 0xf7f7)),
        ]
    }

    fn v6(text: &str) -> IpAddr {
        IpAddr::V6(text.parse().unwrap())
    }

    #[test]
    fn every_special_block_is_refused_from_its_first_to_its_last_address() {
        for (net, bits) in SPECIAL_V4 {
            let first = net.to_bits();
            let last = first | u32::MAX >> bits;
            for inside in [first, first + 1, last - 1, last] {
                assert!(!is_public_v4(Ipv4Addr::from(inside)), "{}", Ipv4Addr::from(inside));
            }
        }
        for (first, last) in [
            ("::", "ff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff"),
            ("100::", "100::ffff:ffff:ffff:ffff"),
            ("100:0:0:1::", "100::1:ffff:ffff:ffff:ffff"),
            ("2001::", "2001:0:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("2001:1::1", "2001:1::3"),
            ("2001:2::", "2001:2:0:ffff:ffff:ffff:ffff:ffff"),
            ("2001:10::", "2001:3f:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("2001:1ff::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("4000::", "5fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ] {
            assert!(!is_public(v6(first)) && !is_public(v6(last)), "{first} to {last}");
        }
    }

    #[test]
    fn public_unicast_passes_up_to_the_edge_of_a_special_block() {
        for public in [
            "1.0.0.0",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "191.255.255.255",
            "192.0.1.0",
            "192.0.3.0",
            "192.31.196.1",
            "192.52.193.1",
            "192.88.98.255",
            "192.88.100.0",
            "192.167.255.255",
            "192.169.0.0",
            "192.175.48.1",
            "198.17.255.255",
            "198.20.0.0",
            "198.51.99.255",
            "198.51.101.0",
            "203.0.112.255",
            "203.0.114.0",
            "223.255.255.255",
            "2000::1",
            "2001:3::1",
            "2001:4:112::1",
            "2001:200::1",
            "2001:db7:ffff::1",
            "2001:db9::1",
            "2003::1",
            "2600::1",
            "2606:4700::1111",
            "2620:4f:8000::1",
            "2a00:1450:4001:81b::200e",
            "3ffe::1",
            "3fff:1000::1",
            "64:ff9b::808:808",
            "2002:808:808::1",
            "::ffff:8.8.8.8",
            "2a00:1450::5efe:808:808",
            "2a00:1450::200:5efe:808:808",
        ] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
    }

    #[test]
    fn the_loopback_addresses_may_be_allowed_and_a_metadata_address_in_any_layout_may_not() {
        assert!(!is_never_a_receiver(v6("::1")) && !is_never_a_receiver("127.0.0.1".parse().unwrap()));
        for (name, ip) in layouts(Ipv4Addr::new(169, 254, 169, 254)) {
            assert!(is_never_a_receiver(IpAddr::V6(ip)), "{name}");
        }
        for (name, ip) in layouts(Ipv4Addr::BROADCAST) {
            assert!(is_never_a_receiver(IpAddr::V6(ip)), "{name}");
        }
        for never in ["::", "fe80::1", "febf::1", "fd00:ec2::254", "fd00:ec2::23", "ff02::1", "0.1.2.3", "224.0.0.1"] {
            assert!(is_never_a_receiver(never.parse().unwrap()), "{never}");
        }
        assert!(!is_never_a_receiver(v6("fd00:ec1::254")) && !is_never_a_receiver(v6("fec0::1")));
    }

    proptest::proptest! {
        #[test]
        fn an_embedded_address_with_a_fixed_place_is_judged_like_the_plain_one(bits in proptest::prelude::any::<u32>()) {
            let v4 = Ipv4Addr::from(bits);
            for (name, v6) in layouts(v4).into_iter().filter(|(n, _)| ["mapped", "nat64", "6to4"].contains(n)) {
                proptest::prop_assert_eq!(is_public_v4(v4), is_public(IpAddr::V6(v6)), "{}", name);
            }
        }

        #[test]
        fn no_layout_carries_a_private_address(special in 0..SPECIAL_V4.len(), bits in proptest::prelude::any::<u32>()) {
            let (net, length) = SPECIAL_V4[special];
            let v4 = Ipv4Addr::from(net.to_bits() | bits & (u32::MAX >> length));
            for (name, v6) in layouts(v4) {
                proptest::prop_assert!(!is_public(IpAddr::V6(v6)), "{} of {}", name, v4);
            }
        }

        #[test]
        fn outside_of_global_unicast_only_mapped_and_nat64_pass(bits in proptest::prelude::any::<u128>()) {
            let ip = Ipv6Addr::from_bits(bits & (u128::MAX >> 3) | (bits & 7) << 125);
            let fixed = destination(IpAddr::V6(ip)) != IpAddr::V6(ip);
            proptest::prop_assert!(fixed || ip.segments()[0] & 0xe000 == 0x2000 || !is_public(IpAddr::V6(ip)));
        }
    }
}
