#!/usr/bin/env bash
# Real Consul servers on 127.0.0.1, for the tests, the demo and the benchmarks.
#
#   hack/consul.sh hold dev|dev-1.8|three|small [NAME]     starts them, prints where they are when they can be used, and deletes them
#                                                    when its standard input ends
#
#   dev        one agent as `consul agent -dev` starts it: its state in memory, without ACLs and TLS
#   dev-1.8    the same with Consul 1.8.7
#   three      three servers with their data on disk; only HTTPS, for clients with a certificate of their CA; ACLs, which deny
#              everything that no token allows
#   small      one server with its data on a disk of 80 MiB, which is created again with each start; this needs root
#
# It prints lines NAME=VALUE, and then an empty line:
#
#   CONSUL_BINARY           the program of their version
#   CONSUL_HTTP_ADDR        the first server; Consul's own programs read this variable and the next ones
#   CONSUL_CACERT, CONSUL_CLIENT_CERT, CONSUL_CLIENT_KEY, CONSUL_HTTP_TOKEN
#                           three: the CA, a client's certificate and its key, and the token with all rights
#   CONSUL_CAKEY            three: the key of the CA
#   CONSUL_1_ADDR, CONSUL_1_DNS, CONSUL_1_RPC, CONSUL_1_PID, CONSUL_1_DATA, CONSUL_1_LOG, CONSUL_1_CONFIG
#                           of each server, 1 to 3: its API, its DNS (TCP and UDP), its address for the others, its process, data
#                           (not of dev), log and configuration, which it reads again on SIGHUP
#
# It reads orders, a line each, and answers each by one line, CONSUL_1_PID=…, with the server's process, or with
# nothing if there is none:
#
#   kill 1      SIGKILL; start 1 starts the server again, at the same ports and, in three, with the same data
#   pause 1     SIGSTOP; resume 1 continues it
#
# The servers exist as long as a process holds the pipe to this one, even if that process is killed. This ignores SIGINT, because
# Ctrl-C also goes to the holder. SIGTERM deletes them at once. Several can run side by side; NAME tells them apart in a list of
# processes.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${LICTOR_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lictor}

# shellcheck source=hack/hold.sh
. "$here/hold.sh"

usage() { sed -n '2,32s/^# \{0,1\}//p' "$0" >&2; exit 2; }

keep() {
  kind=$1 name=$2 count=1 program=consul pids=()
  trap '' PIPE # a reader that went away is an error of printf's, and the servers are still to be deleted
  trap 'exit 143' TERM HUP
  case $kind in
    dev-1.8) program='consul-1.8' ;;
    three) count=3 ;;
  esac
  consul=$("$here/tools.sh" "$program")
  unset "${!CONSUL_@}" # those of a Consul that is in use on this machine

  directory=$(mktemp -d "${TMPDIR:-/tmp}/lictor-consul-$name.XXXXXX")
  log=$directory/log
  trap delete EXIT
  { reserve && create && within 60 usable; } || { complain; exit 1; }

  print "BINARY=$consul"
  # shellcheck disable=SC2153  # the variables that Consul's own programs read
  print "HTTP_ADDR=$CONSUL_HTTP_ADDR"
  [ "$kind" != three ] || print "CACERT=$CONSUL_CACERT" "CLIENT_CERT=$CONSUL_CLIENT_CERT" "CLIENT_KEY=$CONSUL_CLIENT_KEY" \
    "HTTP_TOKEN=$CONSUL_HTTP_TOKEN" "CAKEY=$directory/tls/consul-agent-ca-key.pem"
  for ((server = 1; server <= count; server++)); do
    print "${server}_ADDR=$(address "$server")" "${server}_DNS=127.0.0.1:$(port "$server" dns)"
    print "${server}_RPC=127.0.0.1:$(port "$server" server)" "${server}_PID=${pids[$server]}"
    [ "$kind" != three ] || print "${server}_DATA=$directory/$server"
    print "${server}_LOG=$directory/$server.log" "${server}_CONFIG=$directory/$server.hcl"
  done
  printf '\n'
  while read -r order server; do
    [[ $server =~ ^[1-9]$ && $server -le $count ]] || { echo "hack/consul.sh: there is no server '$server'" >&2; exit 1; }
    case $order in
      kill) signal KILL "$server"; pids[server]='' ;;
      start) [ -n "${pids[$server]}" ] || start "$server" ;;
      pause) signal STOP "$server"; stopped "${pids[$server]}" ;;
      resume) signal CONT "$server" ;;
      *) echo "hack/consul.sh: there is no order '$order'" >&2; exit 1 ;;
    esac
    print "${server}_PID=${pids[$server]}"
  done
}

print() { printf 'CONSUL_%s\n' "$@"; }

# Prints the port of a server for http, dns, server or serf_lan.
port() {
  local offset
  case $2 in
    http) offset=0 ;;
    dns) offset=1 ;;
    server) offset=2 ;;
    serf_lan) offset=3 ;;
  esac
  echo $((base + ($1 - 1) * 4 + offset))
}

address() {
  local scheme=http
  [ "$kind" != three ] || scheme=https
  echo "$scheme://127.0.0.1:$(port "$1" http)"
}

