//! Reading the partitions of an index as one list, oldest first, page by page.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::id::{ENDPOINT_SHARDS, SHARDS, StateKey};
use domain::ports::{Deliveries, ItemKey, Lane, Range, Row, StoreError, Stored};
use domain::time::Millis;
use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};

use crate::answer::Refusal;

/// A list over several partitions.
pub struct Scan {
    lanes: Vec<Lane>,
    /// The last row taken from each partition.
    positions: Vec<Option<Row>>,
    from: Millis,
    to: Millis,
    done: bool,
}

#[derive(Serialize, Deserialize)]
struct Position(usize, String, String, i64);

impl Scan {
    /// All items of a state (its name in the contract), of one endpoint where the state has such an index.
    pub fn new(state: &str, endpoint: Option<&str>) -> Result<Self, Refusal> {
        let by_endpoint = |state: &'static str, key: &str| -> Vec<Lane> {
            (0..ENDPOINT_SHARDS).map(|shard| Lane::Endpoint(state, StateKey::stored(key), shard)).collect()
        };
        let all = |lane: &'static str| -> Vec<Lane> { (0..SHARDS).map(|shard| Lane::Work(lane, shard)).collect() };
        // An inline URL shares its state key with all URLs of its origin, so its own key leads nowhere in that index.
        let lanes = match (state, endpoint.filter(|e| !e.starts_with("url:"))) {
            ("dead_lettered", Some(key)) => by_endpoint("dead_lettered", key),
            ("held", Some(key)) => by_endpoint("held", key),
            ("dead_lettered", None) => all("dead"),
            ("held", None) => all("held"),
            ("waiting", _) => all("waiting"),
            ("rejected", _) => all("rejected"),
            _ => {
                return Err(Refusal::invalid(format!(
                    "`state` must be waiting, held, dead_lettered or rejected, not {state:?}"
                )));
            }
        };
        Ok(Self { positions: vec![None; lanes.len()], lanes, from: Millis(0), to: Millis(i64::MAX), done: false })
    }

    /// Reads only entries from `from` (inclusive) to `to` (exclusive), where the index can tell.
    #[must_use]
    pub fn between(mut self, from: Option<Millis>, to: Option<Millis>) -> Self {
        // A held row of the `work` index is sorted by what it needs next, not by when it came: there the caller's own look
        // at the record has to do.
        if !self.lanes.iter().any(|lane| matches!(lane, Lane::Work("held", _))) {
            self.from = from.unwrap_or(Millis(0));
            self.to = to.map_or(Millis(i64::MAX), |to| to.plus(-1));
        }
        self
    }

    /// Goes on where an earlier page ended.
    pub fn resume(mut self, cursor: &str) -> Result<Self, Refusal> {
        let wrong = || Refusal::invalid("`cursor` is not one that `list` gave for the same state and endpoint");
        let bytes = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| wrong())?;
        let positions: Vec<Position> = serde_json::from_slice(&bytes).map_err(|_| wrong())?;
        for Position(lane, pk, sk, sort) in positions {
            *self.positions.get_mut(lane).ok_or_else(wrong)? =
                Some(Row { at: ItemKey { pk, sk }, sort: Millis(sort), armed_at: None, rearms: 0 });
        }
        Ok(self)
    }

    /// Where the next page begins; `None` at the end.
    pub fn cursor(&self) -> Option<String> {
        if self.done {
            return None;
        }
        let positions: Vec<Position> = self
            .positions
            .iter()
            .enumerate()
            .filter_map(|(i, row)| row.as_ref().map(|r| Position(i, r.at.pk.clone(), r.at.sk.clone(), r.sort.0)))
            .collect();
        Some(URL_SAFE_NO_PAD.encode(serde_json::to_vec(&positions).unwrap_or_default()))
    }

    /// True when everything has been read.
    pub const fn is_done(&self) -> bool {
        self.done
    }

    /// The next items, oldest first; at most `limit`, possibly fewer, also none before the end.
    pub async fn next(&mut self, store: &impl Deliveries, limit: usize) -> Result<Vec<Stored>, StoreError> {
        if self.from > self.to {
            self.done = true;
            return Ok(Vec::new());
        }
        let pages = try_join_all(self.lanes.iter().zip(&self.positions).map(|(lane, after)| {
            store.rows(Range { lane, from: self.from, to: self.to, after: after.as_ref(), limit })
        }))
        .await?;
        // A page can end early although more follows: nothing beyond the earliest such end is in order yet.
        let horizon = pages.iter().filter(|p| p.more).filter_map(|p| p.rows.last()).map(|r| r.sort).min();
        let mut merged: Vec<(usize, Row)> = pages
            .iter()
            .enumerate()
            .flat_map(|(lane, page)| page.rows.iter().map(move |row| (lane, row.clone())))
            .collect();
        merged.sort_by(|(_, a), (_, b)| (a.sort, &a.at.pk, &a.at.sk).cmp(&(b.sort, &b.at.pk, &b.at.sk)));
        let in_order = merged.iter().take_while(|(_, row)| horizon.is_none_or(|h| row.sort <= h)).count();
        let cut = in_order.min(limit);
        self.done = cut == merged.len() && !pages.iter().any(|p| p.more);
        merged.truncate(cut);
        // Within a partition the order of equal sort values is the index's own, so what is taken follows its pages.
        let mut keys: Vec<ItemKey> = Vec::with_capacity(merged.len());
        for (lane, page) in pages.iter().enumerate() {
            let taken = &page.rows[..merged.iter().filter(|(l, _)| *l == lane).count()];
            keys.extend(taken.iter().map(|row| row.at.clone()));
            if let Some(last) = taken.last() {
                self.positions[lane] = Some(last.clone());
            }
        }
        store.get_many(&keys).await
    }
}
