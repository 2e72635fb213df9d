//! The next version of a registration: a new definition, a new secret, a removal. Nothing here writes; who writes names
//! the version that a revision was made from.

use crate::definition::Definition;
use crate::registry::{MAX_SECRETS, Registration, SecretEntry};
use crate::signature::{Scheme, Secret};
use crate::time::{DAY_MS, Millis};

/// The overlap of a rotation, unless told otherwise: both secrets sign for a day.
pub const OVERLAP_MS: i64 = DAY_MS;
/// The longest overlap: a secret that was to go must not stay by a slip of the keyboard.
pub const MAX_OVERLAP_MS: i64 = 90 * DAY_MS;
/// A retired secret is kept for so long, to tell a receiver that it uses an old one.
pub const KEPT_MS: i64 = 7 * DAY_MS;

impl Registration {
    /// The first version of an endpoint.
    pub fn first(definition: Definition, now: Millis) -> Self {
        Self { definition, secrets: Vec::new(), version: 1, updated_at: Some(now), removed_at: None }
    }

    /// The next version: the same, but for what the caller changes in it.
    #[must_use]
    pub fn next(&self, now: Millis) -> Self {
        Self { version: self.version + 1, updated_at: Some(now), ..self.clone() }
    }

    /// The next version, with another definition. A removed endpoint is an endpoint again.
    #[must_use]
    pub fn defined(&self, definition: Definition, now: Millis) -> Self {
        Self { definition, removed_at: None, ..self.next(now) }
    }

    /// The next version, removed: its deliveries are held.
    #[must_use]
    pub fn removed(&self, now: Millis) -> Self {
        Self { removed_at: Some(now), ..self.next(now) }
    }

    /// Schemes that requests are to be signed by, without a secret that could.
    pub fn unsigned_schemes(&self, now: Millis) -> Vec<Scheme> {
        let has = |scheme: &Scheme| self.secrets.iter().any(|s| s.secret.scheme() == *scheme && s.is_active(now));
        self.definition.signatures.iter().copied().filter(|scheme| !has(scheme)).collect()
    }
}

/// The secrets with a new one, which signs at once. The older ones of its scheme go on for the overlap, so that the
/// receiver can change over; one that was to retire sooner still does.
pub fn rotated(
    secrets: &[SecretEntry],
    new: Secret,
    overlap_ms: i64,
    now: Millis,
) -> Result<Vec<SecretEntry>, &'static str> {
    if overlap_ms > MAX_OVERLAP_MS {
        return Err("the overlap may be 90 days at most");
    }
    let same = |entry: &SecretEntry| *entry.secret.expose() == *new.expose();
    if secrets.iter().any(|entry| same(entry) && entry.retired_at.is_none()) {
        return Err("this secret is in use already: a rotation needs another one");
    }
    let until = now.plus(overlap_ms.max(0));
    let scheme = new.scheme();
    let older = secrets.iter().filter(|entry| !same(entry)).map(|entry| {
        let retires = entry.secret.scheme() == scheme && entry.is_active(now);
        let retired_at =
            if retires { Some(entry.retired_at.map_or(until, |at| at.min(until))) } else { entry.retired_at };
        SecretEntry { retired_at, ..entry.clone() }
    });
    let older = older.collect();
    with_room(vec![SecretEntry { secret: new, created_at: now, retired_at: None }], older, now)
}

