#!/usr/bin/env bash
# Puts faults into the pure crate and the functions, one at a time, and names those that no test notices.
#   local/mutants.sh                                  all of them: many hours
#   local/mutants.sh -f shared/domain/src/claim.rs    those of a file; any arguments of cargo-mutants
# What it changes, and which faults are none, is in .cargo/mutants.toml. It works on a copy of the tree.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! cargo mutants --version >/dev/null 2>&1; then
  echo 'cargo-mutants is missing: cargo install cargo-mutants --locked --version 25.3.1' >&2
  exit 1
fi
# A snapshot that differs is a fault noticed, and nothing to be written down.
export INSTA_UPDATE=no
mkdir -p .local
round() { cargo mutants --output .local "$@" || [ $? -eq 2 ] || [ $? -eq 3 ]; }

# The tests beside the code of the pure crate take a second. A loop without end is stopped, and counts as noticed.
round --package domain --minimum-test-timeout 20 "$@" -- --lib
# What they did not notice, and the functions: stories in virtual time, and every call of them that can fail.
cargo mutants --output .local --iterate --minimum-test-timeout 120 \
  --test-package domain --test-package testkit --test-package redeliver-tests --test-package reliability \
  --test-package deliver --test-package schedule-retry --test-package dlq-sweep --test-package redrive-approve "$@" -- \
  --lib --test it --test found --test crash_points --test interleavings -- \
  --skip stack:: --skip standard_webhooks:: --skip wire:: --skip seeds:: --skip ten_thousand
