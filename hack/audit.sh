#!/usr/bin/env bash
# Asks RustSec's advisory database about the dependencies, by cargo-deny and by cargo-audit. Both fetch the database, a git
# repository. If it can't be reached, this says so, and exits with 3.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

log=$(mktemp "${TMPDIR:-/tmp}/lictor-audit.XXXXXX")
trap 'rm -f "$log"' EXIT

ask() {
  echo "${1##*/} ${*:2}"
  "$@" 2>&1 | tee "$log" && return
  if grep -qiE "(failed|couldn't) (to )?fetch advisory database" "$log"; then
    echo "hack/audit.sh: nothing was checked: the advisory database can't be reached" >&2
    exit 3
  fi
  exit 1
}

deny=$(hack/cargo-tool.sh cargo-deny)
audit=$(hack/cargo-tool.sh cargo-audit)
ask "$deny" --locked check advisories
ask "$audit" audit --deny unsound --deny yanked
