//! Standard Webhooks 1.0 signatures over `id.timestamp.body`: `v1` is HMAC-SHA256, `v1a` is ed25519.
//!
//! Key material is decoded once, never used as text, wiped when it is dropped, and has no way into a log: `Debug` says
//! only which scheme a key belongs to.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::{Zeroize, Zeroizing};

use crate::name::named;

named! {
    /// A signature scheme of Standard Webhooks.
    pub enum Scheme {
        /// Symmetric: HMAC-SHA256 with a secret that sender and receiver share (`whsec_…`).
        V1 => "v1",
        /// Asymmetric: ed25519; the receiver knows only the public key (`whpk_…`).
        V1a => "v1a",
    }
}

/// The fewest bytes of a `v1` secret.
pub const SECRET_MIN: usize = 24;
/// The most bytes of a `v1` secret.
pub const SECRET_MAX: usize = 64;

const SYMMETRIC: &str = "whsec_";
const PRIVATE: &str = "whsk_";
const PUBLIC: &str = "whpk_";

/// A signing key.
#[derive(Clone)]
pub struct Secret(Key);

#[derive(Clone)]
enum Key {
    Hmac(Zeroizing<Vec<u8>>),
    Ed25519(Box<SigningKey>),
}

impl Secret {
    /// Reads a `v1` secret, `whsec_` (which may be missing) and standard base64 of 24 to 64 bytes, or a `v1a` key,
    /// `whsk_` and standard base64 of the 32-byte seed or of seed and public key together. White space around it is
    /// ignored; padding is required. The error repeats nothing of the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim_ascii();
        if text.starts_with(PUBLIC) {
            return Err("this is a public key; a signing key begins with `whsec_` or `whsk_`".to_owned());
        }
        let (scheme, encoded) = match text.strip_prefix(PRIVATE) {
            Some(encoded) => (Scheme::V1a, encoded),
            None => (Scheme::V1, text.strip_prefix(SYMMETRIC).unwrap_or(text)),
        };
        let bytes = Zeroizing::new(
            STANDARD
                .decode(encoded)
                .map_err(|_| "a secret is `whsec_` or `whsk_` and standard base64 with padding".to_owned())?,
        );
        match scheme {
            Scheme::V1 if (SECRET_MIN..=SECRET_MAX).contains(&bytes.len()) => Ok(Self(Key::Hmac(bytes))),
            Scheme::V1 => {
                Err(format!("a v1 secret holds {SECRET_MIN} to {SECRET_MAX} bytes, this one {}", bytes.len()))
            }
            Scheme::V1a => {
                let key = match bytes.len() {
                    32 => bytes.as_slice().try_into().ok().map(SigningKey::from_bytes),
                    64 => bytes.as_slice().try_into().ok().and_then(|b| SigningKey::from_keypair_bytes(b).ok()),
                    other => return Err(format!("a v1a key holds 32 or 64 bytes, this one {other}")),
                };
                key.map(|key| Self(Key::Ed25519(Box::new(key))))
                    .ok_or_else(|| "the two halves of this v1a key do not belong together".to_owned())
            }
        }
    }

    /// A new key of 32 random bytes, which the caller draws.
    pub fn new(scheme: Scheme, random: &Zeroizing<[u8; 32]>) -> Self {
        Self(match scheme {
            Scheme::V1 => Key::Hmac(Zeroizing::new(random.to_vec())),
            Scheme::V1a => Key::Ed25519(Box::new(SigningKey::from_bytes(random))),
        })
    }

    /// The key for one inline origin, made from this one: nobody registered a secret for it, and a shared one would let
    /// every receiver forge for all others. A `v1a` key is the same for all origins, because nobody can forge with its
    /// public half.
    #[must_use]
    pub fn for_origin(&self, scheme: Scheme, origin: &str) -> Self {
        let mut mac = match &self.0 {
            Key::Hmac(key) => hmac(key),
            Key::Ed25519(key) => hmac(key.as_bytes()),
        };
        mac.update(b"redeliver inline ");
        mac.update(scheme.name().as_bytes());
        if scheme == Scheme::V1 {
            mac.update(b" ");
            mac.update(origin.as_bytes());
        }
        let (mut made, mut random) = (mac.finalize().into_bytes(), Zeroizing::new([0; 32]));
        random.copy_from_slice(&made);
        made.as_mut_slice().zeroize();
        Self::new(scheme, &random)
    }

    /// Which scheme it signs by.
    pub const fn scheme(&self) -> Scheme {
        match self.0 {
            Key::Hmac(_) => Scheme::V1,
            Key::Ed25519(_) => Scheme::V1a,
        }
    }

    /// One value of `webhook-signature` for one attempt: the scheme, a comma, and standard base64.
    pub fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let prefix = format!("{id}.{timestamp}.");
        match &self.0 {
            Key::Hmac(key) => {
                let mut mac = hmac(key);
                mac.update(prefix.as_bytes());
                mac.update(body);
                format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
            }
            Key::Ed25519(key) => {
                format!("v1a,{}", STANDARD.encode(key.sign(&[prefix.as_bytes(), body].concat()).to_bytes()))
            }
        }
    }

    /// The text that the registry stores and that an operator hands to the receiver, once.
    pub fn expose(&self) -> Zeroizing<String> {
        match &self.0 {
            Key::Hmac(key) => encoded(SYMMETRIC, key),
            Key::Ed25519(key) => encoded(PRIVATE, Zeroizing::new(key.to_keypair_bytes()).as_slice()),
        }
    }

    /// What a `v1` secret is mistaken for: its text, with the prefix and without, as the bytes of a key.
    pub(crate) fn misread(&self) -> Vec<Self> {
        match &self.0 {
            Key::Hmac(_) => {
                let text = self.expose();
                let without = text.strip_prefix(SYMMETRIC).unwrap_or(&text);
                [text.as_str(), without].map(|t| Self(Key::Hmac(Zeroizing::new(t.as_bytes().to_vec())))).into()
            }
            Key::Ed25519(_) => Vec::new(),
        }
    }

    /// The public half of a `v1a` key.
    pub fn public_key(&self) -> Option<PublicKey> {
        match &self.0 {
            Key::Hmac(_) => None,
            Key::Ed25519(key) => Some(PublicKey(key.verifying_key())),
        }
    }
}

