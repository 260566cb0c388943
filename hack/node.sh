#!/usr/bin/env bash
# A Kubernetes control plane with real nodes that run containers: containerd, kubelet, kube-proxy, a bridge for the pods. It is for
# what simulated nodes can't show: probes, dying processes, Services that answer.
#
#   hack/node.sh hold NAME NODES [IMAGE.tar...]   creates it, loads the images, and prints two lines and an empty one when it can be
#                                                 used; deletes it when its standard input ends:
#
#   KUBECONFIG=/path       for this machine, which can reach the API server, Services and pods
#   HOST=172.31.0.254      the address of this machine for pods
#
#   hack/node.sh pack IMAGE.tar NAME:TAG PROGRAM… packs static programs as an image; busybox gets a link for each of its names.
#                                                 Pods name it with `imagePullPolicy: Never`. busybox:node exists already
#
#   hack/node.sh try                              prints in one line why this machine can't have nodes, and exits with 77
#
# Nodes are called node-1, node-2, … It takes orders, a line each, and answers each by the line `done`:
#
#   pause kubelet 2        SIGSTOP: the node goes silent, its containers and its kube-proxy run on; resume kubelet 2 continues it
#   kill node 2            kills everything in it at once, as if its power was cut
#   tell network 1         prints, on standard error, how the node forwards packets, and what its kube-proxy said last
#
# LICTOR_MIN_SYNC_PERIOD=100ms sets how soon kube-proxy acts on a change after another one. Its default is 1s.
#
# It needs root, cgroups, namespaces, bridges and overlay mounts. Where the machine lacks them, it says so in one line and exits with
# 77. Everything is in its own namespaces for processes, mounts and the network. The machine itself gets one network interface, an
# address, some routes, and a directory of cgroups, which are removed at the end. The nodes exist as long as a process holds the pipe
# to this one, even if that process is killed. It ignores SIGINT, because Ctrl-C also goes to the holder; SIGTERM deletes all.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${LICTOR_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lictor}

# shellcheck source=hack/hold.sh
. "$here/hold.sh"

usage() { sed -n '2,27s/^# \{0,1\}//p' "$0" >&2; exit 2; }

# --- Around it: on the machine itself ---

keep() {
  name=$1 nodes=$2 images=("${@:3}")
  trap '' PIPE # a reader that went away is an error of printf's, and the nodes are still to be deleted
  trap 'exit 143' TERM HUP
  "$here/node.sh" try
  "$here/tools.sh" etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kwok kwokctl kubelet kube-proxy node-root >/dev/null

  sweep
  directory=$(mktemp -d "${TMPDIR:-/tmp}/lictor-node-$name.XXXXXX")
  log=$directory/log plane='' link=''
  trap delete EXIT
  exec {mine}>"$directory/lock"
  flock "$mine"
  choose_network || { complain; exit 1; }
  pack "$directory/busybox.tar" busybox:node "$("$here/tools.sh" node-root)/usr/bin/busybox"
  mkdir "$directory/lictor"
  for hierarchy in $(cgroups); do
    mkdir "$hierarchy/${directory##*/}"
    # Otherwise, beside all other programs on the machine, the containers together would count as one process.
    [ ! -e "$hierarchy/${directory##*/}/cpu.shares" ] || echo 10240 >"$hierarchy/${directory##*/}/cpu.shares"
    [ ! -e "$hierarchy/${directory##*/}/cpu.weight" ] || echo 1000 >"$hierarchy/${directory##*/}/cpu.weight"
  done
  export name nodes directory log network link

  setpriv --pdeathsig KILL unshare --net --mount --pid --fork --kill-child --mount-proc \
    "$here/node.sh" plane "$directory/busybox.tar" "${images[@]}" <&0 {mine}>&- &
  plane=$!
  connect || { complain; exit 1; }
  wait "$plane" || { complain; exit 1; }
}

