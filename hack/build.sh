#!/usr/bin/env bash
# Builds the program as it is published: static, and without the names of the build's directories. The Dockerfile calls it, too.
#
#   hack/build.sh [ARCHITECTURE]     amd64 or arm64. Default: this machine's. Prints the program's path
#
# The same sources, toolchain and C compiler give the same bytes, in whatever directory.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

found=$(hack/target.sh "$@")
read -r target gcc <<<"$found"

# This fetches all dependencies, and so creates the directories whose names must not be in the program.
cargo fetch --locked --target "$target" >&2
home=${CARGO_HOME:-$HOME/.cargo}
flags=(--remap-path-prefix="$PWD=/lictor")
for registry in "$home"/registry/src/*; do flags+=(--remap-path-prefix="$registry=/registry"); done

# Where the messages of conditions lead to.
[ -z "${DOCUMENTS:-}" ] || export LICTOR_DOCUMENTS=$DOCUMENTS

name=${target//-/_}
export "CC_$name=$gcc" "CFLAGS_$name=-U_FORTIFY_SOURCE -ffile-prefix-map=$home/registry/src=/registry"
export "CARGO_TARGET_${name^^}_LINKER=$gcc" "CARGO_TARGET_${name^^}_RUSTFLAGS="
CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f'; echo "${flags[*]}") cargo build --release --locked --bin lictor --target "$target" >&2
echo "${CARGO_TARGET_DIR:-$PWD/target}/$target/release/lictor"
