//! Requests on the wire.
