//! Why a receiver does not accept a signature: the mistakes that people make, tried one by one, in the order of how often
//! they are made. It answers an operator who has what the receiver saw, and never decides about a request.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};

use crate::name::named;
use crate::restyle::restyled;
use crate::signature::{PublicKey, Scheme, Secret};
use crate::time::{Millis, SECOND_MS};

/// Receivers accept a timestamp that differs from their clock by so many seconds (Standard Webhooks, "Verifying").
pub const TOLERANCE_SECONDS: i64 = 300;

/// Seconds since the epoch stay below this for three thousand years; milliseconds have passed it long ago.
const MILLISECONDS_FROM: i64 = 100_000_000_000;

named! {
    /// What is wrong with a request, as the receiver presented it.
    pub enum Fault {
        /// The timestamp is no number.
        TimestampUnreadable => "timestamp_unreadable",
        /// Older than receivers accept.
        TimestampTooOld => "timestamp_too_old",
        /// Further in the future than receivers accept.
        TimestampTooNew => "timestamp_too_new",
        /// Milliseconds, where the signed text has seconds.
        TimestampInMilliseconds => "timestamp_in_milliseconds",
        /// Another id was signed.
        IdDiffers => "id_differs",
        /// The same JSON, but other bytes.
        BodyReserialised => "body_reserialised",
        /// A line end after the body was added or lost.
        TrailingNewline => "trailing_newline",
        /// CRLF in place of LF, or the other way round.
        LineEnds => "line_ends",
        /// The secret was used as text, and not decoded.
        SecretAsText => "secret_as_text",
        /// Made with a secret that was retired by then.
        SecretRetired => "secret_retired",
        /// Made with a secret of another endpoint.
        OtherEndpoint => "other_endpoint",
        /// Hexadecimal, another base64, or without the scheme.
        SignatureEncoding => "signature_encoding",
        /// A scheme that is not known, or for which there is no key here.
        UnknownScheme => "unknown_scheme",
        /// None of these.
        NoMatch => "no_match",
    }
}

/// A fault, and a sentence about it that repeats no secret and no body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is.
    pub fault: Fault,
    /// What it means here, and what to do.
    pub detail: String,
}

/// What the receiver saw.
#[derive(Clone, Copy)]
pub struct Presented<'a> {
    /// `webhook-id`.
    pub id: &'a str,
    /// `webhook-timestamp`.
    pub timestamp: &'a str,
    /// `webhook-signature`.
    pub signatures: &'a str,
    /// The bytes of the body.
    pub body: &'a [u8],
}

/// A key to try.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// What to call it.
    pub name: String,
    /// The key.
    pub key: Key,
    /// Not from here on.
    pub retired_at: Option<Millis>,
    /// It belongs to another endpoint than the one asked about.
    pub other: bool,
}

/// What verifies a signature.
#[derive(Clone, Debug)]
pub enum Key {
    /// A secret, of either scheme.
    Secret(Secret),
    /// The public half of a `v1a` key.
    Public(PublicKey),
}

impl Key {
    /// The scheme of the signatures that it verifies.
    pub const fn scheme(&self) -> Scheme {
        match self {
            Self::Secret(secret) => secret.scheme(),
            Self::Public(_) => Scheme::V1a,
        }
    }

    fn verifies(&self, signature: &str, id: &str, timestamp: i64, body: &[u8]) -> bool {
        match self {
            Self::Secret(secret) => secret.sign(id, timestamp, body) == signature,
            Self::Public(key) => key.verifies(signature, id, timestamp, body),
        }
    }
}

/// The answer.
#[derive(Clone, Debug)]
pub struct Diagnosis {
    /// The key that made the signature, and its scheme, when one was found.
    pub by: Option<(String, Scheme)>,
    /// What is wrong; nothing: the signature is valid.
    pub findings: Vec<Finding>,
}

impl Diagnosis {
    /// True when a receiver would accept it.
    pub fn is_valid(&self) -> bool {
        self.findings.is_empty()
    }

    fn found(&mut self, fault: Fault, detail: impl Into<String>) {
        self.findings.push(Finding { fault, detail: detail.into() });
    }
}