# Prints why there can't be a node here.
hindrance() {
  local program hierarchy
  [ "$(id -u)" = 0 ] || { echo 'it takes root'; return 1; }
  for program in ip unshare nsenter setpriv flock; do
    command -v "$program" >/dev/null || { echo "$program is missing (Debian: iproute2, util-linux)"; return 1; }
  done
  [ -n "$(cgroups)" ] || { echo 'no cgroups are mounted at /sys/fs/cgroup'; return 1; }
  { ip link add "lictor-$$" type veth peer name "lictor-$$-p" && ip link delete "lictor-$$"; } 2>/dev/null || { echo 'no network interfaces can be made'; return 1; }
  unshare --net --mount --pid --fork --mount-proc bash -c '
    set -e
    ip link add bridge0 type bridge || { echo "no network bridges"; exit 1; }
    mount -t tmpfs tmpfs /mnt && mkdir /mnt/lower /mnt/upper /mnt/work /mnt/merged
    mount -t overlay overlay -o lowerdir=/mnt/lower,upperdir=/mnt/upper,workdir=/mnt/work /mnt/merged || { echo "no overlay mounts"; exit 1; }
  ' 2>/dev/null || { echo 'no namespaces can be made'; return 1; }
  for hierarchy in $(cgroups); do
    { mkdir "$hierarchy/lictor-$$" && rmdir "$hierarchy/lictor-$$"; } 2>/dev/null || { echo "no cgroup can be made in $hierarchy"; return 1; }
  done
}

# Prints the root of each hierarchy. With version 2, there is one.
cgroups() {
  local directory
  for directory in /sys/fs/cgroup /sys/fs/cgroup/*/; do
    [ ! -L "${directory%/}" ] || continue
    [ ! -e "$directory/cgroup.procs" ] || echo "${directory%/}"
    [ ! -e "$directory/cgroup.controllers" ] || [ "$directory" != /sys/fs/cgroup ] || return 0
  done
}

# Finds a /16 network that this machine does not use. The interface's name reserves it.
choose_network() {
  local number
  for ((number = 31; number >= 16; number--)); do
    network=172.$number link=lictor$number
    [ -z "$(ip -4 route show root "$network.0.0/16"; ip -4 route show match "$network.0.0/16" | grep -v ^default)" ] || continue
    ip link add "$link" type veth peer name "${link}p" 2>>"$log" || continue
    # Its number tells it apart from a later one with that name.
    cp "/sys/class/net/$link/ifindex" "$directory/$link.link"
    return
  done
  link=''
  echo 'no network is free in 172.16.0.0/12' >>"$log"
  return 1
}

# Addresses: .0.1 is the control plane, .0.11 the first node, .0.254 the machine; .17.0/24 are the first node's pods; .128.0/17
# are Services, through the first node's kube-proxy.
connect() {
  local number own
  own=$(readlink /proc/self/ns/net)
  within 10 left "$plane" "$own" || return
  {
    ip link set "${link}p" netns "$plane" && ip address add "$network.0.254/24" dev "$link" && ip link set "$link" up &&
      ip route add "$network.128.0/17" via "$network.0.11" || return
    for ((number = 1; number <= nodes; number++)); do
      ip route add "$network.$((16 + number)).0/24" via "$network.0.$((10 + number))" || return
    done
  } >>"$log" 2>&1
}

# This process has moved to its own network namespace.
left() { [ "$(readlink "/proc/$1/ns/net")" != "$2" ]; }

complain() {
  local file
  {
    echo "hack/node.sh: the nodes have failed; the end of each log:"
    for file in "$log" "$directory"/*/*.log; do
      [ ! -s "$file" ] || { echo "--- ${file#"$directory/"}"; tail -n 8 "$file" | cut -c1-400; }
    done
  } >&2
}

delete() {
  # Its processes end with it, and so do its mounts and interfaces.
  [ -z "$plane" ] || { kill -KILL "$plane" 2>/dev/null || true; wait "$plane" 2>/dev/null || true; }
  [ -z "$link" ] || ip link delete "$link" 2>/dev/null || true
  within 20 remove "$directory" || true
}

# Its cgroups can be removed when the last process in them has ended.
remove() {
  local root
  for root in $(cgroups); do
    [ ! -d "$root/${1##*/}" ] || find "$root/${1##*/}" -depth -type d -exec rmdir {} + 2>/dev/null || return
  done
  rm -rf --one-file-system "$1"
}

