//! Where a request may go. The socket address that is dialled is judged, by where packets end up and not by how it is
//! spelt; a name is judged before anybody is asked about it, and then by every address that it resolves to. A reason is
//! for the operator: it names the parameter that would allow it, and never the address or the name.

pub mod address;
pub mod name;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ipnet::IpNet;
use url::{Host, Url};

/// What the deployment allows.
#[derive(Clone, Debug, Default)]
pub struct EgressPolicy {
    allow_http: bool,
    /// Allowed ports; `None` allows any.
    ports: Option<Vec<u16>>,
    /// Private networks that are allowed all the same.
    networks: Vec<IpNet>,
    hosts: Vec<Allowed>,
    runtime_api: Option<RuntimeApi>,
}

/// One entry of the allow-list of hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Allowed {
    /// A name, or with `below` every name under it; on that port, or on any that the port rule allows.
    Name { name: String, below: bool, port: Option<u16> },
    /// Exactly this socket address, whatever it is.
    Address(SocketAddr),
}

/// Where the runtime of the function listens. What is posted there is an answer in our name.
#[derive(Clone, Copy, Debug)]
struct RuntimeApi {
    /// `None`: a name, which means the own host.
    ip: Option<IpAddr>,
    port: u16,
}

/// A URL that passed: what remains to be judged is what its name resolves to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The name to resolve; `None` when the URL names an address, which has been judged.
    pub name: Option<String>,
    /// The port that will be dialled.
    pub port: u16,
    /// The name is listed: it may resolve to private addresses.
    listed: bool,
}

impl EgressPolicy {
    /// Reads `443,8443` or `any`; a comma list of CIDRs; and a comma list of hosts: `name`, `name:port`, `*.suffix`, or an
    /// address with its port, `10.0.0.5:8443` or `[fd12::5]:8443`.
    pub fn parse(allow_http: bool, ports: &str, cidrs: &str, hosts: &str) -> Result<Self, String> {
        let ports = if ports.trim() == "any" {
            None
        } else {
            let list = ports.split(',').map(|p| {
                port(p.trim()).ok_or_else(|| format!("{:?} is no port; write 443 or 443,8443 or any", p.trim()))
            });
            Some(list.collect::<Result<Vec<_>, _>>()?)
        };
        let networks = entries(cidrs)
            .map(|c| c.parse::<IpNet>().map_err(|_| format!("{c:?} is no CIDR; write for example 10.1.0.0/16")))
            .collect::<Result<Vec<_>, _>>()?;
        let hosts = entries(hosts).map(Allowed::parse).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { allow_http, ports, networks, hosts, runtime_api: None })
    }

    /// Never the runtime's own interface, given as `host:port` (the value of `AWS_LAMBDA_RUNTIME_API`).
    pub fn with_runtime_api(mut self, address: Option<&str>) -> Result<Self, String> {
        if let Some(address) = address {
            let url = Url::parse(&format!("http://{address}/")).ok();
            let listening = address.rsplit_once(':').and_then(|(_, digits)| port(digits));
            self.runtime_api = match url.as_ref().and_then(Url::host).zip(listening) {
                Some((host, port)) => Some(RuntimeApi { ip: ip_of(&host), port }),
                None => return Err(format!("{address:?} is no host and port")),
            };
        }
        Ok(self)
    }

    /// Judges the URL itself: scheme, user-info, port, and its host, be it an address or a name. For a name the addresses
    /// follow, in [`Self::check_dial`].
    pub fn check_url(&self, url: &Url) -> Result<Target, String> {
        match url.scheme() {
            "https" => {}
            "http" if self.allow_http => {}
            "http" => return Err("plain http is not allowed; use https, or allow it with AllowHttp".to_owned()),
            _ => return Err("only https URLs can be delivered to".to_owned()),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("a user name or password in a URL is not allowed".to_owned());
        }
        let host = url.host().ok_or("the URL has no host")?;
        let port = url.port_or_known_default().filter(|p| *p > 0).ok_or("port 0 cannot be delivered to")?;
        let ip = ip_of(&host);
        let listing = self.hosts.iter().filter(|entry| match &host {
            Host::Domain(name) => entry.lists_name(name, port),
            Host::Ipv4(_) | Host::Ipv6(_) => ip.is_some_and(|ip| entry.lists_address(SocketAddr::new(ip, port))),
        });
        let (mut listed, mut names_port) = (false, false);
        for entry in listing {
            listed = true;
            names_port |= entry.names_port();
        }
        if !names_port && self.ports.as_ref().is_some_and(|allowed| !allowed.contains(&port)) {
            return Err(format!("port {port} is not allowed; allow it with AllowedPorts"));
        }
        let name = match &host {
            Host::Domain(name) => Some((*name).to_owned()),
            Host::Ipv4(_) | Host::Ipv6(_) => None,
        };
        let target = Target { name, port, listed };
        match (&host, ip) {
            (_, Some(ip)) => self.check_dial(&target, ip)?,
            (Host::Domain(name), None) if name::is_malformed(name) => {
                return Err("the host name is malformed".to_owned());
            }
            (Host::Domain(name), None) if name::is_localhost(name) => {
                self.check_dial(&target, IpAddr::V4(Ipv4Addr::LOCALHOST))?;
            }
            (Host::Domain(name), None) => {
                if let Some(fault) = name::fault(name).filter(|_| !listed) {
                    return Err(format!("{fault}; if it is a receiver of yours, list it in EgressAllowHosts"));
                }
            }
            (Host::Ipv4(_) | Host::Ipv6(_), None) => return Err("the URL has no host".to_owned()),
        }
        Ok(target)
    }

    /// Judges an address that is about to be dialled for a target. Every address of an answer must pass.
    pub fn check_dial(&self, target: &Target, ip: IpAddr) -> Result<(), String> {
        let dialled = SocketAddr::new(ip, target.port);
        if self.hosts.iter().any(|entry| entry.lists_address(dialled)) {
            return Ok(());
        }
        if address::is_never_a_receiver(ip) || self.runtime_api.is_some_and(|api| api.is_at(dialled)) {
            return Err(
                "the address belongs to the platform or reaches no single host; only an exact address and port \
                        in EgressAllowHosts allows it"
                    .to_owned(),
            );
        }
        let destination = address::destination(ip);
        let in_network = self.networks.iter().any(|net| match net {
            IpNet::V4(_) => net.contains(&destination),
            IpNet::V6(net) => address::is_meant_by(ip, net),
        });
        if target.listed || in_network || address::is_public(ip) {
            Ok(())
        } else {
            Err("the address is not a public one; allow private receivers with EgressAllowCidrs or EgressAllowHosts"
                .to_owned())
        }
    }
}

