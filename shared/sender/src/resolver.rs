//! Name resolution with the egress guard inside: the addresses that are judged are the addresses that are dialled.
//! An address in the URL itself never comes here; [`crate::http`] judges it before.

use std::net::SocketAddr;
use std::sync::Arc;

use domain::egress::EgressPolicy;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Resolves names and refuses the whole answer when any address of it fails.
pub struct GuardedResolver {
    policy: Arc<EgressPolicy>,
}

impl GuardedResolver {
    /// A resolver that judges by `policy`.
    pub fn new(policy: Arc<EgressPolicy>) -> Self {
        Self { policy }
    }
}

/// The egress guard refused an address.
#[derive(Debug)]
pub struct Refused(pub String);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// The name could not be resolved.
#[derive(Debug)]
pub struct Unresolved;

impl std::fmt::Display for Unresolved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the name could not be resolved")
    }
}

impl std::error::Error for Unresolved {}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = Arc::clone(&self.policy);
        Box::pin(async move {
            let addresses: Vec<SocketAddr> =
                tokio::net::lookup_host((name.as_str(), 0)).await.map_err(|_| Unresolved)?.collect();
            if addresses.is_empty() {
                return Err(Unresolved.into());
            }
            for address in &addresses {
                policy.check_ip(address.ip()).map_err(Refused)?;
            }
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}
