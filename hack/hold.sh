# shellcheck shell=bash disable=SC2154
# What the scripts share that make something for as long as somebody holds the pipe to them: `SCRIPT hold ARGUMENTS` has a keeper,
# `SCRIPT keep ARGUMENTS`, which cleans up when its standard input ends. The script says where it is, by $here, where things are
# kept, by $cache, and where it logs, by $log.

# Passes its standard input on to a keeper, and waits for that. The keeper has a session of its own and the other end of a pipe:
# it sees the end of this process, of its parent or of the whole process group, whatever ended them, and cleans up.
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

# Somebody listens at this port of this machine.
listens() { (: <>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# Twenty ports from $base on, at which nobody listens, and which nobody else takes by this while this process lives.
reserve() {
  local try block lock
  mkdir -p "$cache/ports"
  for ((try = 0, block = RANDOM % 500; try < 500; try++, block = (block + 1) % 500)); do
    # Below the ports from which connections go out.
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

# Waits so many seconds for a command to succeed.
within() {
  local end=$((SECONDS + $1))
  until "${@:2}"; do
    [ "$SECONDS" -lt "$end" ] || { echo "not ${*:2} within $1 s" >>"$log"; return 1; }
    sleep 0.05
  done
}
