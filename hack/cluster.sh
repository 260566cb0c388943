#!/usr/bin/env bash
# A real Kubernetes control plane with simulated nodes (kwok), for the tests, the demo and the benchmarks.
#
#   hack/cluster.sh hold NAME [NODES]     makes it (3 nodes unless told otherwise) and prints one line, KUBECONFIG=/path, when
#                                         it is usable; deletes it when its standard input ends
#
# Whoever holds the pipe to it holds the cluster, and need not live to let it go. SIGINT is ignored, because Ctrl-C also goes to
# whoever holds the pipe; SIGTERM deletes the cluster at once. Several may run side by side, under names of their own.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${LICTOR_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lictor}

# shellcheck source=hack/hold.sh
. "$here/hold.sh"

usage() { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }

keep() {
  name=$1 nodes=$2
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
  # kwokctl takes the first ports on which nobody listens: until this cluster does, another one would take the same.
  (flock 9; create 9>&-) 9>"$cache/.cluster.lock" || { complain; exit 1; }
  printf 'KUBECONFIG=%s\n' "$KUBECONFIG"
  while read -r _; do :; done
}

create() {
  # kwokctl asks the API server by a kubectl of its own choice, the one on the PATH or a download.
  PATH=$(dirname "$kubectl"):$PATH KWOK_KUBECTL_BINARY=$kubectl "$kwokctl" create cluster --name "$name" --runtime binary \
    --config "$here/kwok/cluster.yaml" --config "$here/kwok/stages.yaml" --config "$here/kwok/slow-deletion.yaml" \
    --etcd-binary "$etcd" --kube-apiserver-binary "$apiserver" --kube-controller-manager-binary "$controllers" \
    --kube-scheduler-binary "$scheduler" --kwok-controller-binary "$kwok" \
    --secure-port=true --kube-authorization=true --kubeconfig "$KUBECONFIG" --timeout 60s >>"$log" 2>&1 || return
  within 30 started || return
  "$kwokctl" --name "$name" scale node --replicas "$nodes" >>"$log" 2>&1 || return
  within 30 schedulable
}

# Every port that kwokctl chose is taken. On a busy machine some may have given up on an API server that took 10 s to come up:
# those are started again.
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

# The nodes are ready, and a pod may be created: each needs its namespace's service account.
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
    [[ ${2:-} =~ ^[a-z0-9]([a-z0-9-]*[a-z0-9])?$ && ${3:-3} =~ ^[0-9]+$ && $# -le 3 ]] || usage
    "$1" "$2" "${3:-3}"
    exit ;;
  *) usage ;;
esac
