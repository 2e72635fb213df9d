//! Where a request may go. Addresses are judged by where packets end up, not by how they are spelt; the platform calls
//! this for every address it is about to dial.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use url::{Host, Url};

/// What the deployment allows.
#[derive(Clone, Debug, Default)]
pub struct EgressPolicy {
    /// Plain http too.
    pub allow_http: bool,
    /// Allowed ports; `None` allows any.
    pub ports: Option<Vec<u16>>,
    /// Private networks that are allowed all the same.
    pub allow: Vec<IpNet>,
}

impl EgressPolicy {
    /// Reads `443,8443` or `any`, and a comma list of CIDRs.
    pub fn parse(allow_http: bool, ports: &str, cidrs: &str) -> Result<Self, String> {
        let ports = if ports.trim() == "any" {
            None
        } else {
            let list = ports.split(',').map(|p| {
                p.trim()
                    .parse::<u16>()
                    .ok()
                    .filter(|p| *p > 0)
                    .ok_or_else(|| format!("{:?} is no port; write 443 or 443,8443 or any", p.trim()))
            });
            Some(list.collect::<Result<Vec<_>, _>>()?)
        };
        let allow = cidrs
            .split(',')
            .map(str::trim)
            .filter(|c| !c.is_empty())
            .map(|c| c.parse::<IpNet>().map_err(|_| format!("{c:?} is no CIDR; write for example 10.1.0.0/16")))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self { allow_http, ports, allow })
    }

    /// Judges the URL itself: scheme, user-info, port, and the address when the host is one. Names are judged by what
    /// they resolve to, in the resolver.
    pub fn check_url(&self, url: &Url) -> Result<(), String> {
        match url.scheme() {
            "https" => {}
            "http" if self.allow_http => {}
            other => return Err(format!("scheme {other} is not allowed, use https")),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("a user name or password in a URL is not allowed".to_owned());
        }
        let port = url.port_or_known_default().unwrap_or(0);
        if port == 0 || self.ports.as_ref().is_some_and(|allowed| !allowed.contains(&port)) {
            return Err(format!("port {port} is not allowed"));
        }
        match url.host() {
            Some(Host::Ipv4(ip)) => self.check_ip(IpAddr::V4(ip)),
            Some(Host::Ipv6(ip)) => self.check_ip(IpAddr::V6(ip)),
            // Whatever a resolver makes of them, these names mean the own host (RFC 6761 section 6.3).
            Some(Host::Domain(name)) if is_localhost(name) => self.check_ip(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            Some(Host::Domain(name)) if !name.is_empty() => Ok(()),
            Some(Host::Domain(_)) | None => Err("the URL has no host".to_owned()),
        }
    }

    /// Judges an address that is about to be dialled. The reason does not name the address.
    pub fn check_ip(&self, ip: IpAddr) -> Result<(), String> {
        if self.allow.iter().any(|net| net.contains(&ip)) {
            return Ok(());
        }
        let public = match ip {
            IpAddr::V4(v4) => is_public_v4(v4),
            IpAddr::V6(v6) => is_public_v6(v6),
        };
        if public {
            Ok(())
        } else {
            Err("the address is not a public one; allow private networks with EgressAllowCidrs".to_owned())
        }
    }
}

fn is_localhost(name: &str) -> bool {
    let name = name.trim_end_matches('.');
    name == "localhost" || name.ends_with(".localhost")
}

/// Networks of the IANA special-purpose registry (RFC 6890 and successors) that are not globally reachable.
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

fn is_public_v4(ip: Ipv4Addr) -> bool {
    !SPECIAL_V4.iter().any(|(net, bits)| (ip.to_bits() ^ net.to_bits()).leading_zeros() >= *bits)
}

/// Only global unicast (2000::/3) and NAT64 of a public address. An embedded IPv4 address is judged as such.
fn is_public_v6(ip: Ipv6Addr) -> bool {
    let segments = ip.segments();
    let low32 = Ipv4Addr::from(u32::from(segments[6]) << 16 | u32::from(segments[7]));
    if let Some(v4) = ip.to_ipv4_mapped() {
        return is_public_v4(v4);
    }
    match segments {
        // NAT64, well-known prefix (RFC 6052).
        [0x64, 0xff9b, 0, 0, 0, 0, _, _] => is_public_v4(low32),
        // 6to4 (RFC 3056): the IPv4 address follows the prefix.
        [0x2002, high, low, ..] => is_public_v4(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low))),
        // 2001::/23 protocol assignments (Teredo among them), documentation 2001:db8::/32 and 3fff::/20.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => false,
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(policy: &EgressPolicy, url: &str) -> bool {
        policy.check_url(&Url::parse(url).unwrap()).is_ok()
    }

    fn strict() -> EgressPolicy {
        EgressPolicy::parse(false, "443", "").unwrap()
    }

    #[test]
    fn every_spelling_of_a_private_address_is_refused() {
        for host in [
            "10.0.0.1",
            "2130706433",
            "0x7f.1",
            "0177.0.0.1",
            "127.1",
            "0",
            "127.0.0.1.",
            "169.254.169.254",
            "100.64.0.1",
            "192.0.0.8",
            "198.18.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "172.31.255.255",
            "[::1]",
            "[::]",
            "[::ffff:169.254.169.254]",
            "[::ffff:7f00:1]",
            "[::127.0.0.1]",
            "[2002:a9fe:a9fe::1]",
            "[64:ff9b::a9fe:a9fe]",
            "[fc00::1]",
            "[fe80::1]",
            "[ff02::1]",
            "localhost",
            "LOCALHOST.",
            "a.localhost",
            "[2001:db8::1]",
            "[2001::1]",
            "[100::1]",
            "[64:ff9b:1::1]",
            "[3fff::1]",
        ] {
            assert!(!verdict(&strict(), &format!("https://{host}/h")), "{host}");
        }
    }

    #[test]
    fn public_addresses_pass() {
        for host in [
            "8.8.8.8",
            "172.32.0.1",
            "[2606:4700::1111]",
            "[64:ff9b::808:808]",
            "[::ffff:8.8.8.8]",
            "[2002:808:808::1]",
            "hooks.example.test",
        ] {
            assert!(verdict(&strict(), &format!("https://{host}/h")), "{host}");
        }
    }

    #[test]
    fn scheme_user_info_and_port_are_judged() {
        for url in [
            "http://8.8.8.8/",
            "https://8.8.8.8:8443/",
            "https://a:b@8.8.8.8/",
            "https://a@8.8.8.8/",
            "https://8.8.8.8:0/",
            "ftp://8.8.8.8/",
        ] {
            assert!(!verdict(&strict(), url), "{url}");
        }
        let local = EgressPolicy::parse(true, "any", "127.0.0.0/8, 10.1.0.0/16").unwrap();
        assert!(
            verdict(&local, "http://127.0.0.1:9/")
                && verdict(&local, "http://10.1.2.3/")
                && !verdict(&local, "http://10.2.0.1/")
        );
    }

    #[test]
    fn wrong_settings_are_named() {
        assert!(EgressPolicy::parse(false, "https", "").unwrap_err().contains("\"https\""));
        assert!(EgressPolicy::parse(false, "443", "10.0.0.0").unwrap_err().contains("10.0.0.0"));
    }

    proptest::proptest! {
        #[test]
        fn a_mapped_address_is_judged_like_the_plain_one(bits in proptest::prelude::any::<u32>()) {
            let v4 = Ipv4Addr::from(bits);
            proptest::prop_assert_eq!(is_public_v4(v4), is_public_v6(v4.to_ipv6_mapped()));
        }
    }
}
