#!/usr/bin/env bash
# A real server of buckets on 127.0.0.1, for the tests.
#
#   hack/buckets.sh hold s3|azure [NAME]     starts it, prints where it is when it answers, and deletes it when its standard input ends
#
#   s3         versitygw, which speaks the protocol of S3; a bucket is a directory in its data
#   azure      Azurite, which speaks that of Azure Blob Storage, with its data in memory
#
# It prints lines NAME=VALUE, and then an empty line:
#
#   BUCKETS_SOCKET                    its address, for example 127.0.0.1:20000
#   BUCKETS_ACCOUNT, BUCKETS_KEY      the one account, with all rights, and its key: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY,
#                                     or AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY
#   BUCKETS_DATA, BUCKETS_LOG         the directory of its data, and its log
#
# The server exists as long as a process holds the pipe to this one, even if that process is killed. This ignores SIGINT, because
# Ctrl-C also goes to the holder. SIGTERM deletes it at once. Several can run side by side; NAME tells them apart in a list of processes.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${LICTOR_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lictor}

# shellcheck source=hack/hold.sh
. "$here/hold.sh"

usage() { sed -n '2,18s/^# \{0,1\}//p' "$0" >&2; exit 2; }

keep() {
  local kind=$1 name=$2 program=versitygw
  account=lictor key=bGljdG9y pid=''
  trap '' PIPE # a reader that went away is an error of printf's, and the server is still to be deleted
  trap 'exit 143' TERM HUP
  [ "$kind" = s3 ] || program=azurite-blob
  program=$("$here/tools.sh" "$program")

  directory=$(mktemp -d "${TMPDIR:-/tmp}/lictor-buckets-$name.XXXXXX")
  log=$directory/log
  trap delete EXIT
  mkdir "$directory/data"
  { reserve && start "$kind" "$program" && within 60 answers; } || { complain; exit 1; }
  printf 'BUCKETS_%s\n' "SOCKET=127.0.0.1:$base" "ACCOUNT=$account" "KEY=$key" "DATA=$directory/data" "LOG=$log"
  printf '\n'
  cat >/dev/null
}

start() {
  cd "$directory/data"
  # Azurite would report to its makers.
  case $1 in
    s3)
      set -- env ROOT_ACCESS_KEY="$account" ROOT_SECRET_KEY="$key" "$2" --port "127.0.0.1:$base" --keep-alive posix "$directory/data" ;;
    azure)
      set -- env AZURITE_ACCOUNTS="$account:$key" "$2" --blobHost 127.0.0.1 --blobPort "$base" --inMemoryPersistence \
        --skipApiVersionCheck --disableTelemetry ;;
  esac
  setpriv --pdeathsig KILL "$@" </dev/null >>"$log" 2>&1 &
  pid=$!
}

answers() {
  kill -0 "$pid" 2>/dev/null || { echo 'the server has ended' >>"$log"; return 1; }
  listens "$base"
}

complain() {
  echo 'hack/buckets.sh: no server came up; the end of its log:' >&2
  [ ! -s "$log" ] || tail -n 8 "$log" | cut -c1-400 >&2
}

delete() {
  [ -z "$pid" ] || { kill -KILL "$pid" 2>/dev/null && wait "$pid" 2>/dev/null; } || true
  rm -rf "$directory"
}

case ${1:-} in
  hold | keep)
    [[ ${2:-} =~ ^(s3|azure)$ && ${3:-test} =~ ^[a-z0-9]([a-z0-9-]*[a-z0-9])?$ && $# -le 3 ]] || usage
    "$1" "$2" "${3:-test}"
    exit ;;
  *) usage ;;
esac