impl RuntimeApi {
    fn is_at(self, dialled: SocketAddr) -> bool {
        let ip = address::destination(dialled.ip());
        (dialled.port() == self.port && (ip.is_loopback() || ip.is_unspecified()))
            || self.ip.is_some_and(|own| !own.is_loopback() && !own.is_unspecified() && own == ip)
    }
}

impl Allowed {
    fn parse(entry: &str) -> Result<Self, String> {
        let wrong = || format!("{entry:?} is no host; write name, name:port, *.suffix or address:port");
        if let Ok(address) = entry.parse::<SocketAddr>() {
            return if address.port() > 0 { Ok(Self::Address(canonical(address))) } else { Err(wrong()) };
        }
        let (below, rest) = entry.strip_prefix("*.").map_or((false, entry), |rest| (true, rest));
        let (name, port) = match rest.split_once(':') {
            Some((name, digits)) => (name, Some(port(digits).ok_or_else(wrong)?)),
            None => (rest, None),
        };
        // Through the same parser as the URLs, so that both sides of the comparison are spelt alike.
        let url = Url::parse(&format!("https://{name}/")).map_err(|_| wrong())?;
        match url.host() {
            Some(Host::Domain(host))
                if url.path() == "/" && url.username().is_empty() && !name.contains(['/', '*']) =>
            {
                if name::is_malformed(host) {
                    return Err(wrong());
                }
                Ok(Self::Name { name: name::bare(host).to_owned(), below, port })
            }
            Some(Host::Ipv4(_) | Host::Ipv6(_)) => {
                Err(format!("{entry:?} is an address; write it with its port, or as a CIDR in EGRESS_ALLOW_CIDRS"))
            }
            Some(Host::Domain(_)) | None => Err(wrong()),
        }
    }

    fn lists_name(&self, host: &str, port: u16) -> bool {
        match self {
            Self::Address(_) => false,
            Self::Name { name, below, port: only } => {
                let host = name::bare(host);
                let matches = if *below {
                    host.strip_suffix(name.as_str()).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
                } else {
                    host == name
                };
                matches && only.is_none_or(|only| only == port)
            }
        }
    }

    fn lists_address(&self, address: SocketAddr) -> bool {
        match self {
            Self::Address(listed) => *listed == canonical(address),
            Self::Name { .. } => false,
        }
    }

    fn names_port(&self) -> bool {
        match self {
            Self::Address(_) => true,
            Self::Name { port, .. } => port.is_some(),
        }
    }
}

/// The mapped form is the same socket as the plain one.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn ip_of<S>(host: &Host<S>) -> Option<IpAddr> {
    match host {
        Host::Ipv4(ip) => Some(IpAddr::V4(*ip)),
        Host::Ipv6(ip) => Some(IpAddr::V6(*ip)),
        Host::Domain(_) => None,
    }
}

fn port(text: &str) -> Option<u16> {
    text.bytes().all(|c| c.is_ascii_digit()).then(|| text.parse().ok()).flatten().filter(|p| *p > 0)
}

fn entries(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|entry| !entry.is_empty())
}

#[cfg(test)]
mod tests;
