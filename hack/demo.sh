#!/usr/bin/env bash
# Shows lictor at work: elects a leader among three pods, deletes it, and shows which pod takes over and how soon.
#
#   hack/demo.sh [KUBECONFIG]     `make demo` and `make demo KUBECONFIG=/path` call it
#   hack/demo.sh --store STORE    `make demo STORE=consul`, bucket or hub: two clusters that share it (hack/demo-clusters.sh)
#
# Without an argument it runs in its own control plane (hack/cluster.sh). With a file it runs in the namespace lictor-demo of that
# cluster, and removes at the end what it created, and nothing else. On a terminal it stays until Ctrl-C. Otherwise it ends by itself,
# and its exit code says whether everything happened.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")

# shellcheck disable=SC2034  # hack/progress.sh uses it
build_logs=$root/target/build-logs

# shellcheck source=hack/progress.sh
. "$here/progress.sh"
# shellcheck source=hack/demo-clusters.sh
. "$here/demo-clusters.sh"

main() {
  given='' store=lease steps=7
  case $# in
    0) ;;
    1) given=$1 ;;
    2) [[ "$1 $2" =~ ^--store\ (consul|bucket|hub)$ ]] || usage; store=$2 steps=9 ;;
    *) usage ;;
  esac
  work='' watcher='' step=0 title='' namespace=default prompt='' kubectl=''
  declare -gA operators=() kubeconfigs=() logs=()
  held=() leashes=()
  trap finish EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  check_programs
  make_work_directory

  next 'building lictor and the programs of the demo (the first time 10 to 12 min on two cores)'
  build_all
  if [ "$store" != lease ]; then
    show_clusters
    return
  fi
  if [ -n "$given" ]; then
    next "using the cluster of $given"
    use_cluster
  else
    next 'starting a Kubernetes control plane with three simulated nodes (about 5 s)'
    start_cluster
  fi
  next 'installing the CRDs of LeaderElection and ElectionClass'
  install_kinds
  next 'starting the operator'
  start_operator demo
  next 'applying examples/service: three pods, and an election with a Service'
  elect
  next 'what there is now'
  show
  next 'deleting the leader'
  fail_over
  invite
}

usage() { sed -n '4,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }

next() {
  step=$((step + 1)) title=$1
  printf '\n%s/%s %s…\n' "$step" "$steps" "$title"
}

say() { printf '    %s\n' "$*"; }

fail() {
  printf '    %s\n' "$*" >&2
  exit 1
}

check_programs() {
  local parts=(rust c setsid flock)
  [ -z "$given" ] || [ -r "$given" ] || fail "there is no file $given to read"
  programs=(etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kwok kwokctl)
  case $store in
    consul) programs+=(consul) ;;
    bucket) programs+=(versitygw) ;;
  esac
  [ -z "$given" ] || programs=(kubectl)
  if [ -n "$given" ] && command -v kubectl >/dev/null; then programs=(); fi
  [ "${#programs[@]}" = 0 ] || parts+=(go)
  "$here/require.sh" "${parts[@]}"
}

# This process writes down how to undo each step. Another process, the sweeper, does it when this one ends, even by kill -9: the
# sweeper is out of the terminal's reach, and holds the other end of a pipe, the leash.
make_work_directory() {
  work=$(mktemp -d "${TMPDIR:-/tmp}/lictor-demo.XXXXXX")
  : >"$work/undo"
  exec {leash}> >(exec setsid "$here/demo.sh" --sweep "$work")
  sweeper=$!
}

undo_later() { printf '%q ' "$@" >>"$work/undo" && echo >>"$work/undo"; }

# The demo's own control plane is removed as a whole.
undo_in_cluster_later() { [ -z "$given" ] || undo_later "$@"; }