/// Looks for the key, and for what is wrong. `now` is the receiver's clock; `None`: timestamps of any age are accepted.
pub fn diagnose(presented: &Presented<'_>, candidates: &[Candidate], now: Option<Millis>) -> Diagnosis {
    let mut diagnosis = Diagnosis { by: None, findings: Vec::new() };
    let Some(given) = read_timestamp(presented.timestamp) else {
        diagnosis.found(
            Fault::TimestampUnreadable,
            "`webhook-timestamp` must be whole seconds since 1970, in digits alone: its text is signed as it stands",
        );
        return diagnosis;
    };
    let in_milliseconds = given >= MILLISECONDS_FROM;
    let timestamp = if in_milliseconds { given.div_euclid(SECOND_MS) } else { given };
    if let Some(now) = now {
        let age = now.seconds().saturating_sub(timestamp);
        if age > TOLERANCE_SECONDS {
            diagnosis.found(Fault::TimestampTooOld, format!("the timestamp is {age} s old, receivers accept {TOLERANCE_SECONDS} s: an old request, or the receiver's clock is ahead"));
        } else if age < -TOLERANCE_SECONDS {
            diagnosis.found(Fault::TimestampTooNew, format!("the timestamp is {} s in the future, receivers accept {TOLERANCE_SECONDS} s: the receiver's clock is behind", age.saturating_neg()));
        }
    }
    let look = Look { presented, timestamp, signatures: read_signatures(presented.signatures) };
    // Our own keys first: a match there says more than one elsewhere.
    if let Some(by) = look.straight(candidates, false) {
        if in_milliseconds {
            diagnosis.found(Fault::TimestampInMilliseconds, "the timestamp is in milliseconds; seconds were signed");
        }
        look.note_encoding(&mut diagnosis);
        look.note_retired(by, &mut diagnosis);
        diagnosis.by = Some((by.name.clone(), by.key.scheme()));
    } else if let Some((by, finding)) = look.twisted(candidates) {
        if in_milliseconds {
            diagnosis.found(Fault::TimestampInMilliseconds, "the timestamp is in milliseconds; seconds were signed");
        }
        diagnosis.findings.push(finding);
        diagnosis.by = Some((by.name.clone(), by.key.scheme()));
    } else if let Some(by) = look.straight(candidates, true) {
        let detail =
            format!("made with {}: the receiver has the secret of one endpoint and the URL of another", by.name);
        diagnosis.found(Fault::OtherEndpoint, detail);
        diagnosis.by = Some((by.name.clone(), by.key.scheme()));
    } else {
        look.nothing(candidates, &mut diagnosis);
    }
    diagnosis
}

/// Digits without a sign or zeros before them: receivers sign the text, and no other text of this number was signed. More
/// than fits is as late as can be.
fn read_timestamp(text: &str) -> Option<i64> {
    let digits = text.trim_ascii();
    let plain = digits.bytes().all(|c| c.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    (plain && !digits.is_empty()).then(|| digits.parse().unwrap_or(i64::MAX))
}

/// One signature of the header: in its canonical form, and what was wrong with the form it came in.
struct Read {
    canonical: String,
    encoding: Option<&'static str>,
}

struct Look<'a> {
    presented: &'a Presented<'a>,
    timestamp: i64,
    signatures: Vec<Read>,
}

