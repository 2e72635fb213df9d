//! Whole command lines on a world in memory: what is answered, what is written, how the process ends.

mod apply;
mod audit;
mod deliveries;
mod doctor;
mod documents;
mod endpoints;
mod incident;
mod redrives;
mod run;
mod secrets;
mod send;
mod sweep;
mod test;
mod verify;

use serde_json::{Value, json};

use crate::fakes::Fake;

const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// A world with one signed endpoint, in version 3.
fn with_one() -> Fake {
    let fake = Fake::new();
    fake.has("ep_a", one());
    fake
}

fn one() -> Value {
    json!({
        "url": "https://hooks.example.test/in?k=t0ken", "description": "a partner", "signatures": ["v1"],
        "headers": {"authorization": "Bearer s3cr3t"}, "version": 3, "updated_at": "2026-12-01T11:00:00.000Z",
        "secrets": [{"secret": SECRET, "created_at": "2026-11-01T12:00:00.000Z"}],
    })
}

/// A file for one test, removed by the next run of it.
fn file(name: &str, content: &[u8]) -> String {
    let path = std::env::temp_dir().join(format!("redeliver-{}-{name}", std::process::id()));
    std::fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}