/// In one allocation, so that no part of it stays behind in an outgrown one.
fn encoded(prefix: &str, key: &[u8]) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(prefix.len() + key.len().div_ceil(3) * 4));
    text.push_str(prefix);
    // Piece by piece, through a buffer of our own that is wiped.
    let mut piece = Zeroizing::new([0; 64]);
    for part in key.chunks(48) {
        let length = STANDARD.encode_slice(part, piece.as_mut_slice()).expect("48 bytes are 64 characters");
        text.push_str(std::str::from_utf8(&piece[..length]).expect("base64 is ASCII"));
    }
    text
}

fn hmac(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of any length")
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secret({})", self.scheme())
    }
}

/// The public half of a `v1a` key: enough to verify, not to sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

impl PublicKey {
    /// Reads `whpk_` and standard base64 of 32 bytes.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || "a public key is `whpk_` and standard base64 of 32 bytes".to_owned();
        let encoded = text.trim_ascii().strip_prefix(PUBLIC).ok_or_else(wrong)?;
        let bytes: [u8; 32] = STANDARD.decode(encoded).ok().and_then(|b| b.try_into().ok()).ok_or_else(wrong)?;
        VerifyingKey::from_bytes(&bytes).map(Self).map_err(|_| wrong())
    }

    /// True when `signature`, one value of `webhook-signature`, was made by the key's other half.
    pub fn verifies(&self, signature: &str, id: &str, timestamp: i64, body: &[u8]) -> bool {
        let prefix = format!("{id}.{timestamp}.");
        let decoded = signature.strip_prefix("v1a,").and_then(|encoded| STANDARD.decode(encoded).ok());
        let Some(signature) = decoded.and_then(|bytes| Signature::from_slice(&bytes).ok()) else { return false };
        self.0.verify_strict(&[prefix.as_bytes(), body].concat(), &signature).is_ok()
    }
}