impl Look<'_> {
    fn matching<'c>(
        &self,
        mut keys: impl Iterator<Item = &'c Candidate>,
        id: &str,
        body: &[u8],
    ) -> Option<&'c Candidate> {
        keys.find(|c| self.signatures.iter().any(|s| c.key.verifies(&s.canonical, id, self.timestamp, body)))
    }

    fn straight<'c>(&self, candidates: &'c [Candidate], other: bool) -> Option<&'c Candidate> {
        let keys = candidates.iter().filter(|c| c.other == other);
        self.matching(keys, self.presented.id, self.presented.body)
    }

    /// Own keys, with one thing changed.
    fn twisted<'c>(&self, candidates: &'c [Candidate]) -> Option<(&'c Candidate, Finding)> {
        let own = || candidates.iter().filter(|c| !c.other);
        let (id, body) = (self.presented.id, self.presented.body);
        let finding = |fault, detail: String| Finding { fault, detail };
        for (other, what) in other_ids(id, body) {
            if let Some(by) = self.matching(own(), &other, body) {
                let detail = format!("another id was signed, {what}: use the `webhook-id` header as it comes");
                return Some((by, finding(Fault::IdDiffers, detail)));
            }
        }
        for (style, other) in restyled(body) {
            if let Some(by) = self.matching(own(), id, &other) {
                let detail = format!(
                    "the body is the same JSON in other bytes: what was signed is written {style}; verify the raw bytes, before anything parses them"
                );
                return Some((by, finding(Fault::BodyReserialised, detail)));
            }
        }
        for (other, what) in other_ends(body) {
            if let Some(by) = self.matching(own(), id, &other) {
                let detail = format!("{what}; verify the raw bytes, to the last one");
                return Some((by, finding(Fault::TrailingNewline, detail)));
            }
        }
        for (other, what) in other_line_ends(body) {
            if let Some(by) = self.matching(own(), id, &other) {
                return Some((
                    by,
                    finding(Fault::LineEnds, format!("{what}: something on the way treats the body as text")),
                ));
            }
        }
        own().find_map(|by| {
            let Key::Secret(secret) = &by.key else { return None };
            let as_text =
                secret.misread().into_iter().map(|secret| Candidate { key: Key::Secret(secret), ..by.clone() });
            let as_text: Vec<Candidate> = as_text.collect();
            self.matching(as_text.iter(), id, body)?;
            let detail = "the secret was used as text: the key is what its base64 part decodes to, without `whsec_`";
            Some((by, finding(Fault::SecretAsText, detail.to_owned())))
        })
    }

    fn note_encoding(&self, diagnosis: &mut Diagnosis) {
        let wrong: Option<Vec<&str>> = self.signatures.iter().map(|s| s.encoding).collect();
        if let Some(what) = wrong.and_then(|all| all.first().copied()) {
            diagnosis.found(
                Fault::SignatureEncoding,
                format!("the signature is {what}: it must be the scheme, a comma, and standard base64"),
            );
        }
    }

    fn note_retired(&self, by: &Candidate, diagnosis: &mut Diagnosis) {
        if let Some(at) = by.retired_at.filter(|at| self.timestamp.saturating_mul(SECOND_MS) >= at.0) {
            diagnosis.found(
                Fault::SecretRetired,
                format!("made with a secret that retired at {at}: give the receiver the current one"),
            );
        }
    }

    fn nothing(&self, candidates: &[Candidate], diagnosis: &mut Diagnosis) {
        let mut own = candidates.iter().filter(|c| !c.other);
        if self.signatures.is_empty() {
            diagnosis.found(Fault::UnknownScheme, "`webhook-signature` holds no signature of a known scheme: it is `v1,` or `v1a,` and base64, several divided by blanks");
        } else if !own.any(|c| self.signatures.iter().any(|s| s.canonical.starts_with(&format!("{},", c.key.scheme()))))
        {
            diagnosis
                .found(Fault::UnknownScheme, "none of these signatures is of a scheme that there is a key for here");
        } else {
            diagnosis.found(Fault::NoMatch, "none of the keys made any of these signatures over these bytes: another secret, or the body was parsed and written again; verify the raw bytes");
        }
    }
}

fn read_signatures(header: &str) -> Vec<Read> {
    header.split_ascii_whitespace().filter_map(read_signature).collect()
}

fn read_signature(text: &str) -> Option<Read> {
    let (scheme, encoded, mut encoding) = match text.split_once(',') {
        Some((scheme, encoded)) => (Scheme::from_name(scheme)?, encoded, None),
        None => (Scheme::V1, text, Some("without its scheme")),
    };
    let hex = || {
        let even = encoded.len() == 64 && encoded.bytes().all(|c| c.is_ascii_hexdigit());
        let byte = |i: usize| u8::from_str_radix(&encoded[i..i + 2], 16).ok();
        even.then(|| (0..encoded.len()).step_by(2).map_while(byte).collect::<Vec<u8>>())
    };
    let bytes = if let Some(bytes) = hex() {
        encoding = Some("hexadecimal");
        bytes
    } else if let Ok(bytes) = STANDARD.decode(encoded) {
        bytes
    } else {
        encoding = Some("another base64");
        [STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD].iter().find_map(|engine| engine.decode(encoded).ok())?
    };
    // A text without a scheme must at least have the length of a signature.
    if encoding == Some("without its scheme") && bytes.len() != 32 {
        return None;
    }
    Some(Read { canonical: format!("{scheme},{}", STANDARD.encode(bytes)), encoding })
}

fn other_ids(id: &str, body: &[u8]) -> Vec<(String, &'static str)> {
    let bare = id.trim().trim_matches(['"', '\'']);
    let mut ids = vec![
        (bare.to_owned(), "the same without blanks and quotes"),
        (id.to_ascii_lowercase(), "the same in lower case"),
        (String::new(), "an empty one"),
    ];
    let of_body = serde_json::from_slice::<serde_json::Value>(body)
        .ok()
        .and_then(|v| v.get("id")?.as_str().map(ToOwned::to_owned));
    ids.extend(of_body.map(|id| (id, "the `id` inside of the body")));
    ids.retain(|(other, _)| other != id);
    ids
}

