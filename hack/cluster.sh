#!/usr/bin/env bash
# A real Kubernetes control plane with simulated nodes (kwok), for the tests, the demo and the benchmarks.
#
#   hack/cluster.sh hold NAME [NODES] [torture | FILE.yaml]
#                                                   creates it (3 nodes by default), and prints one line, KUBECONFIG=/path, when
#                                                   it can be used; deletes it when its standard input ends
#
# FILE.yaml is a further configuration for kwokctl. With `torture`, etcd stores everything as JSON, and a second line, ETCD=http://…,
# says where to read it. It then also takes orders, a line each, and answers each by one line, PID=…, with the component's process, or
# with nothing if there is none:
#
#   kill etcd      SIGKILL; start etcd starts it again, with its data. The other component is kube-apiserver
#   pause etcd     SIGSTOP; resume etcd continues it
#
# The cluster exists as long as a process holds the pipe to this one, even if that process is killed. This ignores SIGINT, because
# Ctrl-C also goes to the holder. SIGTERM deletes the cluster at once. Several clusters with different names can run side by side.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${LICTOR_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lictor}

# shellcheck source=hack/hold.sh
. "$here/hold.sh"

usage() { sed -n '2,16s/^# \{0,1\}//p' "$0" >&2; exit 2; }

keep() {
  name=$1 nodes=$2 storage='' settings='' order='' component=''
  declare -A commands=() locks=() # of what is killed: how kwokctl started it, and what keeps its port
  case $3 in
    '') ;;
    torture) storage=torture settings=$here/kwok/torture.yaml ;;
    *) settings=$3 ;;
  esac
  trap '' PIPE # a reader that went away is an error of printf's, and the cluster is still to be deleted
  trap 'exit 143' TERM HUP
  local tools
  tools=$("$here/tools.sh" etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kwok kwokctl)
  { read -r etcd; read -r apiserver; read -r controllers; read -r scheduler; read -r kubectl; read -r kwok; read -r kwokctl; } <<<"$tools"

  directory=$(mktemp -d "${TMPDIR:-/tmp}/lictor-cluster-$name.XXXXXX")
  log=$directory/log
  export KWOK_WORKDIR=$directory KUBECONFIG=$directory/kubeconfig
  trap delete EXIT

  mkdir -p "$cache"
  # kwokctl takes the first free ports. Until this cluster listens on them, another one would take the same.
  (flock 9; create 9>&-) 9>"$cache/.cluster.lock" || { complain; exit 1; }
  printf 'KUBECONFIG=%s\n' "$KUBECONFIG"
  [ -z "$storage" ] || printf 'ETCD=http://127.0.0.1:%s\n' "$(port etcdPort)"
  while read -r order component; do
    [ -n "$storage" ] || continue
    [[ $component =~ ^(etcd|kube-apiserver)$ ]] || { echo "hack/cluster.sh: there is no '$component'" >&2; exit 1; }
    case $order in
      kill) [ ! -s "$(pid_file)" ] || stop ;;
      start) [ -s "$(pid_file)" ] || start ;;
      pause) signal STOP; stopped "$(pid)" ;;
      resume) signal CONT ;;
      *) echo "hack/cluster.sh: there is no order '$order'" >&2; exit 1 ;;
    esac
    printf 'PID=%s\n' "$(pid)"
  done
}

pid_file() { echo "$directory/clusters/$name/pids/$component.pid"; }

pid() { cat "$(pid_file)" 2>/dev/null || true; }

# While nothing listens on its port, no other cluster is created that could take the port. Several can wait like this: a shared lock.
stop() {
  local lock
  exec {lock}>"$cache/.cluster.lock"
  flock --shared "$lock"
  locks[$component]=$lock
  commands[$component]=$(tr '\0' '\n' <"/proc/$(pid)/cmdline")
  signal KILL
  rm -f "$(pid_file)"
}

