#!/usr/bin/env bash
# Prints the path of cargo-deny, of the version that deny.toml is written for: the one on the PATH if it fits, else the cache's,
# which is built there the first time (about 4 min on two cores). Called by `make verify` and `make audit`.
set -euo pipefail

version=0.20.2
cache=${LICTOR_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lictor}/cargo-deny-$version

fits() { [ "$("$1" --version 2>/dev/null)" = "cargo-deny $version" ]; }

if found=$(command -v cargo-deny) && fits "$found"; then
  echo "$found"
  exit
fi
if ! fits "$cache/bin/cargo-deny"; then
  mkdir -p "$cache"
  (
    flock 9
    fits "$cache/bin/cargo-deny" && exit
    echo "building cargo-deny $version (once; about 4 min on two cores)" >&2
    # Not into the target directory of this project, where cargo would put it when CARGO_TARGET_DIR is set.
    CARGO_TARGET_DIR=$cache/target cargo install --quiet --locked --root "$cache" "cargo-deny@$version" >&2
    rm -rf "$cache/target"
  ) 9>"$cache/.lock"
fi
echo "$cache/bin/cargo-deny"
