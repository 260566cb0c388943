#!/usr/bin/env bash
# Makes the files of a release in target/release-files/. The release workflow runs it on a machine of each architecture.
# `make release` runs it here, and publishes nothing.
#
#   hack/release.sh program IMAGE.tar amd64|arm64     the image, and the program in it as lictor-VERSION-linux-ARCH.tar.gz
#   hack/release.sh plugins [SYSTEM-ARCHITECTURE...]  the kubectl plugin for macOS and Windows, or for these alone
#   hack/release.sh chart DIRECTORY                   the chart, install.yaml for `kubectl apply`, and a bundle for OLM
#   hack/release.sh rest                              both, the man pages, an SBOM of each archive, krew's manifest of the existing archives, SHA256SUMS
#
# Environment variables: IMAGE and DIGEST, the image that the chart installs: its name with the registry's host, and sha256:….
# SOURCE and REGISTRY, as in hack/addresses.sh: the chart names the repository, and krew finds the programs below it.
# The same sources and addresses give the same files.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=$(sed -n 's/^version = "\(.*\)"/\1/p;T;q' Cargo.toml)
files=target/release-files
usage() { sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2; }
source=$(hack/addresses.sh source)
pack() { tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode='u=rwX,go=rX' "$@"; }

directory=$(mktemp -d "${TMPDIR:-/tmp}/lictor-release.XXXXXX")
trap 'rm -rf "$directory"' EXIT

# The program in the image and that in the archive are the same file.
program() {
  local image=$1 architecture=$2 layer
  [[ $architecture =~ ^(amd64|arm64)$ ]] || usage
  [ -f "$image" ] || { echo "hack/release.sh: there is no $image: hack/image.sh makes it" >&2; exit 1; }
  layer=$(tar -xOf "$image" manifest.json | sed -nE 's/.*"Layers":\["([^"]+)".*/\1/p')
  tar -C "$directory" -xf "$image" "$layer"
  tar -C "$directory" -xf "$directory/$layer" lictor
  cp LICENSE "$directory"
  pack -C "$directory" -c lictor LICENSE | gzip --no-name --best >"$files/lictor-$version-linux-$architecture.tar.gz"
  [ "$image" -ef "$files/lictor-$version-linux-$architecture.image.tar" ] || cp "$image" "$files/lictor-$version-linux-$architecture.image.tar"
}

# The name of the archive from which krew installs the plugin. On Linux it is the operator's own program.
archive() {
  case $1 in
    linux-*) echo "lictor-$version-$1.tar.gz" ;;
    darwin-*) echo "kubectl-lictor-$version-$1.tar.gz" ;;
    windows-*) echo "kubectl-lictor-$version-$1.zip" ;;
  esac
}

plugin() {
  local program to=$directory/$1
  [[ $1 =~ ^(darwin|windows)-(amd64|arm64)$ ]] || usage
  program=$(hack/plugin.sh "$1")
  mkdir "$to"
  cp LICENSE "$to"
  case $1 in
    windows-*)
      cp "$program" "$to/kubectl-lictor.exe"
      # Few machines have a program that makes a zip, and zig came by Python anyhow.
      python3 - "$files/$(archive "$1")" "$to/kubectl-lictor.exe" "$to/LICENSE" <<'END'
import os, sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
    for path in sys.argv[2:]:
        with open(path, "rb") as file:
            entry = zipfile.ZipInfo(os.path.basename(path))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, file.read())
END
      ;;
    *)
      cp "$program" "$to/kubectl-lictor"
      pack -C "$to" -c kubectl-lictor LICENSE | gzip --no-name --best >"$files/$(archive "$1")"
      ;;
  esac
}

# Only what is compiled into the program of each archive, and nothing that only its tests need.
sboms() {
  local tool platform target
  tool=$(hack/cargo-tool.sh cargo-cyclonedx)
  mkdir "$directory/lictor"
  cp -r Cargo.toml Cargo.lock src crates "$directory/lictor"
  for platform in {linux,darwin,windows}-{amd64,arm64}; do
    [ -f "$files/$(archive "$platform")" ] || continue
    target=$(hack/target.sh --name "${platform#linux-}")
    # Without a time, a random number, and the directory's name.
    (cd "$directory/lictor" && SOURCE_DATE_EPOCH=0 "$tool" cyclonedx --quiet --format json --spec-version 1.5 \
      --target "$target" --override-filename sbom >&2)
    sed "s#file://$directory/lictor#file:///lictor#g" "$directory/lictor/sbom.json" >"$files/lictor-$version-$platform.cdx.json"
  done
}

