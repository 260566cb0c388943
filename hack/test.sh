#!/usr/bin/env bash
# Runs the tests, the parts of them side by side, and prints the ten slowest at the end.
#
#   hack/test.sh quick    what protects users, in minutes: without the tests that are marked as slow, and with 300 simulated seeds
#   hack/test.sh all      all of them, with 1,000 seeds, and three minutes of torture after that
#
# A slow test has #[ignore = "slow: WHY"]. Two columns of parts run at a time, and the parts of a column one after the other. One
# column has the tests that mostly wait, the slow ones first, with more threads than there are cores. The other has those that compute.
# A part fails if no test is selected in it, so a mark that selects nothing fails, too. target/test/PART.log has a part's output. First,
# the tests are compiled and the programs that they run are built, side by side.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck disable=SC2034  # hack/progress.sh uses it
build_logs=target/build-logs

# shellcheck source=hack/progress.sh
. hack/progress.sh

usage() { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }

case $#:${1:-} in
  1:quick) seeds=300 ;;
  1:all) seeds=1000 ;;
  *) usage ;;
esac
tier=$1
logs=target/test
columns=()
rm -rf "$logs"
mkdir -p "$logs"
: >"$logs/failed"

# The number of tests at a time, more than there are cores, because they wait. With eight on two cores, some that judge time failed.
quick=5 slow=4

trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
finish() {
  local column
  stop_builds
  for column in "${columns[@]}"; do kill -- "-$column" 2>/dev/null || true; done
}

# libtest prints how long a test took only if unstable options are allowed. This allows them for the tests' programs alone. In Cargo's
# own environment, it would make Cargo compile everything again.
timed=(--config "target.'cfg(all())'.runner = ['env', 'RUSTC_BOOTSTRAP=1']")
dev() { cargo "${timed[@]}" test --locked "$@"; }
# This ignores the arguments of part, because rustdoc, too, would have to allow unstable options.
documented() { cargo test --locked --doc; }
optimised() { RUSTFLAGS='--cfg tokio_unstable' cargo "${timed[@]}" test --locked --profile prove --target-dir target/prove "$@"; }

# part NAME COMMAND... -- ARGUMENTS: runs a part, and prints how it ended. If it failed, prints its whole output.
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
    # The simulation prints what it met. A person should see that it was enough.
    grep -E '^[0-9]+ (seeds in|faults of agents) ' "$log" || true
  else
    # In one piece, although the other column prints, too.
    { printf '%5d s  %-14s FAILED\n' $((SECONDS - start)) "$name"; cat "$log"; } | flock "$logs" cat
    echo "$name" >>"$logs/failed"
  fi
  return "$status"
}

# The tests that mostly wait: for servers, for Leases and sessions that expire, for controllers. Some judge how long something took.
waits() {
  local status=0
  if [ "$tier" = all ]; then
    part cluster-slow dev --test cluster -- --ignored --test-threads "$slow" || status=1
    part chart-slow dev --test chart -- --ignored --test-threads "$slow" || status=1
    part agent-slow dev --test agent -- --ignored --nocapture || status=1
    part objects-slow dev --test objects -- --ignored --test-threads "$slow" || status=1
  fi
  part cluster dev --test cluster -- --test-threads "$quick" || status=1
  part consul dev --test consul -- --test-threads "$quick" || status=1
  part agent dev --test agent -- --test-threads "$quick" || status=1
  part elector dev --test elector -- --test-threads "$quick" || status=1
  part objects dev --test objects -- --test-threads "$quick" || status=1
  part observe dev --test observe -- --test-threads "$quick" || status=1
  return "$status"
}

# The tests that compute, from seeds or without a clock. They use what the other column leaves of the cores.
computes() {
  local status=0
  renice -n 15 "$BASHPID" >/dev/null
  part model optimised --test model -- --nocapture || status=1
  LICTOR_SEEDS=$seeds part simulation optimised --test simulation -- --nocapture || status=1
  part units dev --lib --bins -- || status=1
  part documents documented || status=1
  part programs dev --test architecture --test pages --test cli --test examples --test inputs --test scenarios --test decisions -- || status=1
  part chart dev --test chart -- || status=1
  return "$status"
}

slowest() {
  echo 'the slowest:'
  sed -nE 's/^test (.*) \.\.\. .*<([0-9.]+)s>$/\2 \1/p' "$logs"/*.log | sort -rn | awk 'NR <= 10 { printf "%7.1f s  %s\n", $1, $2 }'
}

# Says once more, at the end of a long output, which tests failed and why.
failed() {
  local name
  while read -r name; do
    echo "$name:"
    grep -E '^test .*FAILED' "$logs/$name.log" || true
    grep -A 3 'panicked at' "$logs/$name.log" | tail -n 60 || true
  done <"$logs/failed"
  echo 'hack/test.sh: some tests failed: see above'
}

compile() {
  dev --no-run
  optimised --no-run --test model --test simulation
  [ "$tier" = quick ] || dev --no-run --test torture
}

# Before the columns, which would wait for each other's compiling, and some of which measure time.
hack/require.sh rust c go setsid flock
echo 'compiling the tests, and building the programs that they run' >&2
build tests compile
more=()
[ "$tier" = quick ] || more=(gitops helm-controller browser page-modules azurite-blob azure-storage-blob)
build programs hack/tools.sh etcd kube-apiserver kube-controller-manager kube-scheduler kubectl helm kwok kwokctl consul consul-1.8 \
  libfaketime health elector locker versitygw "${more[@]}"
wait_for_builds

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
[ "$status" = 0 ] || failed >&2
exit "$status"
