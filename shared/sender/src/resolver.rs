//! Names to addresses, with the egress guard in between: a name is resolved once per attempt, every address of the answer
//! is judged, and only those addresses are handed to the client. An address in the URL itself never comes here; it is
//! judged with the URL.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use domain::egress::{EgressPolicy, Target};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::attempt::CURRENT;

/// Longest time to resolve a name.
const LIMIT: Duration = Duration::from_secs(2);

/// The addresses of a name, in time.
pub type Found = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// Asks for the addresses of a name and a port.
pub type Lookup = Arc<dyn Fn(String, u16) -> Found + Send + Sync>;

/// Asks the system.
pub fn system() -> Lookup {
    Arc::new(|name, port| Box::pin(async move { Ok(tokio::net::lookup_host((name, port)).await?.collect()) }))
}

/// Why there is no address to dial.
pub(crate) enum NoAddress {
    /// No answer, or an empty one.
    Unresolved,
    /// No answer in time.
    TooLate,
    /// The guard refuses the answer; the reason.
    Refused(String),
}

/// Resolves the name of a target and judges the whole answer: any address that fails refuses all.
pub(crate) async fn resolve(
    lookup: &Lookup,
    policy: &EgressPolicy,
    target: &Target,
    name: &str,
) -> Result<Vec<SocketAddr>, NoAddress> {
    let answer = tokio::time::timeout(LIMIT, lookup(name.to_owned(), target.port)).await;
    let found = answer.map_err(|_| NoAddress::TooLate)?.map_err(|_| NoAddress::Unresolved)?;
    if found.is_empty() {
        return Err(NoAddress::Unresolved);
    }
    for address in &found {
        policy.check_dial(target, address.ip()).map_err(NoAddress::Refused)?;
    }
    // What is dialled is what was judged, whatever else the answer held.
    Ok(found.into_iter().map(|address| SocketAddr::new(address.ip(), target.port)).collect())
}

/// What the client asks: it resolves nothing, and knows only the addresses judged for the attempt at hand.
pub(crate) struct Judged;

impl Resolve for Judged {
    fn resolve(&self, name: Name) -> Resolving {
        let judged = CURRENT.try_with(|attempt| attempt.addresses_of(name.as_str())).ok().flatten();
        Box::pin(async move {
            let addresses = judged.ok_or(NotJudged)?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// The client asked for a name that was not judged for the attempt at hand.
#[derive(Debug)]
pub(crate) struct NotJudged;

impl std::fmt::Display for NotJudged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the egress check could not be made")
    }
}

impl std::error::Error for NotJudged {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::Attempt;

    async fn ask(name: &str) -> Option<Vec<SocketAddr>> {
        Judged.resolve(name.parse().unwrap()).await.ok().map(Iterator::collect)
    }

    #[tokio::test]
    async fn the_port_is_the_one_that_was_judged_whatever_an_answer_says() {
        let policy = EgressPolicy::parse(false, "443", "", "").unwrap();
        let target = policy.check_url(&"https://hooks.example.test/".parse().unwrap()).unwrap();
        let lookup: Lookup = Arc::new(|_, _| Box::pin(async { Ok(vec![SocketAddr::from(([8, 8, 8, 8], 9001))]) }));
        let found = resolve(&lookup, &policy, &target, "hooks.example.test").await;
        assert_eq!(found.ok(), Some(vec![SocketAddr::from(([8, 8, 8, 8], 443))]));
    }

    #[tokio::test]
    async fn the_client_gets_the_addresses_of_its_own_attempt_and_none_without_one() {
        let judged = vec![SocketAddr::from(([127, 0, 0, 1], 443))];
        let attempt = |addresses| Arc::new(Attempt::new("hooks.example.test".to_owned(), addresses));
        assert_eq!(ask("hooks.example.test").await, None, "outside of an attempt");
        let of_attempt = CURRENT.scope(attempt(judged.clone()), ask("hooks.example.test"));
        assert_eq!(of_attempt.await, Some(judged.clone()));
        let of_another_name = CURRENT.scope(attempt(judged.clone()), ask("other.example.test"));
        assert_eq!(of_another_name.await, None);
        let with_nothing_judged = CURRENT.scope(attempt(Vec::new()), ask("hooks.example.test"));
        assert_eq!(with_nothing_judged.await, None);
        let in_a_task_of_its_own =
            CURRENT.scope(attempt(judged), async { tokio::spawn(ask("hooks.example.test")).await });
        assert_eq!(in_a_task_of_its_own.await.unwrap(), None);
    }
}
