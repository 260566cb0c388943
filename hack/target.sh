#!/usr/bin/env bash
# Makes sure that this machine can build the published program: that it has a C compiler, and Rust's standard library for the target,
# which rustup adds. Prints the target's name and the compiler's.
#
#   hack/target.sh [ARCHITECTURE]     amd64 or arm64, for Linux. Default: this machine's
#   hack/target.sh SYSTEM-ARCHITECTURE     darwin or windows: there zig is the compiler, and hack/plugin.sh brings it
#   hack/target.sh --name …                only the target's name
set -euo pipefail

only_name=''
[ "${1:-}" != --name ] || { only_name=yes; shift; }
case ${1:-$(uname -m)} in
  amd64 | x86_64) target=x86_64-unknown-linux-musl ;;
  arm64 | aarch64) target=aarch64-unknown-linux-musl ;;
  darwin-amd64) target=x86_64-apple-darwin ;;
  darwin-arm64) target=aarch64-apple-darwin ;;
  windows-amd64) target=x86_64-pc-windows-gnu ;;
  windows-arm64) target=aarch64-pc-windows-gnullvm ;;
  *) echo "hack/target.sh: '$1' is not built: amd64, arm64, darwin-amd64, darwin-arm64, windows-amd64 or windows-arm64" >&2; exit 2 ;;
esac

[ -z "$only_name" ] || { echo "$target"; exit; }

compiler=zig
if [[ $target = *-linux-* ]]; then
  compiler=${target%%-*}-linux-gnu-gcc
  # Debian names the compiler by its target, even the machine's own. Elsewhere the machine's own may only be called cc.
  command -v "$compiler" >/dev/null || [[ $target != "$(uname -m)"-* ]] || compiler=cc
  command -v "$compiler" >/dev/null || { echo "hack/target.sh: $compiler is missing, ring and the linking need it: install Debian's gcc or gcc-aarch64-linux-gnu" >&2; exit 1; }
fi

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
echo "$target $compiler"