# The API server does not listen before etcd does, which may be started later. The sender of the order waits until it answers.
start() {
  local command key lock=${locks[$component]}
  case $component in
    etcd) key=etcdPort ;;
    kube-apiserver) key=kubeApiserverPort ;;
  esac
  mapfile -t command <<<"${commands[$component]}"
  (
    for held in "${locks[@]}"; do exec {held}>&-; done
    cd "$directory/clusters/$name"
    exec setpriv --pdeathsig KILL "${command[@]}" </dev/null >>"logs/$component.log" 2>&1
  ) &
  echo $! >"$(pid_file)"
  within 30 listens "$(port "$key")" </dev/null >/dev/null 2>&1 & # this holds the lock, too
  exec {lock}>&-
  unset "locks[$component]"
}

port() { sed -nE "s/^  $1: //p" "$directory/clusters/$name/kwok.yaml"; }

# A process that has ended is gone: it may be a child of this one, or not.
signal() {
  local pid
  pid=$(pid)
  [ -n "$pid" ] || return 0
  kill "-$1" "$pid" 2>/dev/null || true
  [ "$1" = KILL ] || return 0
  wait "$pid" 2>/dev/null || true
  while kill -0 "$pid" 2>/dev/null; do sleep 0.01; done
}

create() {
  # kwokctl calls a kubectl of its own choice, the one on the PATH or a download.
  PATH=$(dirname "$kubectl"):$PATH KWOK_KUBECTL_BINARY=$kubectl "$kwokctl" create cluster --name "$name" --runtime binary \
    --config "$here/kwok/cluster.yaml" --config "$here/kwok/stages.yaml" --config "$here/kwok/slow-deletion.yaml" \
    ${settings:+--config "$settings"} \
    --etcd-binary "$etcd" --kube-apiserver-binary "$apiserver" --kube-controller-manager-binary "$controllers" \
    --kube-scheduler-binary "$scheduler" --kwok-controller-binary "$kwok" \
    --secure-port=true --kube-authorization=true --kubeconfig "$KUBECONFIG" --timeout 60s >>"$log" 2>&1 || return
  within 30 started || return
  "$kwokctl" --name "$name" scale node --replicas "$nodes" >>"$log" 2>&1 || return
  within 30 schedulable
}

# Every port that kwokctl chose is taken. On a busy machine, a component may have given up waiting for an API server that took 10 s to
# start. This starts it again.
started() {
  listening && return
  "$kwokctl" start cluster --name "$name" >>"$log" 2>&1 || true
  return 1
}

listening() {
  local port ports
  ports=$(sed -nE 's/^  (etcdPeer|etcd|kubeApiserver|kubeControllerManager|kubeScheduler|kwokController)Port: //p' "$directory/clusters/$name/kwok.yaml")
  for port in $ports; do listens "$port" || return; done
}

# The nodes are ready, and a pod can be created, which needs its namespace's service account.
schedulable() {
  local taints
  "$kubectl" get serviceaccount default -n default -o name >>"$log" 2>&1 || return
  taints=$("$kubectl" get nodes -o jsonpath='{.items[*].spec.taints[*].key}' 2>>"$log") || return
  [ -z "$taints" ]
}

complain() {
  local file
  {
    echo "hack/cluster.sh: no control plane came up; the end of each log:"
    for file in "$log" "$directory/clusters/$name/logs/"*.log; do
      [ ! -s "$file" ] || { echo "--- $(basename "$file")"; tail -n 8 "$file" | cut -c1-400; }
    done
  } >&2
}

delete() {
  "$kwokctl" delete cluster --name "$name" --kubeconfig "$KUBECONFIG" >>"$log" 2>&1 || true
  rm -rf "$directory"
}

case ${1:-} in
  hold | keep)
    [[ ${2:-} =~ ^[a-z0-9]([a-z0-9-]*[a-z0-9])?$ && ${3:-3} =~ ^[0-9]+$ && ${4:-torture} =~ ^(torture|.*\.yaml)$ && $# -le 4 ]] || usage
    "$1" "$2" "${3:-3}" "${4:-}"
    exit ;;
  *) usage ;;
esac