create() {
  local server
  CONSUL_HTTP_ADDR=$(address 1)
  export CONSUL_HTTP_ADDR
  [ "$kind" != three ] || certify || return
  for ((server = 1; server <= count; server++)); do
    configure "$server" >"$directory/$server.hcl"
    start "$server"
  done
}

certify() {
  local server
  mkdir "$directory/tls"
  (
    cd "$directory/tls"
    "$consul" tls ca create
    for ((server = 1; server <= count; server++)); do "$consul" tls cert create -server -dc dc1 -additional-ipaddress 127.0.0.1; done
    "$consul" tls cert create -client -dc dc1
  ) >>"$log" 2>&1 || return
  export CONSUL_CACERT=$directory/tls/consul-agent-ca.pem CONSUL_CLIENT_CERT=$directory/tls/dc1-client-consul-0.pem
  export CONSUL_CLIENT_KEY=$directory/tls/dc1-client-consul-0-key.pem
  CONSUL_HTTP_TOKEN=$(</proc/sys/kernel/random/uuid)
  export CONSUL_HTTP_TOKEN
}

# All other settings have their defaults, above all those of sessions and locks.
configure() {
  local server=$1 certificate=$directory/tls/dc1-server-consul-$(($1 - 1)) http=http none=https others='' other grpc_tls='grpc_tls = -1'
  [ "$kind" != three ] || http=https none=http
  [ "$kind" != dev-1.8 ] || grpc_tls=''
  cat <<END
node_name = "server-$server"
bind_addr = "127.0.0.1"
client_addr = "127.0.0.1"
disable_update_check = true
connect { enabled = false }
performance { raft_multiplier = 1 }
ports {
  $http = $(port "$server" http)
  $none = -1
  dns = $(port "$server" dns)
  server = $(port "$server" server)
  serf_lan = $(port "$server" serf_lan)
  serf_wan = -1
  grpc = -1
  $grpc_tls
}
END
  [ "$kind" != small ] || printf '%s\n' 'server = true' 'bootstrap_expect = 1' "data_dir = \"$directory/$server\""
  [ "$kind" = three ] || return 0
  for ((other = 1; other <= count; other++)); do others+=${others:+, }\"127.0.0.1:$(port "$other" serf_lan)\"; done
  cat <<END
server = true
bootstrap_expect = $count
retry_join = [$others]
retry_interval = "1s"
data_dir = "$directory/$server"
acl {
  enabled = true
  default_policy = "deny"
  tokens {
    initial_management = "$CONSUL_HTTP_TOKEN"
    agent = "$CONSUL_HTTP_TOKEN"
  }
}
tls {
  defaults {
    ca_file = "$CONSUL_CACERT"
    cert_file = "$certificate.pem"
    key_file = "$certificate-key.pem"
    verify_incoming = true
    verify_outgoing = true
  }
  internal_rpc { verify_server_hostname = true }
}
END
}

start() {
  local mode=(-dev) disk=()
  [[ $kind = dev* ]] || mode=()
  # The disk is unmounted with the process.
  # shellcheck disable=SC2016  # the inner shell expands it
  [ "$kind" != small ] || disk=(unshare --mount sh -c 'mkdir -p "$0" && mount -t tmpfs -o size=80m none "$0" && exec "$@"' "$directory/$1")
  setpriv --pdeathsig KILL "${disk[@]}" "$consul" agent "${mode[@]}" -config-file "$directory/$1.hcl" </dev/null >>"$directory/$1.log" 2>&1 &
  pids[$1]=$!
}

signal() {
  local pid=${pids[$2]}
  [ -n "$pid" ] || return 0
  kill "-$1" "$pid" 2>/dev/null || true
  [ "$1" != KILL ] || wait "$pid" 2>/dev/null || true
}

# Each server knows a leader, which has entered each into the catalog: only then can a session be created there. The leader also knows
# the token.
usable() {
  local server known
  for ((server = 1; server <= count; server++)); do
    kill -0 "${pids[$server]}" 2>/dev/null || { echo "server $server has ended" >>"$log"; return 1; }
    known=$("$consul" catalog nodes -http-addr "$(address "$server")" 2>>"$log" | grep -c '^server-') || return
    [ "$known" = "$count" ] || return
  done
}

complain() {
  local file
  {
    echo "hack/consul.sh: no Consul came up; the end of each log:"
    for file in "$directory/"{log,*.log}; do
      [ ! -s "$file" ] || { echo "--- $(basename "$file")"; tail -n 8 "$file" | cut -c1-400; }
    done
  } >&2
}

delete() {
  local server
  for ((server = 1; server <= count; server++)); do [ -z "${pids[$server]:-}" ] || signal KILL "$server"; done
  rm -rf "$directory"
}

case ${1:-} in
  hold | keep)
    [[ ${2:-} =~ ^(dev|dev-1\.8|three|small)$ && ${3:-test} =~ ^[a-z0-9]([a-z0-9-]*[a-z0-9])?$ && $# -le 3 ]] || usage
    "$1" "$2" "${3:-test}"
    exit ;;
  *) usage ;;
esac
