//! Keys and signatures as texts.

use domain::diagnosis::{Candidate, Key, Presented, diagnose};
use domain::signature::{PublicKey, Scheme, Secret};
use domain::time::Millis;
use zeroize::Zeroizing;

const TIMESTAMP: i64 = 1_700_000_000;

/// A key comes back from its own text, its halves agree, and no other text passes for a signature. The input is a line each
/// of: a key, a signature, an id; then the body.
pub fn signature(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.splitn(4, '\n');
    let mut line = || lines.next().unwrap_or_default();
    let (key, signature, id, body) = (line(), line(), line(), line().as_bytes());
    match Secret::parse(key) {
        Ok(secret) => {
            assert!(!format!("{secret:?}").contains(key.trim_ascii()), "a key has no way into a log");
            of_one_key(&secret, signature, id, body);
        }
        Err(problem) => assert!(problem.len() < 100, "{problem}"),
    }
    if let Ok(public) = PublicKey::parse(key) {
        assert_eq!(PublicKey::parse(&public.to_string()), Ok(public.clone()));
        // Whose other half nobody has.
        assert!(!public.verifies(signature, id, TIMESTAMP, body));
    }
    diagnosed(key, signature, id, body);
    let mut seed = Zeroizing::new([0; 32]);
    seed.iter_mut().zip(data).for_each(|(to, from)| *to = *from);
    for scheme in Scheme::ALL {
        let secret = Secret::new(*scheme, &seed);
        of_one_key(&secret, signature, id, body);
        of_one_key(&secret.for_origin(*scheme, key), signature, id, body);
    }
}

/// Whatever a receiver shows, the diagnosis ends; a signature over other bytes is never valid. The line of the key is a
/// timestamp here.
fn diagnosed(timestamp: &str, signatures: &str, id: &str, body: &[u8]) {
    let secret = Secret::new(Scheme::V1, &Zeroizing::new([9; 32]));
    let candidate = |key| Candidate { name: "k".to_owned(), key, retired_at: Some(Millis(i64::MAX)), other: false };
    let keys = [candidate(Key::Secret(secret.clone()))];
    for now in [None, Some(Millis(i64::MIN)), Some(Millis(i64::MAX)), Some(Millis(0))] {
        let found = diagnose(&Presented { id, timestamp, signatures, body }, &keys, now);
        assert!(!found.is_valid() && !found.findings.is_empty(), "nobody signed this: {found:?}");
        let own = secret.sign(id, TIMESTAMP, body);
        let spelt = Presented { id, timestamp, signatures: &own, body };
        let same = timestamp.trim_ascii() == TIMESTAMP.to_string();
        assert_eq!(diagnose(&spelt, &keys, None).is_valid(), same, "{timestamp:?} was not signed");
    }
}

fn of_one_key(secret: &Secret, signature: &str, id: &str, body: &[u8]) {
    let again = Secret::parse(&secret.expose()).expect("what was exposed can be read");
    assert_eq!((again.scheme(), &*again.expose()), (secret.scheme(), &*secret.expose()));
    let own = secret.sign(id, TIMESTAMP, body);
    assert_eq!(again.sign(id, TIMESTAMP, body), own);
    assert!(!own.contains(' '), "blanks stand between signatures: {own}");
    let Some(public) = secret.public_key() else { return };
    assert!(public.verifies(&own, id, TIMESTAMP, body));
    assert!(!public.verifies(&own, id, TIMESTAMP + 1, body));
    assert_eq!(public.verifies(signature, id, TIMESTAMP, body), signature == own, "{signature}");
}
