//! The real binaries on the local stack.
