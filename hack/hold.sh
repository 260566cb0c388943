# shellcheck shell=bash disable=SC2154
# Functions for scripts that keep something for as long as a process holds the pipe to them. `SCRIPT hold ARGUMENTS` starts a keeper,
# `SCRIPT keep ARGUMENTS`, which cleans up when its standard input ends. The script sets $here to its own directory, $cache to that of
# the cache, and $log to its log.

# Passes its standard input on to a keeper, and waits for it. The keeper has its own session and the other end of a pipe. It sees the
# end of this process, of its parent or of the whole process group, however they end, and cleans up.
hold() {
  local feeder keeper status=0 pipe
  trap '' INT
  exec {pipe}> >(exec setsid "$here/${0##*/}" keep "$@")
  keeper=$!
  cat <&0 >&"$pipe" &
  feeder=$!
  exec {pipe}>&-
  trap 'kill "$feeder" 2>/dev/null || true' TERM HUP
  wait "$keeper" || status=$?
  # A signal ends the wait, not the keeper.
  while kill -0 "$keeper" 2>/dev/null; do status=0; wait "$keeper" || status=$?; done
  kill "$feeder" 2>/dev/null || true
  exit "$status"
}

# Returns whether a process listens on this port of this machine.
listens() { (: <>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# Waits until a process that got SIGSTOP has stopped. It has when each of its threads has. Until then it may still answer.
stopped() {
  while [ -n "$1" ] && grep -qsE '^State:[[:space:]]+[RSD]' "/proc/$1/task"/*/status; do sleep 0.01; done
}

# Reserves twenty ports from $base on, on which nothing listens. No other call of this takes them while this process lives.
reserve() {
  local try block lock
  mkdir -p "$cache/ports"
  for ((try = 0, block = RANDOM % 500; try < 500; try++, block = (block + 1) % 500)); do
    # These are below the ports of outgoing connections.
    base=$((20000 + block * 20))
    exec {lock}>"$cache/ports/$base"
    flock --nonblock "$lock" && unused && return
    exec {lock}>&-
  done
  echo 'no ports are free' >>"$log"
  return 1
}

unused() {
  local port
  for ((port = base; port < base + 20; port++)); do ! listens "$port" || return; done
}

# Waits this many seconds for a command to succeed.
within() {
  local end=$((SECONDS + $1))
  until "${@:2}"; do
    [ "$SECONDS" -lt "$end" ] || { echo "not ${*:2} within $1 s" >>"$log"; return 1; }
    sleep 0.05
  done
}