# Removes what is left of those whose keeper was killed. Their network lives as long as connections that nobody has closed.
sweep() {
  local old lock link name log=/dev/null
  for old in "${TMPDIR:-/tmp}"/lictor-node-*/; do
    [ -e "$old/lock" ] || continue
    exec {lock}<"$old/lock"
    if flock --nonblock "$lock"; then
      for link in "$old"*.link; do
        name=$(basename "$link" .link)
        ! cmp -s "$link" "/sys/class/net/$name/ifindex" || ip link delete "$name"
      done
      within 20 remove "${old%/}" || true
    fi
    exec {lock}<&-
  done
}

# Makes an image like `docker save`.
pack() {
  local tar=$1 name=$2 programs=("${@:3}") program base layer applet
  (
    work=$(mktemp -d "${TMPDIR:-/tmp}/lictor-pack.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    mkdir -p "$work/root/"{bin,tmp,etc}
    for program in "${programs[@]}"; do
      install "$program" "$work/root/bin/$(basename "$program")"
      [ "$(basename "$program")" = busybox ] || continue
      for applet in $("$program" --list); do [ -e "$work/root/bin/$applet" ] || ln -s busybox "$work/root/bin/$applet"; done
    done
    base=$(basename "${programs[0]}")
    tar -C "$work/root" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -cf "$work/layer.tar" .
    layer=$(sha256sum "$work/layer.tar" | cut -d' ' -f1)
    cat >"$work/config.json" <<END
{"architecture": "$(architecture)", "os": "linux", "rootfs": {"type": "layers", "diff_ids": ["sha256:$layer"]},
 "config": {"Env": ["PATH=/bin"], "Cmd": ["/bin/$base", "sleep", "2147483647"]}}
END
    echo "[{\"Config\": \"config.json\", \"RepoTags\": [\"$name\"], \"Layers\": [\"layer.tar\"]}]" >"$work/manifest.json"
    tar -C "$work" -cf "$tar" manifest.json config.json layer.tar
  )
}

# The architecture's name in Go.
architecture() {
  case $(uname -m) in
    x86_64) echo amd64 ;;
    aarch64) echo arm64 ;;
    *) uname -m ;;
  esac
}

# --- Inside: the first process of a process namespace, with which all others end ---

plane() {
  local number tools
  tools=$("$here/tools.sh" kubectl)
  kubectl=$tools
  # The directory's removal also removes what cluster.sh leaves.
  export TMPDIR=$directory/lictor
  ip link set lo up
  # Its own address stays when cables come and go.
  ip link add nodes address 0a:00:00:00:00:01 type bridge
  ip address add "$network.0.1/24" dev nodes
  ip link set nodes up
  within 10 ip link set "${link}p" master nodes up >>"$log" 2>&1

  configure_plane >"$directory/kwok.yaml"
  exec {cluster}< <("$here/cluster.sh" hold "$name" 0 "$directory/kwok.yaml" < <(exec sleep infinity) 2>"$directory/lictor/cluster.log")
  # What needs no control plane starts beside it.
  for ((number = 1; number <= nodes; number++)); do
    ip route add "$network.$((16 + number)).0/24" via "$network.0.$((10 + number))"
    attach "$number" "$@"
  done
  read -r line <&"$cluster"
  sed "s#https://127.0.0.1:#https://$network.0.1:#" "${line#KUBECONFIG=}" >"$directory/.kubeconfig"
  mv "$directory/.kubeconfig" "$directory/kubeconfig"
  export KUBECONFIG=$directory/kubeconfig
  within 90 ready
  printf 'KUBECONFIG=%s\nHOST=%s\n\n' "$KUBECONFIG" "$network.0.254"

  while read -r order what number; do
    [[ $number =~ ^[1-9]$ && $number -le $nodes ]] || { echo "hack/node.sh: there is no node '$number'" >&2; exit 1; }
    case "$order $what" in
      'pause kubelet') in_node "$number" kill -STOP "$(<"$directory/node-$number/kubelet.pid")" ;;
      'resume kubelet') in_node "$number" kill -CONT "$(<"$directory/node-$number/kubelet.pid")" ;;
      'kill node') { kill -KILL "${members[$number]}"; wait "${members[$number]}" || true; } 2>/dev/null ;;
      'tell network') tell_network "$number" >&2 || true ;;
      *) echo "hack/node.sh: there is no order '$order $what'" >&2; exit 1 ;;
    esac
    echo 'done'
  done
}

