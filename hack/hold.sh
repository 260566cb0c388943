# shellcheck shell=bash
# What the scripts share that make something for as long as somebody holds the pipe to them: `SCRIPT hold ARGUMENTS` has a keeper,
# `SCRIPT keep ARGUMENTS`, which cleans up when its standard input ends. The script is in the directory $here, and has a $log.

# Passes its standard input on to a keeper, and waits for that. The keeper has a session of its own and the other end of a pipe:
# it sees the end of this process, of its parent or of the whole process group, whatever ended them, and cleans up.
hold() {
  local feeder keeper status=0 pipe
  trap '' INT
  # shellcheck disable=SC2154  # the script says where it is
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

# Waits so many seconds for a command to succeed.
within() {
  local end=$((SECONDS + $1))
  until "${@:2}"; do
    # shellcheck disable=SC2154  # the script says where the log is
    [ "$SECONDS" -lt "$end" ] || { echo "not ${*:2} within $1 s" >>"$log"; return 1; }
    sleep 0.05
  done
}
