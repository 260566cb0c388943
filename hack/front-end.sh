#!/usr/bin/env bash
# Compares the library in the page of `lictor dashboard` with its npm package, as hack/tools/page pins it, or copies it from there. The
# files are in the repository, so that a build needs no npm.
#
#   hack/front-end.sh check | copy
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

files=(LICENSE lit-html.js directive.js directive-helpers.js directives/repeat.js)
page=src/cli/user/dashboard/page/lit-html

case $#:${1:-} in
  1:check | 1:copy) ;;
  *) sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
modules=$(hack/tools.sh page-modules)
for file in "${files[@]}"; do
  if [ "$1" = copy ]; then
    install -D -m 644 "$modules/lit-html/$file" "$page/$file"
  else
    cmp "$modules/lit-html/$file" "$page/$file" || { echo "$page is not what hack/tools/page pins: hack/front-end.sh copy" >&2; exit 1; }
  fi
done
