//! Nothing: this package exists for its integration tests, in `tests/it`.
