#!/usr/bin/env bash
# Makes sure that Rust's standard library for the published program is installed, and prints that target's name.
#
#   hack/target.sh [ARCHITECTURE]     amd64 or arm64, this machine's unless told otherwise
set -euo pipefail

case ${1:-$(uname -m)} in
  amd64 | x86_64) target=x86_64-unknown-linux-musl ;;
  arm64 | aarch64) target=aarch64-unknown-linux-musl ;;
  *) echo "hack/target.sh: '$1' is not built: amd64 or arm64" >&2; exit 2 ;;
esac

toolchain=$(rustc --print sysroot)
there() { [ -d "$toolchain/lib/rustlib/$target/lib" ]; }
fail() { echo "hack/target.sh: Rust in $toolchain has no standard library for $target, and $1" >&2; exit 1; }

if ! there; then
  command -v rustup >/dev/null ||
    fail "there is no rustup to add it: install Rust by rustup (https://rustup.rs), or your distribution's package of that library"
  [ -w "$toolchain/lib/rustlib" ] || fail "it can't be written to: let its owner, $(stat -c %U "$toolchain"), run 'rustup target add $target'"
  rustup target add "$target" >&2 || fail "'rustup target add $target' failed: see above"
  there || fail "rustup has added it to another toolchain: put rustup's rustc ($(rustup which rustc)) first on the PATH"
fi
echo "$target"
