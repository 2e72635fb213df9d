//! The pure heart of Redeliver: what a message means, which states a delivery can be in,
//! who may start an attempt, what an answer means and what happens next.
//!
//! Nothing here reads a clock, draws a random number, opens a socket or knows AWS: time and chance are
//! arguments, and the outside is a handful of traits in [`ports`]. A test checks the dependency tree.
//!
//! The cast, in the order a delivery meets it:
//! - [`message`] reads the bytes of a queue message; [`payload`] is what will be sent, byte for byte.
//! - [`record`] is one delivery as stored; [`delivery`] holds its states and the one total `apply`.
//! - [`claim`] judges who may start an attempt; [`transition`] is the list of changes a record can undergo.
//! - [`registry`] is what the endpoints table says of an [`endpoint`]: a reviewed [`definition`] and secrets;
//!   [`endpoint_state`] is whether it takes deliveries now, and [`resume`] how what was held goes out again.
//! - [`revision`] makes the next version of a registration, [`comparison`] says what it changes, [`review`] what to look at
//!   twice; [`diagnosis`] says why a signature is not accepted.
//! - [`request`] is what goes on the wire, signed by [`signature`]; [`outcome`] what came back; [`hint`] what `Retry-After` asked for.
//! - [`retry`] and [`decide`] say what happens next.
//! - [`wakeup`] and [`sweep`] hold the rules of the relay and of the reconciler, [`plan`], [`summary`] and [`progress`] those of a redrive, and [`audit`] is who decided what.
//! - [`cancel`], [`reject`] and [`release`] are the three short stories that several functions share.

pub mod audit;
pub mod cancel;
pub mod claim;
pub mod comparison;
pub mod decide;
pub mod definition;
pub mod delivery;
pub mod diagnosis;
pub mod egress;
pub mod endpoint;
pub mod endpoint_state;
pub mod fields;
pub mod hint;
pub mod id;
pub mod kept_answer;
pub mod message;
pub mod name;
pub mod outcome;
pub mod payload;
pub mod plan;
pub mod ports;
pub mod progress;
pub mod record;
pub mod registry;
pub mod reject;
pub mod release;
pub mod request;
mod restyle;
pub mod resume;
pub mod retry;
pub mod review;
pub mod revision;
pub mod settings;
pub mod signature;
pub mod summary;
pub mod sweep;
pub mod time;
pub mod transition;
pub mod wakeup;