fn other_ends(body: &[u8]) -> Vec<(Vec<u8>, &'static str)> {
    let with = |end: &[u8]| [body, end].concat();
    let lost = "a line end at the end of the body was lost";
    let added = "a line end was added to the body";
    let mut ends = vec![(with(b"\n"), lost), (with(b"\r\n"), lost)];
    for end in [b"\r\n".as_slice(), b"\n"] {
        ends.extend(body.strip_suffix(end).map(|shorter| (shorter.to_vec(), added)));
    }
    ends
}

fn other_line_ends(body: &[u8]) -> Vec<(Vec<u8>, &'static str)> {
    let Ok(text) = std::str::from_utf8(body) else { return Vec::new() };
    let lf = text.replace("\r\n", "\n");
    let crlf = lf.replace('\n', "\r\n");
    let mut all = vec![(lf, "line ends became CRLF; LF was signed"), (crlf, "line ends became LF; CRLF was signed")];
    all.retain(|(other, _)| other != text);
    all.into_iter().map(|(other, what)| (other.into_bytes(), what)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use zeroize::Zeroizing;

    const NOW: Millis = Millis(1_700_000_000_000);
    const BODY: &[u8] = b"{\"id\": \"inner\",\n \"total\": 117.630, \"to\": \"Zo\xc3\xab\"}\n";

    fn secret(byte: u8) -> Secret {
        Secret::new(Scheme::V1, &Zeroizing::new([byte; 32]))
    }

    fn candidate(secret: Secret) -> Candidate {
        Candidate { name: "current".to_owned(), key: Key::Secret(secret), retired_at: None, other: false }
    }

    fn faults(id: &str, timestamp: &str, signatures: &str, body: &[u8], keys: &[Candidate]) -> Vec<Fault> {
        let diagnosis = diagnose(&Presented { id, timestamp, signatures, body }, keys, Some(NOW));
        diagnosis.findings.iter().map(|f| f.fault).collect()
    }

    fn seen(id: &str, timestamp: i64, signature: &str, body: &[u8]) -> Vec<Fault> {
        faults(id, &timestamp.to_string(), signature, body, &[candidate(secret(1))])
    }

    #[test]
    fn what_looks_like_hexadecimal_in_part_is_not_taken_for_it() {
        let encoding = |text: &str| read_signatures(&format!("v1,{text}"))[0].encoding;
        assert_eq!(encoding(&"e".repeat(64)), Some("hexadecimal"));
        assert_eq!(encoding(&"x".repeat(64)), None, "as long, and base64");
        assert_eq!(encoding(&"A".repeat(43)), Some("another base64"), "the same digits, and shorter");
    }

    #[test]
    fn a_signature_of_either_scheme_is_valid_and_its_key_is_named() {
        let pair = Secret::new(Scheme::V1a, &Zeroizing::new([5; 32]));
        let public = Candidate { key: Key::Public(pair.public_key().unwrap()), ..candidate(secret(1)) };
        for (key, signer) in
            [(candidate(secret(1)), secret(1)), (candidate(pair.clone()), pair.clone()), (public, pair)]
        {
            let signature = format!("v2,x v1,AAAA {}", signer.sign("e", NOW.seconds(), BODY));
            let timestamp = NOW.seconds().to_string();
            let presented = Presented { id: "e", timestamp: &timestamp, signatures: &signature, body: BODY };
            let diagnosis = diagnose(&presented, &[key], Some(NOW));
            assert!(diagnosis.is_valid(), "{diagnosis:?}");
            assert_eq!(diagnosis.by, Some(("current".to_owned(), signer.scheme())));
        }
    }

    #[test]
    fn the_clock_is_judged_apart_from_the_signature() {
        for (seconds, expected) in [
            (0, vec![]),
            (300, vec![]),
            (301, vec![Fault::TimestampTooOld]),
            (-300, vec![]),
            (-301, vec![Fault::TimestampTooNew]),
        ] {
            let at = NOW.seconds() - seconds;
            assert_eq!(seen("e", at, &secret(1).sign("e", at, BODY), BODY), expected, "{seconds}");
        }
        let (old, keys) = (secret(1).sign("e", 1, BODY), [candidate(secret(1))]);
        let presented = Presented { id: "e", timestamp: "1", signatures: &old, body: BODY };
        assert!(diagnose(&presented, &keys, None).is_valid(), "no tolerance asked for");
        assert_eq!(seen("e", 2, &old, BODY), [Fault::TimestampTooOld, Fault::NoMatch]);
        assert_eq!(faults("e", "soon", &old, BODY, &keys), [Fault::TimestampUnreadable]);
        let good = secret(1).sign("e", NOW.seconds(), BODY);
        for other in
            ["+1700000000", "01700000000", "-9223372036854775808", "-1", "", "1700000000.0", "１７００００００００"]
        {
            assert_eq!(faults("e", other, &good, BODY, &keys), [Fault::TimestampUnreadable], "{other}");
        }
        for late in ["9223372036854775807", "99999999999999999999"] {
            assert_eq!(faults("e", late, &good, BODY, &keys), [Fault::TimestampTooNew, Fault::NoMatch], "{late}");
        }
        assert_eq!(faults("e", " 1700000000\t", &good, BODY, &keys), [], "white space is no part of a header's value");
    }

    #[test]
    fn every_common_mistake_is_told_by_name() {
        let now = NOW.seconds();
        let good = secret(1).sign("e", now, BODY);
        let text = std::str::from_utf8(BODY).unwrap();
        let compact = "{\"id\":\"inner\",\"total\":117.630,\"to\":\"Zoë\"}".as_bytes();
        let hex = crate::id::hex(&STANDARD.decode(&good[3..]).unwrap());
        let as_text = |skipped: usize| {
            let text = &secret(1).expose()[skipped..];
            Secret::parse(&STANDARD.encode(text)).unwrap().sign("e", now, BODY)
        };
        for (id, timestamp, signature, body, fault) in [
            ("e", now * 1_000 + 7, &good, BODY, Fault::TimestampInMilliseconds),
            (" \"e\" ", now, &good, BODY, Fault::IdDiffers),
            ("E", now, &good, BODY, Fault::IdDiffers),
            ("outer", now, &secret(1).sign("inner", now, BODY), BODY, Fault::IdDiffers),
            ("e", now, &secret(1).sign("e", now, compact), BODY, Fault::BodyReserialised),
            ("e", now, &good, &BODY[..BODY.len() - 1], Fault::TrailingNewline),
            ("e", now, &good, &[BODY, b"\n"].concat(), Fault::TrailingNewline),
            ("e", now, &good, text.replace('\n', "\r\n").as_bytes(), Fault::LineEnds),
            ("e", now, &as_text(0), BODY, Fault::SecretAsText),
            ("e", now, &as_text("whsec_".len()), BODY, Fault::SecretAsText),
            ("e", now, &good[3..].to_owned(), BODY, Fault::SignatureEncoding),
            ("e", now, &format!("v1,{hex}"), BODY, Fault::SignatureEncoding),
            ("e", now, &hex, BODY, Fault::SignatureEncoding),
            ("e", now, &good.trim_end_matches('=').to_owned(), BODY, Fault::SignatureEncoding),
            ("e", now, &format!("sha256={hex}"), BODY, Fault::UnknownScheme),
            ("e", now, &"v1a,AAAA".to_owned(), BODY, Fault::UnknownScheme),
            ("e", now, &String::new(), BODY, Fault::UnknownScheme),
            ("e", now, &secret(2).sign("e", now, BODY), BODY, Fault::NoMatch),
        ] {
            assert_eq!(seen(id, timestamp, signature, body), [fault], "{id} {timestamp} {signature}");
        }
    }

    #[test]
    fn a_retired_secret_counts_only_from_the_time_it_retired() {
        let at = NOW.seconds();
        let signature = secret(2).sign("e", at, BODY);
        for (retired, expected) in [(NOW.plus(1), vec![]), (NOW, vec![Fault::SecretRetired])] {
            let keys = [candidate(secret(1)), Candidate { retired_at: Some(retired), ..candidate(secret(2)) }];
            assert_eq!(faults("e", &at.to_string(), &signature, BODY, &keys), expected, "{retired}");
        }
    }

    #[test]
    fn a_secret_of_another_endpoint_is_found_last() {
        let at = NOW.seconds();
        let other = Candidate { name: "ep_b".to_owned(), other: true, ..candidate(secret(2)) };
        let keys = [candidate(secret(1)), other];
        assert_eq!(faults("e", &at.to_string(), &secret(2).sign("e", at, BODY), BODY, &keys), [Fault::OtherEndpoint]);
        assert!(faults("e", &at.to_string(), &secret(1).sign("e", at, BODY), BODY, &keys).is_empty());
    }

    proptest::proptest! {
        #[test]
        fn no_input_makes_it_panic_or_valid(id in ".{0,8}", timestamp in ".{0,14}", signatures in ".{0,90}", body in ".{0,30}") {
            let presented = Presented { id: &id, timestamp: &timestamp, signatures: &signatures, body: body.as_bytes() };
            proptest::prop_assert!(!diagnose(&presented, &[candidate(secret(1))], None).is_valid());
        }
    }
}