/// The secrets with those that a receiver has already: all of them sign, the first one before the others, and no other of
/// their schemes does. One that was there before is what it was, and does not retire.
pub fn imported(secrets: &[SecretEntry], given: &[Secret], now: Millis) -> Result<Vec<SecretEntry>, &'static str> {
    let same = |entry: &SecretEntry, secret: &Secret| *entry.secret.expose() == *secret.expose();
    let mut signing: Vec<SecretEntry> = Vec::new();
    for secret in given {
        if !signing.iter().any(|entry| same(entry, secret)) {
            let created_at = secrets.iter().find(|entry| same(entry, secret)).map_or(now, |entry| entry.created_at);
            signing.push(SecretEntry { secret: secret.clone(), created_at, retired_at: None });
        }
    }
    let others: Vec<SecretEntry> = secrets
        .iter()
        .filter(|entry| !signing.iter().any(|signs| same(entry, &signs.secret)))
        .map(|entry| {
            let retires = entry.is_active(now) && signing.iter().any(|s| s.secret.scheme() == entry.secret.scheme());
            SecretEntry { retired_at: if retires { Some(now) } else { entry.retired_at }, ..entry.clone() }
        })
        .collect();
    with_room(signing, others, now)
}

/// New secrets before the older ones, as far as there is room.
fn with_room(new: Vec<SecretEntry>, mut kept: Vec<SecretEntry>, now: Millis) -> Result<Vec<SecretEntry>, &'static str> {
    kept.retain(|entry| entry.retired_at.is_none_or(|at| now.since(at) <= KEPT_MS));
    // The ones that retired first go first; one that still signs is never dropped.
    while kept.len() + new.len() > MAX_SECRETS {
        let retired = |entry: &SecretEntry| entry.retired_at.filter(|_| !entry.is_active(now));
        let oldest = (0..kept.len()).filter(|i| retired(&kept[*i]).is_some()).min_by_key(|i| retired(&kept[*i]));
        let Some(oldest) = oldest else {
            return Err(
                "ten secrets sign at this moment, which is the most: wait until older ones retire, or rotate with overlap 0",
            );
        };
        kept.remove(oldest);
    }
    Ok(new.into_iter().chain(kept).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use zeroize::Zeroizing;

    const NOW: Millis = Millis(1_000 * DAY_MS);

    fn secret(scheme: Scheme, byte: u8) -> Secret {
        Secret::new(scheme, &Zeroizing::new([byte; 32]))
    }

    fn entry(scheme: Scheme, byte: u8, retired_at: Option<i64>) -> SecretEntry {
        SecretEntry {
            secret: secret(scheme, byte),
            created_at: Millis(0),
            retired_at: retired_at.map(|ms| NOW.plus(ms)),
        }
    }

    fn times(secrets: &[SecretEntry]) -> Vec<Option<i64>> {
        secrets.iter().map(|s| s.retired_at.map(|at| at.since(NOW))).collect()
    }

    #[test]
    fn the_new_secret_signs_at_once_and_the_older_of_its_scheme_for_the_overlap() {
        let old = [entry(Scheme::V1, 1, None), entry(Scheme::V1, 2, Some(1_000)), entry(Scheme::V1a, 3, None)];
        let new = rotated(&old, secret(Scheme::V1, 9), OVERLAP_MS, NOW).unwrap();
        assert_eq!(times(&new), [None, Some(DAY_MS), Some(1_000), None], "one that retires sooner still does");
        assert_eq!((new[0].created_at, *new[0].secret.expose() == *secret(Scheme::V1, 9).expose()), (NOW, true));
        let at_once = rotated(&old, secret(Scheme::V1, 9), 0, NOW).unwrap();
        assert_eq!(at_once.iter().filter(|s| s.secret.scheme() == Scheme::V1 && s.is_active(NOW)).count(), 1);
    }

    #[test]
    fn an_overlap_has_an_end() {
        let old = [entry(Scheme::V1, 1, None)];
        assert!(rotated(&old, secret(Scheme::V1, 9), MAX_OVERLAP_MS, NOW).is_ok());
        for long in [MAX_OVERLAP_MS + 1, i64::MAX] {
            assert!(rotated(&old, secret(Scheme::V1, 9), long, NOW).unwrap_err().contains("90 days"), "{long}");
        }
    }

    #[test]
    fn a_secret_that_retired_a_week_ago_is_dropped() {
        let old = [entry(Scheme::V1, 1, Some(-KEPT_MS)), entry(Scheme::V1, 2, Some(-KEPT_MS - 1))];
        assert_eq!(times(&rotated(&old, secret(Scheme::V1, 9), 0, NOW).unwrap()), [None, Some(-KEPT_MS)]);
    }

    #[test]
    fn ten_are_kept_and_one_that_signs_is_never_dropped() {
        let mut old: Vec<SecretEntry> =
            (0..8).map(|i| entry(Scheme::V1, i, Some(i64::from(i) * 1_000 + 1_000))).collect();
        old.push(entry(Scheme::V1, 8, Some(-2_000)));
        old.push(entry(Scheme::V1, 10, Some(-3_000)));
        let new = rotated(&old, secret(Scheme::V1, 20), OVERLAP_MS, NOW).unwrap();
        assert_eq!((new.len(), times(&new).contains(&Some(-3_000)), times(&new)[9]), (10, false, Some(-2_000)));
        let busy: Vec<SecretEntry> = (0..10).map(|i| entry(Scheme::V1, i, None)).collect();
        assert!(rotated(&busy, secret(Scheme::V1, 20), OVERLAP_MS, NOW).unwrap_err().contains("ten secrets"));
        assert_eq!(
            rotated(&busy, secret(Scheme::V1, 20), 0, NOW).map(|s| s.len()),
            Ok(10),
            "all retire, one is dropped"
        );
    }

    #[test]
    fn the_same_secret_is_no_rotation_and_a_retired_one_can_come_back() {
        let old = [entry(Scheme::V1, 1, None), entry(Scheme::V1, 2, Some(-1_000))];
        assert!(rotated(&old, secret(Scheme::V1, 1), 0, NOW).unwrap_err().contains("in use already"));
        assert_eq!(times(&rotated(&old, secret(Scheme::V1, 2), 0, NOW).unwrap()), [None, Some(0)]);
    }

    #[test]
    fn imported_secrets_all_sign_and_one_that_was_there_is_itself() {
        let old = [entry(Scheme::V1, 1, Some(-1_000)), entry(Scheme::V1, 2, None), entry(Scheme::V1a, 3, None)];
        let given = [secret(Scheme::V1, 1), secret(Scheme::V1, 9), secret(Scheme::V1, 1)];
        let new = imported(&old, &given, NOW).unwrap();
        assert_eq!(times(&new), [None, None, Some(0), None]);
        assert_eq!((new[0].created_at, new[1].created_at), (Millis(0), NOW), "in the order of the lines");
        assert_eq!(times(&imported(&old, &[], NOW).unwrap()), times(&old));
        let many: Vec<Secret> = (0..11).map(|i| secret(Scheme::V1, i)).collect();
        assert!(imported(&[], &many, NOW).is_err() && imported(&old, &many[..10], NOW).is_err());
        assert_eq!(imported(&old[..2], &many[..10], NOW).map(|s| s.len()), Ok(10));
    }

    #[test]
    fn a_revision_counts_on_and_a_definition_ends_a_removal() {
        let definition = |url: &str| Definition::from_json(json!({"url": url, "signatures": ["v1", "v1a"]})).unwrap();
        let first = Registration::first(definition("https://a.example.test/"), Millis(1));
        assert_eq!((first.version, first.unsigned_schemes(NOW)), (1, vec![Scheme::V1, Scheme::V1a]));
        let mut signed = first.next(Millis(2));
        signed.secrets = vec![entry(Scheme::V1, 1, Some(1)), entry(Scheme::V1a, 1, Some(0))];
        assert_eq!(signed.unsigned_schemes(NOW), [Scheme::V1a]);
        let removed = signed.removed(Millis(3));
        assert_eq!((removed.version, removed.removed_at, removed.updated_at), (3, Some(Millis(3)), Some(Millis(3))));
        let back = removed.defined(definition("https://b.example.test/"), Millis(4));
        assert_eq!((back.version, back.removed_at, back.secrets.len()), (4, None, 2));
    }
}
