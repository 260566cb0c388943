#!/usr/bin/env bash
# Checks that this machine has what a build needs, before anything is built. Prints each part that is missing, with the command that
# installs it, and exits with 1 if there is one.
#
#   hack/require.sh [rust | go | c | make | debian | npm | python | PROGRAM]...     PROGRAM: setsid, flock or setpriv
set -euo pipefail

missing=()
miss() { missing+=("$1"); }

has() { command -v "$1" >/dev/null; }

# at_least VERSION LEAST: compares two numbers of a version.
at_least() {
  local major minor
  IFS=. read -r major minor _ <<<"$1"
  [[ $major =~ ^[0-9]+$ && $minor =~ ^[0-9]+$ ]] && ((major > ${2%.*} || (major == ${2%.*} && minor >= ${2#*.})))
}

rust() {
  local version sysroot host
  { has cargo && has rustc; } || { miss 'Rust 1.89 or newer: https://rustup.rs, or on Debian: apt install rustup, then rustup default stable'; return; }
  # Without a toolchain, rustup's own cargo and rustc are there and do not work.
  { version=$(rustc --version) && cargo --version >/dev/null; } 2>/dev/null || { miss 'a Rust toolchain: rustup default stable'; return; }
  version=${version#rustc }
  at_least "${version%% *}" 1.89 || miss "Rust 1.89 or newer, and this is ${version%% *}: rustup update stable"
  sysroot=$(rustc --print sysroot)
  host=$(rustc -vV | sed -n 's/^host: //p')
  compgen -G "$sysroot/lib/rustlib/$host/lib/libstd-*" >/dev/null ||
    miss "Rust's standard library: rustup target add $host, or on Debian: apt install libstd-rust-dev"
}

go_() {
  local version tools root part parts=()
  has go || { miss 'Go 1.26 or newer: https://go.dev/dl'; return; }
  # Not from a directory with a go.mod, for which go may fetch another version of itself.
  version=$(cd / && GOTOOLCHAIN=local go env GOVERSION 2>/dev/null) || { miss 'a Go that works: https://go.dev/dl'; return; }
  version=${version#go}
  # From 1.21 on, go fetches the version that a go.mod asks for, unless it may not.
  if ! at_least "$version" 1.26 && ! { at_least "$version" 1.21 && [ "$(cd / && go env GOTOOLCHAIN)" != local ]; }; then
    miss "Go 1.26 or newer, and this is $version: https://go.dev/dl"
  fi
  tools=$(cd / && GOTOOLCHAIN=local go env GOTOOLDIR) root=$(cd / && GOTOOLCHAIN=local go env GOROOT)
  for part in compile asm link; do
    [ -x "$tools/$part" ] || parts+=("$part")
  done
  [ "${#parts[@]}" = 0 ] || miss "parts of Go, ${parts[*]} in $tools: install Go anew from https://go.dev/dl, or on Debian: apt install golang-go"
  [ -f "$root/src/runtime/proc.go" ] || miss "Go's standard library, $root/src: install Go anew from https://go.dev/dl, or on Debian: apt install golang-src"
}

# Rust links by the C compiler, and some crates have C in them.
c() {
  local directory failed=''
  has cc || { miss 'a C compiler, cc: apt install gcc libc6-dev'; return; }
  directory=$(mktemp -d "${TMPDIR:-/tmp}/lictor-require.XXXXXX")
  printf '#include <stdlib.h>\nint main(void) { return EXIT_SUCCESS; }\n' >"$directory/main.c"
  cc -o "$directory/main" "$directory/main.c" >/dev/null 2>&1 || failed=1
  rm -rf "$directory"
  [ -z "$failed" ] || miss 'the headers and libraries of C, without which cc builds nothing: apt install libc6-dev'
}

debian() {
  local program
  for program in apt-get dpkg-deb; do has "$program" || miss "$program, of a Debian machine"; done
}

python() { python3 -m pip --version >/dev/null 2>&1 || miss 'Python 3 with pip: apt install python3-pip'; }

for part in "$@"; do
  case $part in
    rust | c | debian | python) "$part" ;;
    go) go_ ;;
    make) has make || miss 'GNU make: apt install make' ;;
    npm) has npm || miss 'npm: apt install npm' ;;
    setsid | flock | setpriv) has "$part" || miss "$part: apt install util-linux" ;;
    *) sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
done
[ "${#missing[@]}" != 0 ] || exit 0
{
  echo 'this is missing on this machine:'
  printf '  %s\n' "${missing[@]}"
} >&2
exit 1
