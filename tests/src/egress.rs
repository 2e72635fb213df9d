//! The egress guard, against a table of its own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use domain::egress::EgressPolicy;
use ipnet::IpNet;
use url::{Host, Url};

/// What is no public target, written down from the IANA special-purpose registries and not from our code: an address
/// belongs to the longest entry that holds it. `+` means a public target inside of something special.
const TABLE: &[(&str, char)] = &[
    ("0.0.0.0/0", '+'),
    ("0.0.0.0/8", '-'),
    ("10.0.0.0/8", '-'),
    ("100.64.0.0/10", '-'),
    ("127.0.0.0/8", '-'),
    ("169.254.0.0/16", '-'),
    ("172.16.0.0/12", '-'),
    ("192.0.0.0/24", '-'),
    ("192.0.2.0/24", '-'),
    ("192.88.99.0/24", '-'),
    ("192.168.0.0/16", '-'),
    ("198.18.0.0/15", '-'),
    ("198.51.100.0/24", '-'),
    ("203.0.113.0/24", '-'),
    ("224.0.0.0/3", '-'),
    ("::/0", '-'),
    ("2000::/3", '+'),
    ("2001::/23", '-'),
    ("2001:3::/32", '+'),
    ("2001:4:112::/48", '+'),
    ("2001:db8::/32", '-'),
    ("3fff::/20", '-'),
];

