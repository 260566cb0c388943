#!/usr/bin/env bash
# hack/node-plan.sh ONLY RUNS: looks whether `make e2e-node` can mean this, before anything is built for it. tests/node/plan.rs has the
# parts, and reads both again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

refuse() { echo "make e2e-node: $1" >&2; exit 2; }

mapfile -t parts < <(sed -nE 's/^ +\(Self::[A-Za-z]+, "([a-z-]+)"\),$/\1/p' tests/node/plan.rs)
[ "${#parts[@]}" -gt 0 ] || refuse 'tests/node/plan.rs names no parts in the form that hack/node-plan.sh reads'
all=$(printf ', %s' "${parts[@]}")

only=${1:-}
wanted=()
[ -z "${only// /}" ] || mapfile -t wanted < <(tr ',' '\n' <<<"$only")
for name in "${wanted[@]}"; do
  read -r name <<<"$name"
  [[ "$all, " == *", $name, "* ]] || refuse "ONLY: there is no part '$name'. Parts, separated by commas: ${all#, }"
done
[[ "${2:-}" =~ ^([1-9][0-9]*)?$ ]] || refuse "RUNS: '$2' is not a number from 1 on"