# kwok is not used for real nodes. A silent node counts as lost after 8 s instead of 50, so that tests are shorter.
configure_plane() {
  cat <<END
apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokctlConfiguration
options:
  kubeApiserverCertSANs: [$network.128.1]
componentsPatches:
  - name: kube-apiserver
    extraArgs:
      - {key: bind-address, value: 0.0.0.0, override: true}
      - {key: advertise-address, value: $network.0.1}
      - {key: kubelet-preferred-address-types, value: InternalIP}
      - {key: service-cluster-ip-range, value: $network.128.0/17}
  - name: kube-controller-manager
    extraArgs:
      - {key: leader-elect, value: "false"}
      - {key: node-monitor-period, value: 1s, override: true}
      - {key: node-monitor-grace-period, value: 8s, override: true}
  - name: kwok-controller
    extraArgs:
      - {key: manage-all-nodes, value: "false", override: true}
      - {key: manage-nodes-with-annotation-selector, value: kwok.x-k8s.io/node=fake}
END
}

# Creates a node in its own namespaces, with a cable to the others.
attach() {
  local own member
  mkdir -p "$directory/node-$1/"{lib,log}
  own=$(readlink /proc/self/ns/net)
  setpriv --pdeathsig KILL unshare --net --mount --pid --fork --kill-child --mount-proc --propagation private \
    "$here/node.sh" node "$@" </dev/null >>"$directory/node-$1/node.log" 2>&1 &
  member=$!
  members[$1]=$member
  within 10 left "$member" "$own"
  ip link add "node-$1" type veth peer name eth0 netns "$member"
  ip link set "node-$1" master nodes up
}

in_node() {
  local init
  read -r init <"/proc/${members[$1]}/task/${members[$1]}/children" || true # that line has no end
  nsenter --target "$init" --pid --mount "${@:2}"
}

# For calls without an answer.
tell_network() {
  local init command address
  read -r init <"/proc/${members[$1]}/task/${members[$1]}/children" || true
  for command in 'ip route' 'ip neigh' 'ip -statistics link' 'cat /proc/net/stat/nf_conntrack'; do
    echo "== node-$1: $command"
    # shellcheck disable=SC2086 # these are words
    nsenter --target "$init" --pid --mount --net $command
  done
  echo "== node-$1: kube-proxy"
  tail -n 40 "$directory/node-$1/kube-proxy.log"
  echo '== the control plane'
  for address in $("$kubectl" get pods --all-namespaces --output jsonpath='{.items[*].status.podIP}'); do
    if timeout 1 bash -c ": </dev/tcp/$address/8080"; then echo "$address:8080 answers"; fi
  done
  "$kubectl" get pods,services,endpointslices,leaderelections --all-namespaces --output wide
}

ready() {
  local number
  for number in "${!members[@]}"; do
    kill -0 "${members[$number]}" 2>/dev/null || { echo "node-$number has ended" >>"$log"; exit 1; }
  done
  [ "$("$kubectl" get nodes -o jsonpath='{range .items[*]}{.status.conditions[?(@.type=="Ready")].status} {.spec.taints[*].key}{"\n"}{end}' \
    2>>"$log" | grep -cx 'True ')" = "$nodes" ]
}

# --- Inside of that: one node ---

