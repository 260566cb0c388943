#!/usr/bin/env bash
# Toxiproxy, a proxy between two programs that disturbs their connection, for the tests.
#
#   hack/toxiproxy.sh hold [NAME]     starts it, prints its addresses when it answers, and ends it when its standard input ends
#
# It prints a line TOXIPROXY=127.0.0.1:PORT, its API, and a line TOXIPROXY_LISTEN=…, 19 consecutive addresses for proxies, which no
# other program takes meanwhile. Several can run side by side.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${LICTOR_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lictor}

# shellcheck source=hack/hold.sh
. "$here/hold.sh"

usage() { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }

keep() {
  name=$1 server=''
  trap '' PIPE # a reader that went away is an error of printf's, and the server is still to be ended
  trap 'exit 143' TERM HUP
  toxiproxy=$("$here/tools.sh" toxiproxy-server)
  log=$(mktemp "${TMPDIR:-/tmp}/lictor-toxiproxy-$name.XXXXXX")
  trap delete EXIT
  { reserve && start && within 30 answering; } || { complain; exit 1; }
  printf 'TOXIPROXY=127.0.0.1:%s\nTOXIPROXY_LISTEN=' "$base"
  for ((port = base + 1; port < base + 20; port++)); do printf '127.0.0.1:%s ' "$port"; done
  printf '\n'
  while read -r _; do :; done
}

start() {
  setpriv --pdeathsig KILL "$toxiproxy" -host 127.0.0.1 -port "$base" </dev/null >>"$log" 2>&1 &
  server=$!
}

answering() { kill -0 "$server" 2>/dev/null && listens "$base"; }

complain() {
  {
    echo "hack/toxiproxy.sh: Toxiproxy did not come up; the end of its log:"
    tail -n 8 "$log" | cut -c1-400
  } >&2
}

delete() {
  [ -z "$server" ] || { kill -KILL "$server" && wait "$server"; } 2>/dev/null || true
  rm -f "$log"
}

case ${1:-} in
  hold | keep)
    [[ ${2:-test} =~ ^[a-z0-9]([a-z0-9-]*[a-z0-9])?$ && $# -le 2 ]] || usage
    "$1" "${2:-test}"
    exit ;;
  *) usage ;;
esac