/// A layout: its prefix, the bit at which an IPv4 address begins, and whether its bits are flipped.
type Layout = (&'static str, u32, bool);

/// Layouts whose packets go to the IPv4 address (RFC 4291, RFC 6052, RFC 3056).
const CARRIERS: &[Layout] = &[("::ffff:0:0/96", 96, false), ("64:ff9b::/96", 96, false), ("2002::/16", 16, false)];

/// Layouts that have one, though no packet of ours goes there: compatible, translated, the server and the client of Teredo.
const OTHERS: &[Layout] =
    &[("::/96", 96, false), ("::ffff:0:0:0/96", 96, false), ("2001::/32", 32, false), ("2001::/32", 96, true)];

/// Networks that no list of networks opens.
const NEVER: &[&str] = &[
    "0.0.0.0/8",
    "169.254.0.0/16",
    "224.0.0.0/4",
    "255.255.255.255/32",
    "::/128",
    "fe80::/10",
    "ff00::/8",
    "fd00:ec2::/32",
];

fn net(text: &str) -> IpNet {
    text.parse().expect("the tables are well-formed")
}

/// The IPv4 address at a bit of an IPv6 address.
fn inside(ip: Ipv6Addr, bit: u32) -> Ipv4Addr {
    Ipv4Addr::from((ip.to_bits() >> (96 - bit)) as u32)
}

fn by_prefix(layouts: &[Layout], ip: IpAddr) -> Vec<Ipv4Addr> {
    let IpAddr::V6(v6) = ip else { return Vec::new() };
    let of_ip = layouts.iter().filter(|(prefix, ..)| net(prefix).contains(&ip));
    of_ip.map(|(_, bit, flipped)| if *flipped { !inside(v6, *bit) } else { inside(v6, *bit) }).collect()
}

fn carried(ip: IpAddr) -> Option<Ipv4Addr> {
    by_prefix(CARRIERS, ip).pop()
}

/// What local-use NAT64 (RFC 8215) may carry: at the end, or around the reserved byte of a prefix of 48 bits (RFC 6052
/// section 2.2). Where one layout has its address, the other has zeros, so 0.0.0.0/8 is nobody's.
fn local_nat64(ip: IpAddr) -> Vec<Ipv4Addr> {
    let IpAddr::V6(v6) = ip else { return Vec::new() };
    let octets = v6.octets();
    let both = [inside(v6, 96), Ipv4Addr::new(octets[6], octets[7], octets[9], octets[10])];
    let of_ip = both.into_iter().filter(|_| net("64:ff9b:1::/48").contains(&ip));
    of_ip.filter(|v4| !net("0.0.0.0/8").contains(&IpAddr::V4(*v4))).collect()
}

/// The IPv4 address of an ISATAP interface, whatever the network.
fn isatap(ip: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(v6) = ip else { return None };
    let interface = (v6.to_bits() as u64) >> 32;
    (interface & !0x0200_0000 == 0x5efe).then(|| inside(v6, 96))
}

fn is_public(ip: IpAddr) -> bool {
    if let Some(v4) = carried(ip) {
        return is_public(v4.into()) && isatap(ip).is_none_or(|v4| is_public(v4.into()));
    }
    // What the standard library knows must agree; it knows less.
    let by_std = match ip {
        IpAddr::V4(v4) => {
            v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_multicast() || v4.is_documentation()
        }
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local() || v6.is_multicast(),
    } || ip.is_unspecified();
    let longest = TABLE
        .iter()
        .filter(|(text, _)| net(text).contains(&ip))
        .max_by_key(|(text, _)| net(text).prefix_len())
        .expect("the table holds everything");
    let public = longest.1 == '+' && isatap(ip).is_none_or(|v4| is_public(v4.into()));
    assert!(!(by_std && public), "the tables disagree about {ip}");
    public
}

fn is_never(ip: IpAddr) -> bool {
    let listed = |ip: IpAddr| NEVER.iter().any(|text| net(text).contains(&ip));
    let mut seen = by_prefix(OTHERS, ip);
    seen.extend([carried(ip), isatap(ip)].into_iter().flatten().chain(local_nat64(ip)));
    // The loopback address is not the compatible form of 0.0.0.1.
    listed(ip) || !ip.is_loopback() && seen.into_iter().any(|v4| listed(v4.into()))
}

/// What is dialled is public or allowed, and no reason names it. The input is a line each of: the ports (with a `+` before
/// them plain http is allowed), the networks, the hosts, a URL; and then an address of 4 or 16 bytes.
pub fn egress(data: &[u8]) {
    let mut parts = data.splitn(5, |byte| *byte == b'\n');
    let mut text = || String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let (ports, networks, hosts, url) = (text(), text(), text(), text());
    let address = address_of(parts.next().unwrap_or_default());

    let everything = "0.0.0.0/0,::/0";
    let strict = EgressPolicy::parse(false, "443", "", "").expect("these are the defaults");
    let open = EgressPolicy::parse(true, "any", everything, "").expect("these are well-formed");
    if let Some(ip) = address {
        let name: Url = "https://hooks.example.test/".parse().expect("a URL");
        let dials =
            |policy: &EgressPolicy| policy.check_dial(&policy.check_url(&name).expect("a public name"), ip).is_ok();
        let opened = !is_never(ip) && (is_public(ip) || in_networks(everything, ip));
        assert_eq!((dials(&strict), dials(&open)), (is_public(ip), opened), "{ip}");
    }

    let Ok(url) = Url::parse(&url) else { return };
    judged(&strict, "", "", &url);
    judged(&open, everything, "", &url);
    if let Ok(policy) = EgressPolicy::parse(ports.starts_with('+'), ports.trim_start_matches('+'), &networks, &hosts) {
        judged(&policy, &networks, &hosts, &url);
    }
}

fn judged(policy: &EgressPolicy, networks: &str, hosts: &str, url: &Url) {
    let target = match policy.check_url(url) {
        Ok(target) => target,
        Err(reason) => {
            assert!((1..200).contains(&reason.len()), "{reason}");
            let host = url.host_str().filter(|host| host.len() > 12);
            assert!(host.is_none_or(|host| !reason.contains(host)), "{reason}");
            return;
        }
    };
    assert!(url.scheme() == "https" || url.scheme() == "http", "{url}");
    assert!(url.username().is_empty() && url.password().is_none(), "{url}");
    assert_eq!(Some(target.port).filter(|port| *port > 0), url.port_or_known_default());
    let ip = match url.host().expect("it passed") {
        Host::Domain(name) => return assert_eq!(target.name.as_deref(), Some(name)),
        Host::Ipv4(ip) => IpAddr::V4(ip),
        Host::Ipv6(ip) => IpAddr::V6(ip),
    };
    assert_eq!(target.name, None);
    assert_eq!(policy.check_dial(&target, ip), Ok(()), "the URL and the dialling are judged alike");
    let socket = |address: SocketAddr| (address.ip().to_canonical(), address.port());
    let exactly = entries(hosts).any(|listed| socket(listed) == socket(SocketAddr::new(ip, target.port)));
    assert!(exactly || !is_never(ip) && (in_networks(networks, ip) || is_public(ip)), "{url}");
}

/// A network of IPv6 speaks of an address in some layout only if it lies inside of that layout's prefix.
fn in_networks(networks: &str, ip: IpAddr) -> bool {
    let end = carried(ip).map_or(ip, IpAddr::V4);
    let layouts = CARRIERS.iter().chain(OTHERS).map(|(prefix, ..)| net(prefix)).chain([net("64:ff9b:1::/48")]);
    let layouts: Vec<IpNet> = layouts.filter(|layout| layout.contains(&ip) && !ip.is_loopback()).collect();
    entries(networks).any(|network: IpNet| {
        end.is_ipv4() && network.contains(&end)
            || network.contains(&ip) && layouts.iter().all(|layout| layout.contains(&network))
    })
}

fn entries<T: std::str::FromStr>(list: &str) -> impl Iterator<Item = T> {
    list.split(',').filter_map(|entry| entry.trim().parse().ok())
}

/// Inputs of [`egress`]: the edges of every network above and what lies beyond them; those of IPv4 also in every layout.
#[must_use]
pub fn edges() -> Vec<Vec<u8>> {
    let networks = TABLE.iter().map(|(text, _)| text).chain(NEVER).map(|text| net(text));
    let mut inputs = Vec::new();
    let mut add = |octets: &[u8]| inputs.push([b"\n\n\n\n", octets].concat());
    for (first, last) in networks.map(|net| (net.network(), net.broadcast())) {
        match (first, last) {
            (IpAddr::V4(first), IpAddr::V4(last)) => {
                let (first, last) = (first.to_bits(), last.to_bits());
                for bits in [first.wrapping_sub(1), first, last, last.wrapping_add(1)] {
                    add(&bits.to_be_bytes());
                    for (prefix, bit, flipped) in CARRIERS.iter().chain(OTHERS) {
                        let IpAddr::V6(prefix) = net(prefix).network() else { continue };
                        let inner = u128::from(if *flipped { !bits } else { bits });
                        add(&(prefix.to_bits() | inner << (96 - bit)).to_be_bytes());
                    }
                    let inner = u128::from(bits);
                    add(&((0x64_ff9b_0001_u128 << 80) | inner).to_be_bytes());
                    // The reserved byte stands between the second and the third byte of the address.
                    add(&((0x64_ff9b_0001_u128 << 80) | (inner >> 16) << 64 | (inner & 0xffff) << 40).to_be_bytes());
                    for interface in [0x5efe_u128, 0x0200_5efe] {
                        add(&((0x2a00_1450 << 96) | interface << 32 | inner).to_be_bytes());
                    }
                }
            }
            (IpAddr::V6(first), IpAddr::V6(last)) => {
                let (first, last) = (first.to_bits(), last.to_bits());
                for bits in [first.wrapping_sub(1), first, last, last.wrapping_add(1)] {
                    add(&bits.to_be_bytes());
                }
            }
            _ => panic!("a network is of one family"),
        }
    }
    inputs
}

fn address_of(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        16.. => Some(IpAddr::from(<[u8; 16]>::try_from(&bytes[..16]).ok()?)),
        _ => None,
    }
}