impl std::fmt::Display for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{PUBLIC}{}", STANDARD.encode(self.0.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    fn seed(byte: u8) -> Zeroizing<[u8; 32]> {
        Zeroizing::new([byte; 32])
    }

    #[test]
    fn wh_o_21_the_key_is_not_the_secret_string() {
        let body = br#"{"w":136.0, "f":117.63331139400017}"#;
        let expected = "v1,3wJ4RTcZj/hhI2JQZRROA8tW9zFgZsvm3xK786J8GEQ=";
        for spelling in [SECRET, &SECRET[6..], &format!(" {SECRET}\n")] {
            assert_eq!(Secret::parse(spelling).unwrap().sign("msg_a1", 1_700_000_000, body), expected);
        }
    }

    #[test]
    fn the_vector_of_the_reference_libraries() {
        let secret = Secret::parse("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        assert_eq!(
            secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#),
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
        );
    }

    #[test]
    fn weak_or_unreadable_secrets_are_refused_without_repeating_them() {
        for bad in [
            "",
            "whsec_",
            "whsk_",
            "whsec_AAECAwQFBgcICQ==",
            "whsk_AAECAwQFBgcICQ==",
            "not base64!",
            &SECRET[..SECRET.len() - 1],
            "whsec_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_",
            "whpk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
            &format!("whsec_{}", STANDARD.encode([7; 65])),
            &format!("whsk_{}", STANDARD.encode([7; 64])),
        ] {
            let error = Secret::parse(bad).unwrap_err();
            assert!(bad.len() < 8 || !error.contains(&bad[6..]), "{bad}: {error}");
        }
    }

    #[test]
    fn a_key_comes_back_from_its_text_and_has_no_other_way_out() {
        for scheme in Scheme::ALL {
            let key = Secret::new(*scheme, &seed(9));
            let again = Secret::parse(&key.expose()).unwrap();
            assert_eq!((again.scheme(), again.sign("e", 1, b"x")), (*scheme, key.sign("e", 1, b"x")));
            assert_eq!(format!("{key:?}"), format!("Secret({scheme})"));
        }
        for length in SECRET_MIN..=SECRET_MAX {
            let text = format!("whsec_{}", STANDARD.encode(vec![3; length]));
            let exposed = Secret::parse(&text).unwrap().expose();
            assert_eq!((exposed.as_str(), exposed.capacity()), (text.as_str(), text.len()), "it never grew");
        }
        let short = format!("whsk_{}", STANDARD.encode([9; 32]));
        assert_eq!(*Secret::parse(&short).unwrap().expose(), *Secret::new(Scheme::V1a, &seed(9)).expose());
    }

    /// RFC 8032 section 7.1, test 1, over the key pair alone: its message is empty, ours never is.
    #[test]
    fn the_public_key_of_the_rfc() {
        let bytes = |hex: &str| -> Vec<u8> {
            (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
        };
        let seed = bytes("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
        let public = bytes("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
        let key = Secret::parse(&format!("whsk_{}", STANDARD.encode(seed))).unwrap();
        assert_eq!(key.public_key().unwrap().to_string(), format!("whpk_{}", STANDARD.encode(public)));
    }

    #[test]
    fn a_public_key_verifies_what_its_other_half_signed_and_nothing_else() {
        let key = Secret::new(Scheme::V1a, &seed(3));
        let public = PublicKey::parse(&key.public_key().unwrap().to_string()).unwrap();
        let signature = key.sign("e", 1, b"body");
        assert!(public.verifies(&signature, "e", 1, b"body"));
        for (signature, id, timestamp, body) in [
            (signature.as_str(), "e", 1, b"bodY"),
            (&signature, "f", 1, b"body"),
            (&signature, "e", 2, b"body"),
            (&signature[..20], "e", 1, b"body"),
            (&signature[4..], "e", 1, b"body"),
            (&Secret::new(Scheme::V1a, &seed(4)).sign("e", 1, b"body"), "e", 1, b"body"),
        ] {
            assert!(!public.verifies(signature, id, timestamp, body), "{signature} {id} {timestamp}");
        }
        for bad in ["", "whpk_", "whpk_AAAA", SECRET] {
            assert!(PublicKey::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn no_two_origins_share_a_v1_secret_and_all_share_the_v1a_key() {
        let root = Secret::new(Scheme::V1, &seed(1));
        let text = |scheme, origin: &str| root.for_origin(scheme, origin).expose().to_string();
        assert_ne!(text(Scheme::V1, "https://a.example"), text(Scheme::V1, "https://b.example"));
        assert_ne!(text(Scheme::V1, "https://a.example"), *root.expose());
        assert_eq!(text(Scheme::V1a, "https://a.example"), text(Scheme::V1a, "https://b.example"));
    }
}
