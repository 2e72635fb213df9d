//! Names that mean something only inside: they are refused before anybody is asked about them.

/// A name as it is compared: without the dot that may end it. The URL parser has made it lower-case ASCII.
#[must_use]
pub fn bare(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// Whether a label is empty, or there is none.
#[must_use]
pub fn is_malformed(name: &str) -> bool {
    bare(name).split('.').any(str::is_empty)
}

/// Why a name can be in no DNS, if so. Only what was asked for is judged, in the form of the URL parser: lower-case ASCII.
#[must_use]
pub fn unusable(name: &str) -> Option<&'static str> {
    let name = bare(name);
    let letter = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
    for label in name.split('.') {
        if label.is_empty() {
            return Some("must have a host name without an empty part between dots");
        }
        if label.len() > 63 {
            return Some("must have a host name whose parts have 63 characters at most");
        }
        if !label.bytes().all(letter) {
            return Some("must have a host name of letters, digits, `-` and `_`");
        }
        if label.starts_with('-') || label.ends_with('-') {
            return Some("must have a host name whose parts do not begin or end with a hyphen");
        }
    }
    (name.len() > 253).then_some("must have a host name of 253 characters at most")
}

/// What is wrong with a well-formed name as a public one, if anything.
#[must_use]
pub fn fault(name: &str) -> Option<&'static str> {
    let name = bare(name);
    if !name.contains('.') {
        return Some("a host name without a dot has a meaning only inside");
    }
    INTERNAL
        .iter()
        .any(|suffix| name.strip_suffix(suffix).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
        .then_some("the host name has a meaning only inside")
}

/// Whatever a resolver makes of them, these mean the own host (RFC 6761 section 6.3).
#[must_use]
pub fn is_localhost(name: &str) -> bool {
    let name = bare(name);
    name == "localhost" || name.ends_with(".localhost")
}

/// What common hosts files call the own host, RFC 6761, RFC 6762 with its appendix G, RFC 7686, RFC 8375, and ICANN's reservation of `internal`.
const INTERNAL: &[&str] = &[
    "localhost",
    "localdomain",
    "localdomain4",
    "localdomain6",
    "local",
    "internal",
    "intranet",
    "private",
    "corp",
    "home",
    "lan",
    "home.arpa",
    "onion",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_inside_are_refused_and_their_lookalikes_are_not() {
        for name in [
            "localhost",
            "localhost.",
            "db",
            "ip6-localhost",
            "ip6-loopback",
            "a.localhost",
            "localhost.localdomain",
            "localhost4.localdomain4",
            "localhost6.localdomain6",
            "sandbox.localdomain",
            "printer.local",
            "vault.local.",
            "metadata.google.internal",
            "ip-10-0-0-1.ec2.internal",
            "x.home.arpa",
            "home.arpa",
            "x.onion",
            "nas.lan",
            "git.corp",
            "w.intranet",
        ] {
            assert!(fault(name).is_some() && !is_malformed(name), "{name:?}");
        }
        for name in ["", ".", "..", "a..b", ".a.b", "localhost..", "127.0.0.1.."] {
            assert!(is_malformed(name), "{name:?}");
        }
        for name in [
            "hooks.example.test",
            "hooks.example.test.",
            "notlocal.example",
            "local.example",
            "internal.example.com",
            "localhost.example.com",
            "x.mylocal",
            "arpa.example",
            "e164.arpa",
        ] {
            assert!(fault(name).is_none() && !is_malformed(name), "{name:?}");
        }
    }
}