sweep() {
  trap '' INT TERM HUP PIPE
  cat >/dev/null
  local lines i
  mapfile -t lines <"$1/undo"
  for ((i = ${#lines[@]} - 1; i >= 0; i--)); do
    eval "${lines[i]}" >>"$1/sweep.log" 2>&1 || { tail -n 3 "$1/sweep.log"; echo "not undone: ${lines[i]}"; } >&2
  done
  rm -rf "$1"
}

stop() {
  local tries
  kill "$1" 2>/dev/null || return 0
  for ((tries = 0; tries < 100; tries++)); do
    kill -0 "$1" 2>/dev/null || return 0
    sleep 0.1
  done
  kill -KILL "$1" 2>/dev/null || true
}

# Both at a time: each of them alone leaves a core idle for minutes, while it downloads, or compiles one big crate, or links. The program
# is not optimised, because that takes minutes, and `make test` needs most of what is compiled here.
build_all() {
  cd "$root"
  build_scratch=$work/build
  mkdir "$build_scratch"
  build lictor alone cargo build --locked --bin lictor
  undo_later stop_group "${build_pids[lictor]}"
  if [ "${#programs[@]}" != 0 ]; then
    build programs alone "$here/tools.sh" "${programs[@]}"
    undo_later stop_group "${build_pids[programs]}"
  fi
  wait_for_builds || fail 'the build failed'
  lictor=${CARGO_TARGET_DIR:-$root/target}/debug/lictor
  [ -x "$lictor" ] || fail "cargo built no $lictor"
}

stop_group() { kill -TERM -- "-$1" 2>/dev/null || true; }

# Runs a program that keeps something until its standard input is closed. The program describes it in the file $work/NAME.
hold() {
  local leash_of
  : >"$work/$1"
  exec {leash_of}> >(alone "${@:2}" >"$work/$1")
  held+=("$!") leashes+=("$leash_of")
}

# Runs a program without this process's ends of pipes. With them, it would keep alive what this process keeps.
alone() { let_go; exec "$@"; }

let_go() {
  local fd
  for fd in "$leash" "${leashes[@]}"; do exec {fd}>&-; done
}

# Waits for a line NAME=VALUE of a program that hold started, and prints the value.
told() {
  local holder=$1 name=$2 what=$3 line
  until line=$(grep -m 1 "^$name=" "$work/$what"); do
    kill -0 "$holder" 2>/dev/null || return
    sleep 0.1
  done
  echo "${line#*=}"
}

start_cluster() {
  hold cluster "$here/cluster.sh" hold demo
  kubeconfig=$(told "${held[0]}" KUBECONFIG cluster) || fail 'the control plane did not come up'
  kubectl=$("$here/tools.sh" kubectl)
  say "$("$kubectl" --kubeconfig "$kubeconfig" version | tail -n 1), KUBECONFIG=$kubeconfig"
}

use_cluster() {
  kubeconfig=$given
  kubectl=$(command -v kubectl) || kubectl=$("$here/tools.sh" kubectl)
  kube version >/dev/null || fail "the cluster of $given does not answer"
  namespace='lictor-demo'
  ! kube get namespace "$namespace" >/dev/null 2>&1 ||
    fail "the namespace $namespace exists already, and its content may be yours: look at it, then kubectl delete namespace $namespace"
  kube create namespace "$namespace" >/dev/null
  undo_in_cluster_later "$kubectl" --kubeconfig "$kubeconfig" delete namespace "$namespace" --timeout=120s
  say "in its namespace $namespace, which is removed at the end"
}

kube() { "$kubectl" --kubeconfig "$kubeconfig" --namespace "$namespace" "$@"; }

install_kinds() {
  local name names missing=0 present=0
  "$lictor" crd >"$work/crds.yaml"
  names=$(kube create --dry-run=client -o name -f "$work/crds.yaml")
  for name in $names; do
    if kube get "$name" >/dev/null 2>&1; then present=$((present + 1)); else missing=$((missing + 1)); fi
  done
  if [ "$present" = 0 ]; then
    "$lictor" crd --apply --kubeconfig "$kubeconfig" >/dev/null
    undo_in_cluster_later "$kubectl" --kubeconfig "$kubeconfig" delete -f "$work/crds.yaml" --timeout=60s
  elif [ "$missing" = 0 ]; then
    say 'they exist already, and stay as they are; an operator that serves this cluster takes part'
  else
    fail 'only one of the two CRDs is installed in this cluster: use another cluster'
  fi
}

start_operator() {
  local scope=()
  [ -z "$given" ] || scope=(--namespaces "$namespace")
  logs[$1]=$work/operator-$1.log
  alone setsid "$lictor" run --kubeconfig "$kubeconfig" --lease-namespace "$namespace" --listen 127.0.0.1:0 "${scope[@]}" \
    >>"${logs[$1]}" 2>&1 </dev/null &
  operators[$1]=$!
  undo_later stop "$!"
  say "its log: ${logs[$1]}"
}

elect() {
  undo_in_cluster_later remove_elections "$kubectl" "$kubeconfig" "$namespace"
  kube apply -f "$root/examples/service" | sed 's/^/    /'
  within 180 three_ready_pods
  within 60 elected
  say "the leader is $leader"
}

# An election with the finalizer of an operator that is gone would block the removal of its namespace and its CRD.
remove_elections() {
  "$1" --kubeconfig "$2" --namespace "$3" delete leaderelections --all --timeout=20s && return
  "$1" --kubeconfig "$2" --namespace "$3" get leaderelections -o name | xargs -r -n 1 \
    "$1" --kubeconfig "$2" --namespace "$3" patch --type=merge -p '{"metadata":{"finalizers":null}}'
}

three_ready_pods() { [ "$(kube get deployment web -o jsonpath='{.status.readyReplicas}')" = 3 ]; }

# The election, the label and the Service agree about the leader.
elected() {
  local address pods ready
  leader=$(kube get leaderelection web -o jsonpath='{.status.leader.podName}')
  pods=$(kube get pods -l app=web,role=leader -o jsonpath='{.items[*].metadata.name}')
  [ -n "$leader" ] && [ "$pods" = "$leader" ] || return
  address=$(kube get pod "$leader" -o jsonpath='{.status.podIP}')
  ready=$(kube get endpointslices -l kubernetes.io/service-name=web-leader \
    -o jsonpath='{.items[?(@.addressType=="IPv4")].endpoints[?(@.conditions.ready==true)].addresses[*]}')
  [ "$ready" = "$address" ]
}

within() {
  local end=$((SECONDS + $1)) what=${*:2} which
  until "${@:2}" 2>"$work/error"; do
    for which in "${!operators[@]}"; do
      kill -0 "${operators[$which]}" 2>/dev/null || fail "the operator $which ended"
    done
    [ "$SECONDS" -lt "$end" ] || { cat "$work/error" >&2; fail "not ${what//_/ } within $1 s"; }
    sleep 0.1
  done
}

show() {
  run get leaderelection
  run get pods -L role
  run get lease
  run get endpointslices -l kubernetes.io/service-name=web-leader
  say "The Service web-leader reaches $leader only."
}

run() {
  typed "$@"
  kube "$@" | sed 's/^/    /'
  echo
}

typed() { say "$prompt\$ kubectl$([ "$namespace" = default ] || echo " -n $namespace") $*"; }

fail_over() {
  old=$leader
  observe
  typed delete pod "$old"
  kube delete pod "$old" --wait=false >/dev/null
  within 60 succeeded
  stop "$watcher"
  run get leaderelection
  run get pods -L role
  local took
  took=$(kube get leaderelection web -o jsonpath="{.status.history[?(@.leaderName==\"$leader\")].durationMilliseconds}")
  say "$leader took over from $old."
  say "From when lictor saw the cause until the label was confirmed: ${took%% *} ms (status.history)."
  say "From the old leader's end to the new leader's label, as a kubectl get pods --watch saw it: $(observed) ms."
}

# Records when each change of the pods arrives.
observe() {
  : >"$work/observed"
  alone "$kubectl" --kubeconfig "$kubeconfig" -n "$namespace" get pods -l app=web --watch --output-watch-events \
    -o jsonpath='{.object.metadata.name} {.type}{.object.metadata.deletionTimestamp} {.object.metadata.labels.role}{"\n"}' \
    > >(let_go; while read -r line; do echo "${EPOCHREALTIME//[.,]/} $line"; done >"$work/observed") \
    2>/dev/null &
  watcher=$!
  undo_later stop "$watcher"
  within 20 watching
}

watching() { [ "$(wc -l <"$work/observed")" -ge 3 ]; }

succeeded() {
  elected && [ "$leader" != "$old" ] &&
    [ -n "$(kube get leaderelection web -o jsonpath="{.status.history[?(@.leaderName==\"$leader\")].durationMilliseconds}")" ] &&
    [ -n "$(observed)" ]
}

observed() {
  awk -v old="$old" -v new="$leader" '
    $2 == old && $3 != "ADDED" && $3 != "MODIFIED" && !from { from = $1 }
    $2 == new && $4 == "leader" && from { printf "%.0f", ($1 - from) / 1000; exit }' "$work/observed"
}

invite() {
  printf '\nIt works.\n'
  [ -t 1 ] || return 0
  local name=kubectl
  command -v kubectl >/dev/null || name=$kubectl
  [ "$namespace" = default ] || name+=" -n $namespace"
  printf 'To play with it, type in another terminal:\n\n'
  say "export KUBECONFIG=$(realpath "$kubeconfig")"
  say "$name get leaderelection web --watch      # who leads"
  say "$name delete pod -l app=web,role=leader   # another takes over"
  say "$name annotate pod -l app=web,role=leader lictor.dev/never-leader=true"
  say "$name describe leaderelection web         # why, and since when"
  say "tail -f ${logs[demo]}"
  stay
}

stay() {
  printf '\nCtrl-C stops everything and removes it.\n'
  trap 'echo; exit 0' INT
  wait -n "${operators[@]}" || true
  fail 'an operator ended'
}

finish() {
  local status=$? fd pid log
  trap '' INT TERM HUP
  set +e
  stop_builds
  if [ "$status" != 0 ] && [ "$status" != 130 ] && [ "$status" != 143 ] && [ "$step" != 0 ]; then
    printf '\nmake demo: failed at step %s/%s, %s\n' "$step" "$steps" "$title" >&2
    for log in "${logs[@]}"; do
      [ ! -s "$log" ] || { printf 'The end of %s:\n' "$log" && tail -n 20 "$log"; } >&2
    done
  fi
  if [ -n "$work" ]; then
    printf '\nstopping, and removing what was made here…\n'
    exec {leash}>&-
    wait "$sweeper"
    for fd in "${leashes[@]}"; do exec {fd}>&-; done
    for pid in "${held[@]}"; do wait "$pid"; done
    echo 'done: nothing is left behind'
  fi
  exit "$status"
}

if [ "${1:-}" = --sweep ]; then sweep "$2"; else main "$@"; fi; exit
