//! Identifiers, and the keys made of them. No identifier contains `#`, so a key made of two of them is unambiguous.

use std::fmt;

use sha2::{Digest, Sha256};

/// How many partitions each lane of the `work` index is spread over.
pub const SHARDS: u8 = 16;
/// How many partitions each lane of the `by_endpoint` index is spread over.
pub const ENDPOINT_SHARDS: u8 = 4;

/// Lower-case hexadecimal text of some bytes.
pub fn hex(bytes: &[u8]) -> String {
    use fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// SHA-256 as lower-case hexadecimal text.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// The producer's id of an event: stable for ever, sent as `webhook-id`, unchanged by retries and redrives.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId(String);

impl EventId {
    /// Accepts 1 to 256 characters of `[A-Za-z0-9_:@+=~-]`. No `.`: the signed text joins its parts with dots.
    pub fn parse(text: &str) -> Result<Self, String> {
        let allowed = |c: u8| c.is_ascii_alphanumeric() || b"_:@+=~-".contains(&c);
        if text.is_empty() || text.len() > 256 {
            return Err(format!("`id` must have 1 to 256 characters, this one has {}", text.len()));
        }
        match text.bytes().find(|c| !allowed(*c)) {
            None => Ok(Self(text.to_owned())),
            Some(c) => {
                Err(format!("`id` may hold only A-Z a-z 0-9 _ : @ + = ~ - (no dot), this one has {:?}", char::from(c)))
            }
        }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Which endpoint a delivery goes to: a registered id, or `url:` and a hash of an inline URL.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointKey(String);

impl EndpointKey {
    /// Accepts a registered endpoint's id: 1 to 64 characters of `[A-Za-z0-9_-]`.
    pub fn registered(id: &str) -> Result<Self, String> {
        let ok =
            (1..=64).contains(&id.len()) && id.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_' || c == b'-');
        if ok {
            Ok(Self(id.to_owned()))
        } else {
            // Not quoted: it may be a URL with a token.
            Err(format!(
                "`endpoint` must be 1 to 64 characters of A-Z a-z 0-9 _ -, this one has {} or others",
                id.chars().count()
            ))
        }
    }

    /// The key of an inline URL: 128 bits of the hash of its normal form, so that a record holds no URL.
    pub fn inline(url: &url::Url) -> Self {
        Self(format!("url:{}", &sha256_hex(url.as_str().as_bytes())[..32]))
    }

    /// Accepts either form, as it stands in records, wake-ups and operator actions.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.strip_prefix("url:") {
            Some(hash) if hash.len() == 32 && hash.bytes().all(|c| c.is_ascii_hexdigit()) => Ok(Self(text.to_owned())),
            Some(_) => Err("`endpoint` is no endpoint key: `url:` is followed by 32 hex digits".to_owned()),
            None => Self::registered(text),
        }
    }

    /// True for the key of an inline URL.
    pub fn is_inline(&self) -> bool {
        self.0.starts_with("url:")
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whose health, holds and limits a delivery shares: the endpoint's id, or the origin of an inline URL.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StateKey(String);

impl StateKey {
    /// The state key of a registered endpoint is its id.
    pub fn registered(endpoint: &EndpointKey) -> Self {
        Self(endpoint.0.clone())
    }

    /// The state key of an inline URL: all URLs of one origin share their health.
    pub fn inline(url: &url::Url) -> Self {
        Self(format!("url:{}", &sha256_hex(origin(url).as_bytes())[..32]))
    }

    /// Takes the text as it stands in a record.
    pub fn stored(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// True for the origin of inline URLs.
    pub fn is_inline(&self) -> bool {
        self.0.starts_with("url:")
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The origin of a URL, as holds, limits and derived secrets know it: a dot at the end of the host names the same host.
pub fn origin(url: &url::Url) -> String {
    let mut url = url.clone();
    if let Some(bare) = url.host_str().and_then(|host| host.strip_suffix('.')).map(ToOwned::to_owned) {
        // What cannot be a host stays as it is.
        let _ = url.set_host(Some(&bare));
    }
    url.origin().ascii_serialization()
}

/// The duty to bring one event to one endpoint.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeliveryKey {
    /// The producer's event id.
    pub event: EventId,
    /// Where it goes.
    pub endpoint: EndpointKey,
}

impl DeliveryKey {
    /// Reads both parts from text.
    pub fn parse(event: &str, endpoint: &str) -> Result<Self, String> {
        Ok(Self { event: EventId::parse(event)?, endpoint: EndpointKey::parse(endpoint)? })
    }

    /// Stable shard numbers of this delivery, in the `work` and in the `by_endpoint` index.
    pub fn shards(&self) -> (u8, u8) {
        let digest = Sha256::digest(self.to_string().as_bytes());
        (digest[0] % SHARDS, digest[1] % ENDPOINT_SHARDS)
    }
}

macro_rules! text_forms {
    ($($type:ident),+) => {$(
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str(&self.0) }
        }
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str(&self.0) }
        }
    )+};
}
text_forms!(EventId, EndpointKey, StateKey);

impl fmt::Display for DeliveryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.event, self.endpoint)
    }
}

