#!/usr/bin/env bash
# The checks, from quick to slow; stops at the first that fails.
#   local/test.sh fast   format, lints, tests without AWS, the template
#   local/test.sh all    the same, then the scenarios on the local stack
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-all}
python=${PYTHON:-python3}
sam=.venv/sam/bin

step() {
  local title=$1 start=$SECONDS
  shift
  printf '\n== %s\n' "$title"
  if ! "$@"; then
    printf '\n== FAILED: %s (after %d s)\n' "$title" $((SECONDS - start)) >&2
    printf '   The command was: %s\n' "$*" >&2
    exit 1
  fi
  printf '== ok: %s (%d s)\n' "$title" $((SECONDS - start))
}

# Any region will do for checks that never leave this machine.
template_checks() {
  "$python" local/stack.py tools &&
    SAM_CLI_TELEMETRY=0 AWS_DEFAULT_REGION=us-east-1 "$sam/sam" validate --lint &&
    "$sam/cfn-lint" template.yaml &&
    "$sam/python" local/check_template.py
}

local_scripts() {
  "$python" -m unittest discover --start-directory local --pattern '*_test.py'
}

step 'Format' cargo fmt --all --check
step 'Lints' cargo clippy --workspace --all-targets -- -D warnings
step 'Tests without AWS' cargo test --workspace --exclude redeliver-tests
step 'Template' template_checks
step 'Local scripts' local_scripts
if [ "$what" = all ]; then
  step 'Official verifiers' "$python" local/stack.py verifiers
  step 'Local stack' "$python" local/stack.py up
  REDELIVER_STACK=$PWD/.local/stack.json \
    step 'Scenarios on the local stack' cargo test -p redeliver-tests
fi
