#!/usr/bin/env bash
# Runs the commands of README.md and docs/install.md, one after the other, on a machine without anything of lictor: in a fresh clone of
# what is committed, with an empty HOME and empty directories for everything that Rust, Go and lictor keep. Prints how many minutes
# each command took, even if one fails or is interrupted, and exits with 1 if one failed. Leaves nothing behind.
#
#   hack/from-nothing.sh [NAME...]     demo test e2e-node consul cluster image. Default: all of them
#
# `cluster` is "From the sources" of docs/install.md, and the README's quick start, on simulated nodes. It leaves out `helm test`,
# because nothing runs on those nodes: `make e2e-node` runs it. Takes over an hour and some 15 GB on two cores.
set -euo pipefail

usage() { sed -n '6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
fail() { echo "hack/from-nothing.sh: $1" >&2; exit 1; }

all() {
  local names=("$@") name
  [ $# != 0 ] || names=(demo test e2e-node consul cluster image)
  for name in "${names[@]}"; do command_of "$name" >/dev/null; done
  cd "$(dirname "${BASH_SOURCE[0]}")/.."
  [ -z "$(git status --porcelain)" ] || echo 'hack/from-nothing.sh: what is not committed is not in the clone' >&2
  version=$(sed -nE 's/^ARG BUILDER=rust:([0-9.]+)-.*/\1/p' Dockerfile)

  directory=$(mktemp -d "${TMPDIR:-/tmp}/lictor-nothing.XXXXXX")
  table='' status=0 phase=''
  trap finish EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  # This comes before HOME changes: HOME may have the configuration that allows git to read this directory.
  git clone --quiet --no-hardlinks . "$directory/lictor"
  empty
  cd "$directory/lictor"
  timed 'Rust' rust
  for name in "${names[@]}"; do timed "$(command_of "$name")" bash -c "$(command_of "$name")"; done
}

command_of() {
  case $1 in
    demo) echo 'make demo' ;;
    test) echo 'make test' ;;
    e2e-node) echo 'make e2e-node' ;;
    consul) echo 'make demo STORE=consul' ;;
    cluster) echo 'hack/from-nothing.sh follow' ;;
    image) echo 'make image' ;;
    *) usage ;;
  esac
}

# The registries of crates and modules are the machine's choice, not lictor's.
empty() {
  local cargo=${CARGO_HOME:-$HOME/.cargo} proxy sums
  if command -v go >/dev/null; then
    proxy=$(go env GOPROXY) sums=$(go env GOSUMDB)
    export GOPROXY=$proxy GOSUMDB=$sums
  fi
  mkdir "$directory"/{home,rustup,cargo,go,go-build,go-mod,cache,tmp}
  [ ! -f "$cargo/config.toml" ] || cp "$cargo/config.toml" "$directory/cargo"
  export HOME=$directory/home RUSTUP_HOME=$directory/rustup CARGO_HOME=$directory/cargo GOPATH=$directory/go GOCACHE=$directory/go-build \
    GOMODCACHE=$directory/go-mod XDG_CACHE_HOME=$directory/cache TMPDIR=$directory/tmp
  unset LICTOR_CACHE CARGO_TARGET_DIR RUSTUP_TOOLCHAIN
}

# The README assumes Rust. This is the version that the image is built with.
rust() {
  if command -v rustup >/dev/null; then
    rustup toolchain install --profile minimal --no-self-update "$version" && rustup default "$version"
  else
    echo "there is no rustup: this is the machine's own $(rustc --version)"
  fi
}

# Continues after a failure, because the commands do not need each other.
timed() {
  local start=$SECONDS failed='' minutes
  phase=$1
  printf '\n=== %s\n' "$phase"
  # Without a terminal, the demo ends by itself.
  "${@:2}" </dev/null 2>&1 | cat || failed=', which failed' status=1
  minutes=$(((SECONDS - start) * 10 / 60))
  table+=$(printf '%5d.%d min  %s' $((minutes / 10)) $((minutes % 10)) "$phase$failed")$'\n'
  phase=''
}

finish() {
  local code=$? try
  trap '' INT TERM HUP
  printf '\n%s' "$table"
  [ -z "$phase" ] || echo "interrupted: $phase"
  cd /
  # Processes of the commands may take a moment to end. Go makes its modules read-only.
  for ((try = 0; try < 30; try++)); do
    chmod -R u+w "$directory/go-mod" 2>/dev/null || true
    rm -rf --one-file-system "$directory" 2>/dev/null && break
    sleep 1
  done
  [ ! -e "$directory" ] || echo "hack/from-nothing.sh: $directory could not be removed" >&2
  [ "$code" != 0 ] || code=$status
  exit "$code"
}

# --- In the clone: what README.md and docs/install.md say for a cluster of one's own ---

follow() {
  local tools told line
  tools=$(hack/tools.sh kubectl helm)
  mkdir -p "$HOME/.kube" target
  told=$(mktemp -u "${TMPDIR:-/tmp}/lictor-told.XXXXXX")
  mkfifo "$told"
  exec {plane}> >(exec hack/cluster.sh hold "nothing-$$" 3 >"$told")
  keeper=$!
  read -r -t 1200 line <"$told" || fail 'there is no control plane'
  rm "$told"
  cp "${line#KUBECONFIG=}" "$HOME/.kube/config"
  while read -r line; do PATH=$(dirname "$line"):$PATH; done <<<"$tools"

  says 'cargo build --release'
  says 'target/release/lictor crd | kubectl apply -f -'
  kubectl wait --for=condition=established --timeout=60s crd/leaderelections.lictor.dev
  says 'target/release/lictor run --kubeconfig ~/.kube/config --lease-namespace default --listen 127.0.0.1:8080' {plane}>&- &
  operator=$!
  trap 'kill "$operator" 2>/dev/null || true' EXIT
  says 'kubectl apply -f examples/service/'
  kubectl wait --for=condition=Elected --timeout=60s leaderelection/web
  says 'kubectl get pods -L role'
  says 'kubectl get lease web'
  says 'kubectl get endpointslices -l kubernetes.io/service-name=web-leader'
  says 'kubectl delete pod -l app=web,role=leader'
  says 'kubectl describe leaderelection web'
  says 'kubectl delete -f examples/service/'
  kill "$operator"
  wait "$operator" || fail 'the operator does not stop as it should'
  says 'target/release/lictor withdraw --kubeconfig ~/.kube/config --lease-namespace default --delete-crds'
  # No node pulls the image, so any registry does.
  # shellcheck disable=SC2034  # says expands it
  REGISTRY=localhost:5000
  # shellcheck disable=SC2016
  says 'helm install lictor charts/lictor --namespace lictor --create-namespace --wait --set image.repository=$REGISTRY/lictor'
  exec {plane}>&-
  wait "$keeper"
}

# Runs a command from the pages, word by word, but with a free port.
says() {
  grep -qF -- "$1" README.md docs/install.md || fail "README.md and docs/install.md do not say: $1"
  printf '$ %s\n' "$1"
  [[ $1 != *' run '* ]] || exec bash -c "exec ${1/127.0.0.1:8080/127.0.0.1:0}"
  eval "$1"
}

case ${1:-} in
  follow) follow ;;
  *) all "$@" ;;
esac
