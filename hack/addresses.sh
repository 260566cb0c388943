#!/usr/bin/env bash
# Prints where this repository is, or where a release of it puts image and chart. No other file knows a forge, an owner or a registry.
#
#   hack/addresses.sh source      the repository's address: $SOURCE, else that of the remote origin, else the chart's `home`
#   hack/addresses.sh registry    the registry's host, with a path: $REGISTRY, else the one that the forge gives to the repository's owner.
#                                 Nothing, if the forge is another one than GitHub or GitLab
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }

source=${SOURCE:-}
if [ -z "$source" ]; then
  remote=$(git config --get remote.origin.url || true)
  # git@HOST:PATH, ssh://git@HOST:PORT/PATH and https://USER:TOKEN@HOST/PATH all mean https://HOST/PATH. A directory means nothing.
  if [[ $remote =~ ^https?://([^@/]*@)?([^/]+/.+)$ ]]; then
    source=https://${BASH_REMATCH[2]}
  elif [[ $remote =~ ^ssh://([^@/]*@)?([^/:]+)(:[0-9]+)?/(.+)$ ]]; then
    source=https://${BASH_REMATCH[2]}/${BASH_REMATCH[4]}
  elif [[ $remote =~ ^[^@/:]+@([^/:]+):(.+)$ ]]; then
    source=https://${BASH_REMATCH[1]}/${BASH_REMATCH[2]}
  else
    source=$(sed -n 's/^home: //p' charts/lictor/Chart.yaml)
  fi
fi
source=${source%/}
source=${source%.git}

registry=${REGISTRY:-}
if [ -z "$registry" ]; then
  case $source in
    https://github.com/*/*) registry=${source#https://github.com/} registry=ghcr.io/${registry%%/*} ;;
    https://gitlab.com/*/*) registry=registry.gitlab.com/${source#https://gitlab.com/} ;;
  esac
fi

case ${1:-} in
  source) echo "$source" ;;
  # Names of images have no capital letters, and owners may.
  registry) echo "${registry,,}" ;;
  *) usage ;;
esac
