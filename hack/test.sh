#!/usr/bin/env bash
# Runs the tests, the parts of them side by side, and prints the ten slowest at the end.
#
#   hack/test.sh quick    what protects users, in minutes: without the tests that are marked as slow, and with 300 simulated seeds
#   hack/test.sh all      all of them, with 2,000 seeds, and three minutes of torture after that
#
# A slow test has #[ignore = "slow: WHY"]. Two columns of parts run at a time, each part after the one above it. One has what mostly
# waits, the slow tests first, with more threads than there are cores; the other has what computes. A part in which no test is
# selected fails, so a mark that selects nothing does. What a part printed is in target/test/PART.log.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }

case $#:${1:-} in
  1:quick) seeds=300 ;;
  1:all) seeds=2000 ;;
  *) usage ;;
esac
tier=$1
logs=target/test
columns=()
rm -rf "$logs"
mkdir -p "$logs"

# Tests at a time, more than there are cores, for they wait. Measured on two cores: with eight, some of those that judge time failed.
quick=5 slow=4

trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
finish() {
  local column
  for column in "${columns[@]}"; do kill -- "-$column" 2>/dev/null || true; done
}

# libtest tells how long a test took only where unstable options are allowed. This is for the tests' programs alone: were it in Cargo's
# own environment, all would be compiled anew.
timed=(--config "target.'cfg(all())'.runner = ['env', 'RUSTC_BOOTSTRAP=1']")
dev() { cargo "${timed[@]}" test --locked "$@"; }
optimised() { RUSTFLAGS='--cfg tokio_unstable' cargo "${timed[@]}" test --locked --profile prove --target-dir target/prove "$@"; }

# part NAME COMMAND... -- ARGUMENTS: runs a part; tells how it ended, and, of one that failed, all that it printed.
part() {
  local name=$1 start=$SECONDS log=$logs/$1.log status=0 passed
  shift
  "$@" -Z unstable-options --report-time >"$log" 2>&1 </dev/null || status=$?
  passed=$(sed -nE 's/^test result: .* ([0-9]+) passed.*/\1/p' "$log" | awk '{ sum += $1 } END { print sum + 0 }')
  if [ "$status" = 0 ] && [ "$passed" = 0 ]; then
    echo "$name: no test is selected" >>"$log"
    status=1
  fi
  if [ "$status" = 0 ]; then
    printf '%5d s  %-14s %d tests\n' $((SECONDS - start)) "$name" "$passed"
    # The simulation tells what it met, and each must see that it was enough.
    grep -E '^[0-9]+ seeds in ' "$log" || true
  else
    # In one piece, though the other column prints, too.
    { printf '%5d s  %-14s FAILED\n' $((SECONDS - start)) "$name"; cat "$log"; } | flock "$logs" cat
  fi
  return "$status"
}

# What mostly waits: for servers, for Leases and sessions that expire, for controllers. Some of it judges how long something took.
waits() {
  local status=0
  if [ "$tier" = all ]; then
    part cluster-slow dev --test cluster -- --ignored --test-threads "$slow" || status=1
    part chart-slow dev --test chart -- --ignored --test-threads "$slow" || status=1
  fi
  part cluster dev --test cluster -- --test-threads "$quick" || status=1
  part consul dev --test consul -- --test-threads "$quick" || status=1
  return "$status"
}

# What computes, from seeds or with no clock at all: it takes what the other column leaves of the cores.
computes() {
  local status=0
  renice -n 15 "$BASHPID" >/dev/null
  part model optimised --test model -- --nocapture || status=1
  LICTOR_SEEDS=$seeds part simulation optimised --test simulation -- --nocapture || status=1
  part units dev --lib --bins -- || status=1
  part programs dev --test architecture --test cli --test examples --test inputs --test scenarios --test decisions -- || status=1
  part chart dev --test chart -- || status=1
  return "$status"
}

slowest() {
  echo 'the slowest:'
  sed -nE 's/^test (.*) \.\.\. .*<([0-9.]+)s>$/\2 \1/p' "$logs"/*.log | sort -rn | awk 'NR <= 10 { printf "%7.1f s  %s\n", $1, $2 }'
}

# First, for two columns that compile would wait for each other, and what is measured should not.
echo 'compiling' >&2
dev --no-run --quiet
optimised --no-run --quiet --test model --test simulation
[ "$tier" = quick ] || dev --no-run --quiet --test torture

set -m
waits & columns+=($!)
computes & columns+=($!)
set +m
status=0
for column in "${columns[@]}"; do wait "$column" || status=1; done
columns=()
if [ "$tier" = all ] && [ "$status" = 0 ]; then
  LICTOR_TORTURE_MINUTES=3 part torture dev --test torture -- --nocapture || status=1
fi
slowest
[ "$status" = 0 ] || echo 'hack/test.sh: some tests failed: see above' >&2
exit "$status"
