#!/usr/bin/env bash
# Builds the kubectl plugin for a system on which the operator does not run, on Linux, with zig as the C compiler and the linker. For
# Linux hack/build.sh builds the operator's program, which is the plugin, too.
#
#   hack/plugin.sh darwin-amd64 | darwin-arm64 | windows-amd64 | windows-arm64     prints the program's path
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[[ ${1:-} = *-* ]] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
found=$(hack/target.sh "$1")
read -r target _ <<<"$found"
tools=$(hack/tools.sh zig cargo-zigbuild)
{ read -r zig; read -r zigbuild; } <<<"$tools"

# What zig and its wrappers keep is outside of the work tree.
cache=${LICTOR_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lictor}
export CARGO_ZIGBUILD_ZIG_PATH=$zig CARGO_ZIGBUILD_CACHE_DIR=$cache/zigbuild ZIG_GLOBAL_CACHE_DIR=$cache/zig

# As in hack/build.sh, the names of the build's directories are not in the program.
cargo fetch --locked --target "$target" >&2
home=${CARGO_HOME:-$HOME/.cargo}
flags=(--remap-path-prefix="$PWD=/lictor")
for registry in "$home"/registry/src/*; do flags+=(--remap-path-prefix="$registry=/registry"); done
# The system's own check of certificates is in frameworks, and Apple gives their SDK to owners of a Mac only. The linker needs no more
# than the names that are used.
[[ $target != *-apple-* ]] || flags+=(-Lframework="$PWD/hack/frameworks")
export "CFLAGS_${target//-/_}=-ffile-prefix-map=$home/registry/src=/registry"
[ -z "${DOCUMENTS:-}" ] || export LICTOR_DOCUMENTS=$DOCUMENTS

CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f'; echo "${flags[*]}") "$zigbuild" zigbuild --release --locked --package lictor --bin lictor --target "$target" >&2
suffix=''
[[ $target != *-windows-* ]] || suffix=.exe
echo "${CARGO_TARGET_DIR:-$PWD/target}/$target/release/lictor$suffix"