impl fmt::Debug for DeliveryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shards_of_a_delivery_never_change() {
        // The first bytes of SHA-256 of `e1#p1` are 101 and 177; what is stored lies there.
        assert_eq!(DeliveryKey::parse("e1", "p1").unwrap().shards(), (101 % 16, 177 % 4));
    }

    #[test]
    fn a_key_is_shown_as_it_is_written() {
        let key = DeliveryKey::parse("e1", "p1").unwrap();
        assert_eq!((key.to_string(), format!("{key:?}")), ("e1#p1".to_owned(), "e1#p1".to_owned()));
    }

    #[test]
    fn an_event_id_is_what_the_contract_says() {
        for good in ["evt_01J8", "a", "A:z@0+=~-_", &"x".repeat(256)] {
            assert_eq!(EventId::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", "a.b", "a b", "a#b", "a/b", "é", "a\nX-Evil: 1", &"x".repeat(257)] {
            assert!(EventId::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_endpoint_key_is_an_id_or_a_hash() {
        assert!(EndpointKey::parse("ep_partner-A").is_ok());
        assert!(EndpointKey::registered("url:00112233445566778899aabbccddeeff").is_err());
        assert!(EndpointKey::parse("url:00112233445566778899aabbccddeeff").unwrap().is_inline());
        for bad in ["", "url:", "url:xyz", "a b", "a:b", &"e".repeat(65)] {
            assert!(EndpointKey::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn inline_urls_share_state_per_origin_and_differ_by_key() {
        let [a, b] = ["https://h.example/x?k=1", "https://h.example/y"].map(|u| url::Url::parse(u).unwrap());
        assert_eq!(StateKey::inline(&a), StateKey::inline(&b));
        assert_ne!(EndpointKey::inline(&a), EndpointKey::inline(&b));
    }

    #[test]
    fn a_dot_at_the_end_of_a_host_is_no_way_out_of_a_pause() {
        let state = |text: &str| StateKey::inline(&url::Url::parse(text).unwrap());
        assert_eq!(state("https://h.example./x"), state("https://h.example/x"));
        assert_eq!(state("https://h.example.:8443/"), state("https://h.example:8443/"));
        assert_ne!(state("https://h.example.:8443/"), state("https://h.example/"));
        assert_eq!(origin(&url::Url::parse("https://127.0.0.1/").unwrap()), "https://127.0.0.1");
    }

    #[test]
    fn two_deliveries_never_share_a_key() {
        let key = |e, p| DeliveryKey::parse(e, p).unwrap().to_string();
        assert_ne!(key("a", "bc"), key("ab", "c"));
    }
}
