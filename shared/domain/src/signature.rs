//! Standard Webhooks 1.0 signatures, symmetric scheme `v1`: HMAC-SHA256 over `id.timestamp.body`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// A signing key. Its bytes never reach a log: there is no way to print them.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Reads `whsec_` (optional) and standard base64 of 24 to 64 bytes; white space around it is ignored.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim_ascii();
        let key = STANDARD
            .decode(text.strip_prefix("whsec_").unwrap_or(text))
            .map_err(|_| "a secret is `whsec_` and standard base64 with padding".to_owned())?;
        if (24..=64).contains(&key.len()) {
            Ok(Self(key))
        } else {
            Err(format!("a secret holds 24 to 64 bytes, this one {}", key.len()))
        }
    }

    /// The value of `webhook-signature` for one attempt.
    pub fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    #[test]
    fn the_known_vector() {
        let body = br#"{"w":136.0, "f":117.63331139400017}"#;
        let expected = "v1,3wJ4RTcZj/hhI2JQZRROA8tW9zFgZsvm3xK786J8GEQ=";
        for spelling in [SECRET, &SECRET[6..], &format!(" {SECRET}\n")] {
            assert_eq!(Secret::parse(spelling).unwrap().sign("msg_a1", 1_700_000_000, body), expected);
        }
    }

    #[test]
    fn weak_or_unreadable_secrets_are_refused() {
        for bad in [
            "",
            "whsec_",
            "whsec_AAECAwQFBgcICQ==",
            "not base64!",
            &SECRET[..SECRET.len() - 1],
            "whsec_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_",
        ] {
            assert!(Secret::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(format!("{:?}", Secret::parse(SECRET).unwrap()), "Secret(…)");
    }
}
