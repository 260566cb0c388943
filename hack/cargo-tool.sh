#!/usr/bin/env bash
# Prints the path of a program from crates.io, in the version that is pinned here: the one on the PATH if it has this
# version, else the one in the cache, which is built the first time.
#
#   hack/cargo-tool.sh cargo-deny | cargo-mutants | cargo-cyclonedx | cargo-audit | mdbook
set -euo pipefail

features=()
case ${1:-} in
  cargo-deny) version=0.20.2 estimate='1 min' ;; # deny.toml is written for it
  cargo-mutants) version=27.1.0 estimate='5 min' ;; # .cargo/mutants.toml is
  cargo-cyclonedx) version=0.5.9 estimate='3 min' ;;
  cargo-audit) version=0.22.2 estimate='6 min' ;;
  mdbook) version=0.5.4 estimate='1 min' features=(--no-default-features --features search) ;; # crates/docs/site/book.toml is written for it
  *) sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
cache=${LICTOR_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lictor}/$1-$version
cached=$cache/bin/$1

# Cargo calls each of its subcommands in the same way.
fits() {
  local name=${1##*/}
  [ "$name" != "${name#cargo-}" ] || { [ "$("$1" --version 2>/dev/null)" = "$name v$version" ]; return; }
  [[ "$("$1" "${name#cargo-}" --version 2>/dev/null)" = *" $version" ]]
}

if found=$(command -v "$1") && fits "$found"; then
  echo "$found"
  exit
fi
if ! fits "$cached"; then
  mkdir -p "$cache"
  (
    flock 9
    fits "$cached" && exit
    echo "building $1 $version (once; about $estimate on two cores)" >&2
    # A program that runs for seconds need not be optimised for minutes. It is not built into this project's target directory, where
    # cargo would build it if CARGO_TARGET_DIR is set.
    CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_DEBUG=0 \
      CARGO_TARGET_DIR=$cache/target cargo install --quiet --locked "${features[@]}" --root "$cache" "$1@$version" >&2
    rm -rf "$cache/target"
  ) 9>"$cache/.lock"
fi
echo "$cached"
