//! Keys and signatures as texts.

use domain::signature::{PublicKey, Scheme, Secret};
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
    let mut seed = Zeroizing::new([0; 32]);
    seed.iter_mut().zip(data).for_each(|(to, from)| *to = *from);
    for scheme in Scheme::ALL {
        let secret = Secret::new(*scheme, &seed);
        of_one_key(&secret, signature, id, body);
        of_one_key(&secret.for_origin(*scheme, key), signature, id, body);
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
