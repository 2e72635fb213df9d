//! The indexes of the deliveries table in memory. Like the real ones they may lag behind the table: a change shows some
//! time after it was written, and changes show in the order in which they were written.

use std::collections::{BTreeMap, HashMap, VecDeque};

use domain::ports::{ItemKey, Lane, Page, Range, Row};
use domain::record::Record;
use domain::reject::Rejected;
use domain::time::Millis;

/// Order within a partition.
type Sort = (Millis, String, String);

/// The places of one item: partition and row.
type Places = Vec<(String, Row)>;

/// All partitions of both indexes.
#[derive(Debug, Default)]
pub(super) struct Index {
    lanes: HashMap<String, BTreeMap<Sort, Row>>,
    places: HashMap<ItemKey, Places>,
    /// Changes that do not show yet.
    pending: VecDeque<(Millis, ItemKey, Places)>,
}

fn sort_of(row: &Row) -> Sort {
    (row.sort, row.at.pk.clone(), row.at.sk.clone())
}

/// Where a delivery is listed.
fn places_of(record: &Record) -> Places {
    let mut places = Vec::new();
    let at = ItemKey::of(&record.key);
    if let (Some(lane), Some(due)) = (record.lane(), record.due) {
        places.push((lane, Row { at: at.clone(), sort: due, armed_at: record.armed_at, rearms: record.rearms }));
    }
    if let Some(lane) = record.endpoint_lane() {
        places.push((lane, Row { at, sort: record.since, armed_at: None, rearms: 0 }));
    }
    places
}

impl Index {
    /// A record was written; it shows from then on.
    pub(super) fn record(&mut self, record: &Record, shows_at: Millis) {
        let at = ItemKey::of(&record.key);
        let shows_at = self.pending.back().map_or(shows_at, |(last, ..)| shows_at.max(*last));
        self.pending.push_back((shows_at, at, places_of(record)));
    }

    /// A message was rejected.
    pub(super) fn rejected(&mut self, rejected: &Rejected) {
        let at = ItemKey { pk: format!("R#{}", rejected.sha256), sk: "R".to_owned() };
        let row = Row { at: at.clone(), sort: rejected.since, armed_at: None, rearms: 0 };
        self.place(at, vec![(rejected.lane(), row)]);
    }

    fn place(&mut self, at: ItemKey, places: Places) {
        for (lane, row) in self.places.remove(&at).unwrap_or_default() {
            if let Some(rows) = self.lanes.get_mut(&lane) {
                rows.remove(&sort_of(&row));
            }
        }
        if places.is_empty() {
            return;
        }
        for (lane, row) in &places {
            self.lanes.entry(lane.clone()).or_default().insert(sort_of(row), row.clone());
        }
        self.places.insert(at, places);
    }

    /// Shows what was written until now, less the lag of each change.
    pub(super) fn settle(&mut self, now: Millis) {
        while self.pending.front().is_some_and(|(shows_at, ..)| *shows_at <= now) {
            if let Some((_, at, places)) = self.pending.pop_front() {
                self.place(at, places);
            }
        }
    }

    /// A page of a partition.
    pub(super) fn page(&self, range: &Range<'_>) -> Page {
        let lane = match range.lane {
            Lane::Work(name, shard) => format!("{name}#{shard:02}"),
            Lane::Endpoint(name, state_key, shard) => format!("{name}#{state_key}#{shard}"),
        };
        let Some(rows) = self.lanes.get(&lane) else { return Page::default() };
        let from = (range.from, String::new(), String::new());
        let after = range.after.map(sort_of);
        let mut rest = rows
            .range(after.clone().unwrap_or_else(|| from.clone()).max(from)..)
            .map(|(_, row)| row)
            .filter(|row| after.as_ref().is_none_or(|after| sort_of(row) > *after))
            .take_while(|row| row.sort <= range.to);
        let rows: Vec<Row> = rest.by_ref().take(range.limit).cloned().collect();
        Page { rows, more: rest.next().is_some() }
    }
}
