# shellcheck shell=bash disable=SC2154
# Builds that run side by side, with one line of progress. A script sources this, sets $build_logs to a directory, and calls
# stop_builds in its EXIT trap.
#
#   build NAME COMMAND...   starts a build; its whole output goes to $build_logs/NAME.log
#   wait_for_builds         waits for all builds; shows on a terminal what each is doing, in a line that is rewritten, and says how
#                           long each took. If one fails, it stops the others, prints the last lines of its log, and returns 1
#   stop_builds             ends the builds that still run, with all their processes, and removes their temporary files

declare -A build_pids=() build_starts=()
build_order=() build_scratch='' build_line=''

# Each build has a process group of its own: a compiler has processes of its own, and all of them have to end. A build gets no
# Ctrl-C by itself then.
build() {
  local name=$1
  mkdir -p "$build_logs"
  [ -n "$build_scratch" ] || build_scratch=$(mktemp -d "${TMPDIR:-/tmp}/lictor-build.XXXXXX")
  set -m
  TMPDIR=$build_scratch "${@:2}" >"$build_logs/$name.log" 2>&1 </dev/null &
  build_pids[$name]=$!
  set +m
  build_starts[$name]=$SECONDS
  build_order+=("$name")
}

wait_for_builds() {
  local name start=$SECONDS line rest
  while [ "${#build_order[@]}" != 0 ]; do
    line='' rest=()
    for name in "${build_order[@]}"; do
      if kill -0 "${build_pids[$name]}" 2>/dev/null; then
        rest+=("$name")
        line+="$name: $(build_step "$name"), "
      elif ! end_build "$name"; then
        return 1
      fi
    done
    build_order=("${rest[@]}")
    [ "${#rest[@]}" = 0 ] || [ "$SECONDS" = "$start" ] || rewrite "    $line$((SECONDS - start)) s"
    [ "${#rest[@]}" = 0 ] || sleep 0.2
  done
  rewrite ''
}

end_build() {
  local name=$1 status=0 took=$((SECONDS - build_starts[$1]))
  wait "${build_pids[$name]}" || status=$?
  unset "build_pids[$name]"
  rewrite ''
  if [ "$status" = 0 ]; then
    # What was there already is not worth a line.
    [ "$took" -lt 3 ] || printf '    %s: built in %s s\n' "$name" "$took" >&2
    return
  fi
  stop_builds
  {
    printf '    %s: the build failed after %s s. The last lines of %s:\n' "$name" "$took" "$build_logs/$name.log"
    tail -n 25 "$build_logs/$name.log"
  } >&2
  return 1
}

# The crate, the package, or the program that a build is at, from the end of its log.
build_step() {
  local step crates
  step=$(tail -n 40 "$build_logs/$1.log" 2>/dev/null |
    sed -nE 's/^ *(Compiling|Downloaded) ([^ ]+).*/\2/p; s/^go: downloading ([^ ]+).*/\1/p; s/^(building|fetching) ([^ ,:]+).*/\2/p; s/^([a-z0-9.-]+\/[^ :]+|[a-z0-9]+)$/\1/p' |
    tail -n 1)
  [ "${#step}" -le 40 ] || step=…${step: -39}
  crates=$(grep -c '^ *Compiling ' "$build_logs/$1.log") || true
  [ "$crates" = 0 ] || step+=" (crate $crates)"
  echo "${step:-starting}"
}

# Shows a line in the place of the last one. Without a terminal it would fill a log.
rewrite() {
  [ -t 2 ] && [ "$1" != "$build_line" ] || return 0
  build_line=$1
  local columns
  columns=$(stty size 2>/dev/null </dev/tty) || columns='24 80'
  columns=${columns#* }
  printf '\r\033[K%s' "${1:0:$((columns > 20 ? columns - 1 : 79))}" >&2
}

stop_builds() {
  local pid
  for pid in "${build_pids[@]}"; do kill -TERM -- "-$pid" 2>/dev/null || true; done
  for pid in "${build_pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  [ -z "$build_scratch" ] || rm -rf "$build_scratch"
  build_pids=() build_order=() build_scratch=''
}
