#!/usr/bin/env bash
# Builds the image lictor:VERSION from the Dockerfile with buildah, without a registry and without a daemon, as an archive for
# `docker load` and `ctr images import`.
#
#   hack/image.sh [TAR]     Default: target/image/lictor.tar. Prints its path, its size and the image's id
#
# Where the Dockerfile takes Debian with Rust and gcc from a registry, this uses this machine: its own /usr and Rust's toolchain,
# read-only. The cache keeps crates, their compiled code, and the stages of the Dockerfile, so that the image of unchanged sources
# takes seconds. It needs root, or the right to create user namespaces.
set -euo pipefail
tar=${1:+$(realpath -m "$1")}
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tar=${tar:-$PWD/target/image/lictor.tar}
cache=${LICTOR_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lictor}/image
version=$(sed -n 's/^version = "\(.*\)"/\1/p;T;q' Cargo.toml)
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
[ -z "$(git status --porcelain 2>/dev/null)" ] || revision+=-dirty

# This runs here, because the stage that builds has no rustup.
hack/target.sh >/dev/null
buildah=$(hack/tools.sh buildah)
# A user who is not root gets a namespace in which they are.
[ "$(id -u)" = 0 ] || exec "$buildah" unshare "$PWD/hack/image.sh" "$tar"
mkdir -p "$cache" "$(dirname "$tar")"
exec {lock}>"$cache/.lock"
flock "$lock"

# buildah reads these files instead of the machine's own.
export CONTAINERS_STORAGE_CONF=$cache/storage.conf CONTAINERS_CONF=$cache/containers.conf CONTAINERS_REGISTRIES_CONF=$cache/registries.conf
export BUILDAH_ISOLATION=chroot TMPDIR=$cache/tmp
mkdir -p "$TMPDIR" "$cache/helpers"
# buildah asks for more than the machine may allow, unless it is told the limits.
limits="\"nofile=$(ulimit -Sn):$(ulimit -Hn)\", \"nproc=$(ulimit -Su):$(ulimit -Hu)\""
printf '[storage]\ndriver = "vfs"\ngraphroot = "%s/storage"\nrunroot = "%s/run"\n' "$cache" "$cache" >"$CONTAINERS_STORAGE_CONF"
printf '[engine]\nhelper_binaries_dir = ["%s/helpers"]\n[containers]\ndefault_ulimits = [%s]\n' "$cache" "${limits//unlimited/-1}" >"$CONTAINERS_CONF"
: >"$CONTAINERS_REGISTRIES_CONF"
printf '{"default": [{"type": "insecureAcceptAnything"}]}\n' >"$cache/policy.json"
# buildah looks for the program that sets up networks, but never calls it: a chroot uses the machine's network.
ln -sf /bin/false "$cache/helpers/netavark"

log=$(mktemp)
working=''
finish() {
  local status=$?
  [ -z "$working" ] || "$buildah" rm "$working" >/dev/null 2>&1 || true
  [ "$status" = 0 ] || cat "$log" >&2
  rm -f "$log" "$tar.$$"
}
trap finish EXIT

# Old images are not worth more than this. The compiled crates are elsewhere.
if [ "$(du -sm "$cache/storage" 2>/dev/null | cut -f1)" -gt 2000 ] 2>/dev/null; then "$buildah" rmi --all --force >"$log" 2>&1; fi

# The base of the stage that builds. It is empty, except for the mount points of this machine's directories, and cargo's settings for
# its registry.
toolchain=$(rustc --print sysroot)
volumes=(--volume /usr:/usr:ro --volume "$toolchain:/toolchain:ro")
base() {
  local root directory name
  working=$("$buildah" from scratch)
  root=$("$buildah" mount "$working")
  mkdir -p "$root"/{usr,toolchain,etc,tmp,root}
  chmod 1777 "$root/tmp"
  for directory in bin lib lib64; do
    if [ -L "/$directory" ]; then ln -s "usr/$directory" "$root/$directory"; else mkdir "$root/$directory"; fi
  done
  if [ -f "${CARGO_HOME:-$HOME/.cargo}/config.toml" ]; then
    mkdir "$root/.cargo"
    cp "${CARGO_HOME:-$HOME/.cargo}/config.toml" "$root/.cargo"
  fi
  "$buildah" config --env PATH=/toolchain/bin:/usr/bin:/bin "$working"
  for name in $(compgen -e | grep -E '^(CARGO_(HTTP|NET|REGISTRIES|REGISTRY|SOURCE)_.*|SSL_CERT_(FILE|DIR)|(https?|no|all)_proxy)$' -i | grep -v TOKEN); do
    "$buildah" config --env "$name=${!name}" "$working"
  done
  # Another toolchain is another base, so the cached stage is not used.
  "$buildah" config --label "toolchain=$(rustc -vV; gcc --version | head -1)" "$working"
  find "$root" -mindepth 1 -exec touch -hd @0 {} +
  "$buildah" commit --signature-policy "$cache/policy.json" --timestamp 0 --rm "$working" localhost/lictor-builder
  working=''
}
for directory in bin lib lib64; do [ -L "/$directory" ] || [ ! -d "/$directory" ] || volumes+=(--volume "/$directory:/$directory:ro"); done
for directory in /etc/ssl /etc/alternatives /etc/pki; do [ ! -d "$directory" ] || volumes+=(--volume "$directory:$directory:ro"); done
base >"$log" 2>&1

echo "building lictor:$version (the first time about 10 min on two cores, after a change 3 min)" >&2
# These are not arguments of the Dockerfile: a cached stage would count as right for any value of them.
at=org.opencontainers.image
labels=(--label "$at.version=$version" --label "$at.revision=$revision" --label "$at.source=${SOURCE:-}")
# The image has no time in it, so that the same sources give the same image.
"$buildah" build --signature-policy "$cache/policy.json" --layers --pull=never --network host "${volumes[@]}" \
  --timestamp 0 --build-arg BUILDER=localhost/lictor-builder "${labels[@]}" --tag "lictor:$version" ${LICTOR_IMAGE_AFRESH:+--no-cache} . >"$log" 2>&1
"$buildah" push --signature-policy "$cache/policy.json" "lictor:$version" "docker-archive:$tar.$$:lictor:$version" >"$log" 2>&1
mv "$tar.$$" "$tar"
echo "$tar $(stat -c %s "$tar") bytes, lictor:$version sha256:$("$buildah" inspect --type image --format '{{.FromImageID}}' "lictor:$version")"
