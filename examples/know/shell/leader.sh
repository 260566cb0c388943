#!/bin/sh
# Says when this pod begins to lead, and when it stops. Needs only a POSIX shell, cat and sleep.
#
#   leader.sh [DIRECTORY [SECONDS]]
#
# DIRECTORY is where the downwardAPI volume is mounted, from the root; default: /etc/podinfo. It looks there each so many seconds; default: 1.
directory=${1:-/etc/podinfo} seconds=${2:-1}

# Prints the term if this pod leads, else nothing.
leading_term() {
  for _ in 1 2 3; do
    # Kubelet never writes to a file that can be seen. It writes both files to a new directory, lets the link ..data point to it,
    # and deletes the old directory. `cd` follows the link once, so both files are read there: they belong together.
    if cd "$directory/..data" && role=$(cat role) && term=$(cat term); then
      case $term in *[!0-9]*) term= ;; esac
      [ "$role" != leader ] || echo "$term"
      return
    fi
    # Kubelet has just deleted that directory, and there is a newer one; or there are no such files.
  done 2>/dev/null
}

# Put your program here: begin with this term, or stop at once if it is empty.
changed() {
  echo "${1:+leading in term }${1:-not leading}"
}

# Kubelet does not change the files of a pod that is being deleted: SIGTERM is how it learns that it leads no longer.
trap 'changed ""; exit 0' TERM
before=unknown
while :; do
  term=$(leading_term)
  [ "$term" = "$before" ] || changed "$term"
  before=$term
  sleep "$seconds" &
  wait "$!"
done
