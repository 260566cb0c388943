#!/usr/bin/env bash
# Shows that the same sources give the same bytes: builds the program in the Dockerfile's stage, and again in a copy of the tree in
# another directory, with crates in another directory; then builds the image again without cached stages. About 15 min on two cores.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

directory=$(mktemp -d "${TMPDIR:-/tmp}/lictor-reproducible.XXXXXX")
trap 'rm -rf "$directory"' EXIT

same() {
  local one two
  one=$(sha256sum <"$2") two=$(sha256sum <"$3")
  echo "${one%% *}  $1"
  [ "$one" = "$two" ] || { echo "${two%% *}  $1, built again: it is not the same" >&2; exit 1; }
}

hack/image.sh "$directory/first.tar"
layer=$(tar -xOf "$directory/first.tar" manifest.json | sed -nE 's/.*"Layers":\["([^"]+)".*/\1/p')
tar -C "$directory" -xf "$directory/first.tar" "$layer"
tar -C "$directory" -xf "$directory/$layer" lictor

copy=$directory/a/copy/of/the/tree
mkdir -p "$copy/hack" "$directory/cargo"
cp -r Cargo.toml Cargo.lock src crates "$copy"
cp hack/{build,target}.sh "$copy/hack"
[ ! -f "${CARGO_HOME:-$HOME/.cargo}/config.toml" ] || cp "${CARGO_HOME:-$HOME/.cargo}/config.toml" "$directory/cargo"
again=$(CARGO_HOME=$directory/cargo CARGO_TARGET_DIR=$directory/target "$copy/hack/build.sh")
same "the program, built in $copy" "$directory/lictor" "$again"

LICTOR_IMAGE_AFRESH=yes hack/image.sh "$directory/second.tar"
same 'the image' "$directory/first.tar" "$directory/second.tar"