node() {
  local number=$1 images=("${@:2}") other root image setting
  member=$directory/node-$number log=$directory/node-$number/node.log
  root=$("$here/tools.sh" node-root)
  kubelet=$("$here/tools.sh" kubelet)
  proxy=$("$here/tools.sh" kube-proxy)
  private "$root"

  ip link set lo up
  within 10 ip link set eth0 up
  ip address add "$network.0.$((10 + number))/24" dev eth0
  ip route add default via "$network.0.1"
  for ((other = 1; other <= nodes; other++)); do
    [ "$other" = "$number" ] || ip route add "$network.$((16 + other)).0/24" via "$network.0.$((10 + other))"
  done
  echo 1 >/proc/sys/net/ipv4/ip_forward
  # A node that has no rule for a Service yet would send packets for it back the way they came, and tell this machine to use that way.
  # It would do so for minutes.
  for setting in all default eth0; do echo 0 >"/proc/sys/net/ipv4/conf/$setting/send_redirects"; done

  configure_node "$number" "$root"
  # The next ones can't be restarted any more than a machine can: a test that kills one kills a node.
  containerd --config "$member/containerd.toml" >>"$member/containerd.log" 2>&1 &
  within 30 ctr version >/dev/null 2>&1
  for image in "${images[@]}"; do ctr --namespace k8s.io images import --no-unpack=false "$image" 2>&1 || ctr --namespace k8s.io images import "$image"; done
  within 90 test -e "$directory/kubeconfig"
  "$kubelet" --config "$member/kubelet.yaml" --kubeconfig "$directory/kubeconfig" --node-ip "$network.0.$((10 + number))" \
    --hostname-override "node-$number" >>"$member/kubelet.log" 2>&1 &
  echo $! >"$member/kubelet.pid"
  "$proxy" --config "$member/kube-proxy.yaml" --hostname-override "node-$number" >>"$member/kube-proxy.log" 2>&1 &
  wait
}

# The paths where these programs keep things are this node's own. The kernel's settings that a kubelet requires of a machine are not,
# so the kubelet gets files that say what it wants to read.
private() {
  local setting
  mount --make-rshared /
  mount -t tmpfs tmpfs /run
  mount --bind "$member/lib" /var/lib
  mount --bind "$member/log" /var/log
  for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 kernel/keys/root_maxkeys=1000000 \
    kernel/keys/root_maxbytes=25000000; do
    echo "${setting#*=}" >"/run/${setting//[\/=]/-}"
    mount --bind "/run/${setting//[\/=]/-}" "/proc/sys/${setting%=*}"
  done
  export PATH=$1/usr/sbin:$1/usr/bin:$PATH
  LD_LIBRARY_PATH=$(echo "$1"/usr/lib/*-linux-gnu)
  export LD_LIBRARY_PATH XTABLES_LIBDIR=$LD_LIBRARY_PATH/xtables
}

configure_node() {
  local number=$1 root=$2 group hierarchy
  group=/${directory##*/}/node-$number
  for hierarchy in $(cgroups); do mkdir -p "$hierarchy$group"; done
  mkdir -p "$member/cni"
  cat >"$member/cni/bridge.conflist" <<END
{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "pods", "isGateway": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "$network.$((16 + number)).0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
END
  # restrict_oom_score_adj: not every machine may lower it.
  cat >"$member/containerd.toml" <<END
version = 2
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "busybox:node"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$root/usr/lib/cni"
    conf_dir = "$member/cni"
END
  # Its disk is the machine's, however full that is.
  cat >"$member/kubelet.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: $group
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
resolvConf: ""
volumePluginDir: /var/lib/kubelet/plugins
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 1Mi, nodefs.available: 1Mi, imagefs.available: 1Mi}
nodeStatusUpdateFrequency: 2s
nodeLeaseDurationSeconds: 8
END
  cat >"$member/kube-proxy.yaml" <<END
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
clientConnection: {kubeconfig: $directory/kubeconfig}
clusterCIDR: $network.16.0/20
conntrack: {maxPerCore: 0}
iptables: {minSyncPeriod: ${LICTOR_MIN_SYNC_PERIOD:-1s}}
oomScoreAdj: 0
END
}

case ${1:-} in
  hold | keep)
    [[ ${2:-} =~ ^[a-z0-9]([a-z0-9-]*[a-z0-9])?$ && ${3:-} =~ ^[1-9]$ ]] || usage
    "$@"
    exit ;;
  try) reason=$(hindrance) || { echo "hack/node.sh: no real node on this machine: $reason" >&2; exit 77; } ;;
  pack) [ $# -ge 4 ] || usage; "$@" ;;
  plane | node) declare -A members=(); "$@" ;; # by keep, and by plane
  *) usage ;;
esac
