#!/usr/bin/env bash
# Fuzzes every target for so many seconds, one after the other; stops at the first finding.
#   local/fuzz.sh 600            all targets
#   local/fuzz.sh 600 message    only these
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:?how many seconds for each target}
shift

if ! cargo fuzz --version >/dev/null 2>&1; then
  echo "cargo-fuzz is missing: cargo install cargo-fuzz --locked" >&2
  exit 1
fi
[ $# -gt 0 ] || set -- $(cargo fuzz list)

# Stable Rust has no sanitizers. There is no unsafe code of ours to watch: a finding is a panic, an overflow, or a
# statement in tests/src that does not hold.
for target in "$@"; do
  printf '\n== %s, %d s\n' "$target" "$seconds"
  mkdir -p "fuzz/corpus/$target"
  cargo fuzz run --sanitizer none --dev "$target" "fuzz/corpus/$target" "fuzz/seeds/$target" -- \
    -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0
done
