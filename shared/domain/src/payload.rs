//! What is sent: the bytes that came in, untouched, with their content type and extra headers.

use sha2::{Digest, Sha256};

use crate::id::hex;

/// The immutable content of a delivery.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload {
    /// Exactly the bytes that are signed and sent.
    pub body: Vec<u8>,
    /// The `content-type` header.
    pub content_type: String,
    /// Extra headers from the message: lower-case names, sorted.
    pub headers: Vec<(String, String)>,
    /// The inline URL, when the message named one instead of an endpoint. Kept here so that no record holds a URL.
    pub url: Option<String>,
}

impl Payload {
    /// Identity of the content: body, content type and headers. The URL is part of the delivery's key, the times are not
    /// part of the content. Every part is preceded by its length, so that no two contents run together.
    pub fn hash(&self) -> String {
        let mut sha = Sha256::new();
        let mut part = |bytes: &[u8]| {
            sha.update((bytes.len() as u64).to_be_bytes());
            sha.update(bytes);
        };
        part(self.content_type.as_bytes());
        for (name, value) in &self.headers {
            part(name.as_bytes());
            part(value.as_bytes());
        }
        part(&self.body);
        hex(&sha.finalize()[..16])
    }
}

impl std::fmt::Debug for Payload {
    /// Says how much there is, never what.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Payload({} bytes, {} headers)", self.body.len(), self.headers.len())
    }
}

/// What a record knows of its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayloadRef {
    /// [`Payload::hash`].
    pub hash: String,
    /// Length of the body in bytes.
    pub bytes: u64,
}

impl From<&Payload> for PayloadRef {
    fn from(payload: &Payload) -> Self {
        Self { hash: payload.hash(), bytes: payload.body.len() as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_shows_how_much_it_is_and_never_what() {
        let headers = vec![("x-a".into(), "secret".into())];
        let payload = Payload { body: b"secret".to_vec(), content_type: "text/plain".into(), headers, url: None };
        assert_eq!(format!("{payload:?}"), "Payload(6 bytes, 1 headers)");
    }

    #[test]
    fn the_hash_covers_body_type_and_headers_and_nothing_runs_together() {
        let base = Payload { body: b"ab".to_vec(), content_type: "c".into(), headers: vec![], url: None };
        let with = |f: &dyn Fn(&mut Payload)| {
            let mut p = base.clone();
            f(&mut p);
            p.hash()
        };
        let variants = [
            base.hash(),
            with(&|p| p.body = b"a".to_vec()),
            with(&|p| p.content_type = "ca".into()),
            with(&|p| (p.body, p.content_type) = (b"b".to_vec(), "ca".into())),
            with(&|p| p.headers = vec![("x".into(), "1".into())]),
            with(&|p| p.headers = vec![("x1".into(), String::new())]),
        ];
        for (i, a) in variants.iter().enumerate() {
            assert_eq!(variants.iter().filter(|b| *b == a).count(), 1, "variant {i}");
        }
        assert_eq!(base.hash(), with(&|p| p.url = Some("https://h.example/".into())));
    }
}
