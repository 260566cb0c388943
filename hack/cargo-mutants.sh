#!/usr/bin/env bash
# Prints the directory of cargo-mutants, of the version that .cargo/mutants.toml is written for, which is built there the first time
# (about 5 min on two cores). Called by `make mutants`.
set -euo pipefail

version=27.1.0
cache=${LICTOR_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lictor}/cargo-mutants-$version

fits() { [ "$("$cache/bin/cargo-mutants" mutants --version 2>/dev/null)" = "cargo-mutants $version" ]; }

if ! fits; then
  mkdir -p "$cache"
  (
    flock 9
    fits && exit
    echo "building cargo-mutants $version (once; about 5 min on two cores)" >&2
    # Not into the target directory of this project, where cargo would put it when CARGO_TARGET_DIR is set.
    CARGO_TARGET_DIR=$cache/target cargo install --quiet --locked --root "$cache" "cargo-mutants@$version" >&2
    rm -rf "$cache/target"
  ) 9>"$cache/.lock"
fi
echo "$cache/bin"