# The chart installs the image by its digest, so that users need not know where it is. The chart is packed again, because Helm keeps the
# files' times.
chart() {
  local to=$1 helm registry image=${IMAGE:-} digest=${DIGEST:-} values=$directory/source/lictor/values.yaml readme=$directory/source/lictor/README.md
  registry=$(hack/addresses.sh registry)
  if [ -z "$image" ]; then
    image=${registry:-localhost:5000}/lictor digest=sha256:$(printf '%064d' 0)
    echo "hack/release.sh: IMAGE and DIGEST are not set, so the chart would look for an image that there is not, at $image" >&2
  fi
  [[ $image == */* ]] || { echo "hack/release.sh: IMAGE is '$image': it needs the registry's host, as in localhost:5000/lictor" >&2; exit 1; }
  [[ $digest =~ ^sha256:[0-9a-f]{64}$ ]] || { echo "hack/release.sh: DIGEST is '$digest': it has to be sha256:… of the image" >&2; exit 1; }
  helm=$(hack/tools.sh helm)
  mkdir "$directory/source"
  cp -r charts/lictor "$directory/source"
  sed -i "s#^  repository: lictor\$#  repository: $image#; s#^  digest: \"\"\$#  digest: $digest#" "$values"
  if [ "$(grep -cxF -e "  repository: $image" -e "  digest: $digest" "$values")" != 2 ]; then
    echo "hack/release.sh: charts/lictor/values.yaml has no line 'repository: lictor' or none with an empty digest to be replaced" >&2
    exit 1
  fi
  # The table of values in the chart's own page has the same defaults.
  sed -i "s#^\(| image.repository | string |\) \`\"lictor\"\`#\1 \`\"$image\"\`#; s#^\(| image.digest | string |\) \`\"\"\`#\1 \`\"$digest\"\`#" "$readme"
  if [ "$(grep -cF -e "\`\"$image\"\`" -e "\`\"$digest\"\`" "$readme")" != 2 ]; then
    echo "hack/release.sh: charts/lictor/README.md has no row of image.repository or of image.digest with its default" >&2
    exit 1
  fi
  # Where the alerts' runbook_url leads to.
  [ -z "${DOCUMENTS:-}" ] || sed -i "s#^annotations:#&\n  lictor.dev/documents: $DOCUMENTS#" "$directory/source/lictor/Chart.yaml"
  "$helm" package "$directory/source/lictor" --destination "$directory" >/dev/null
  mkdir -p "$directory/chart" "$to"
  tar -C "$directory/chart" -xzf "$directory/lictor-$version.tgz"
  sed -i "s#https://example.com/lictor#$source#g; s#image: \"lictor:$version\"#image: \"$image:$version@$digest\"#" "$directory/chart/lictor/Chart.yaml"
  # On Artifact Hub, a link can't lead to a file beside the chart.
  sed -i "s#](\.\./\.\./docs/#](${DOCUMENTS:-$source/blob/HEAD/docs}/#g" "$directory/chart/lictor/README.md"
  [ -z "$registry" ] || sed -i "s#oci://\$REGISTRY/#oci://$registry/#" "$directory/chart/lictor/README.md"
  pack -C "$directory/chart" -c lictor | gzip --no-name --best >"$to/lictor-$version.tgz"
  {
    echo '# lictor without Helm: kubectl apply --server-side -f install.yaml'
    echo '# What to do to upgrade and to remove it: docs/install.md'
    printf -- '---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: lictor\n'
    # Hooks are for Helm: applied by something else, they would run at once.
    "$helm" template lictor "$directory/source/lictor" --namespace lictor --include-crds --no-hooks --kube-version 1.33.0
  } >"$to/install.yaml"
  bundle "$to"
}

# For the Operator Lifecycle Manager: what it can install of the chart.
bundle() {
  local olm
  olm=$(hack/tools.sh olm)
  mkdir "$directory/olm"
  "$helm" template lictor "$directory/source/lictor" --namespace lictor --include-crds --no-hooks --kube-version 1.33.0 |
    "$olm" -chart "$directory/chart/lictor" -icon charts/lictor/icon.svg -out "$directory/olm" >&2
  pack -C "$directory/olm" -c manifests metadata | gzip --no-name --best >"$1/lictor-$version-olm.tar.gz"
}

manuals() {
  mkdir "$directory/man"
  cargo run --quiet --locked --bin lictor-man -- "$directory/man"
  pack -C "$directory" -c man | gzip --no-name --best >"$files/lictor-$version-man.tar.gz"
}

krew() {
  local edits=() platform file sum
  for platform in {linux,darwin,windows}-{amd64,arm64}; do
    file=$files/$(archive "$platform")
    if [ -f "$file" ]; then
      sum=$(sha256sum <"$file")
      edits+=(-e "s/{SHA256-$platform}/${sum%% *}/")
    else
      edits+=(-e "/# $platform/,/to: \.\$/d")
    fi
  done
  sed "${edits[@]}" -e '/^ *#/d' -e "s/{VERSION}/$version/g" -e "s#{SOURCE}#$source#" \
    deploy/krew/lictor.yaml >"$files/lictor.yaml"
}

mkdir -p "$files"
case ${1:-} in
  program) [ $# = 3 ] || usage; program "$2" "$3" ;;
  plugins)
    shift
    [ $# != 0 ] || set -- {darwin,windows}-{amd64,arm64}
    for platform in "$@"; do plugin "$platform"; done
    ;;
  chart) [ $# = 2 ] || usage; chart "$2" ;;
  rest)
    sboms; chart "$files"; manuals; krew
    (cd "$files" && rm -f SHA256SUMS && find . -maxdepth 1 -type f -printf '%P\n' | sort | xargs sha256sum >"$directory/sums" && mv "$directory/sums" SHA256SUMS)
    echo "$files:"
    (cd "$files" && wc -c -- *)
    ;;
  *) usage ;;
esac
