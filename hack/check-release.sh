#!/usr/bin/env bash
# Checks what hack/release.sh made, each file with the program that is going to read it: krew's manifest with krew, which installs the
# program of each system from it, the SBOM with CycloneDX' schema, the checksums with sha256sum. The programs for other systems can't be
# run here: what their headers say is checked.
#
#   hack/check-release.sh [SYSTEM-ARCHITECTURE...]     fails also if there is no archive for one of these, such as windows-amd64
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

files=$PWD/target/release-files
source=$(hack/addresses.sh source)
version=$(sed -n 's/^version = "\(.*\)"/\1/p;T;q' Cargo.toml)
[ -f "$files/SHA256SUMS" ] || { echo "hack/check-release.sh: there is nothing in $files: make release" >&2; exit 1; }
tools=$(hack/tools.sh helm krew validate-krew-manifest jv formats)
{ read -r helm; read -r krew; read -r validate; read -r jv; read -r formats; } <<<"$tools"
schemas=$(cd hack/tools/cyclonedx && go mod download github.com/CycloneDX/cyclonedx-go && go list -m -f '{{.Dir}}/schema' github.com/CycloneDX/cyclonedx-go)
directory=$(mktemp -d "${TMPDIR:-/tmp}/lictor-release.XXXXXX")
trap 'rm -rf "$directory"' EXIT

fail() { echo "hack/check-release.sh: $1" >&2; [ ! -f "$directory/log" ] || cat "$directory/log" >&2; exit 1; }
says() { "${@:2}" >"$directory/log" 2>&1 || fail "$1"; echo "ok  $1"; }
lacks() { ! grep -F -- "$1" "$2"; }
lacks_bytes() { ! grep -aqF -- "$1" "$2"; }

# What a program may need of a system: what every Mac, and every Windows from 10 on, has.
of_macos='(/usr/lib/lib(System\.B|charset\.1|iconv\.2)\.dylib|/System/Library/Frameworks/(CoreFoundation|Security)\.framework/Versions/A/(CoreFoundation|Security))'
of_windows='(advapi32|bcrypt|bcryptprimitives|crypt32|kernel32|ncrypt|ntdll|secur32|userenv|ws2_32|api-ms-win-[a-z0-9-]+)\.dll'
# says_format PATTERN: that $program has the format, by its headers.
says_format() {
  local found
  found=$("$formats" "$program" 2>&1) || true
  says "its format: $found" grep -qxE "$1" <<<"$found"
}

# Prints the name of the archive for a system and architecture, and fails if there is none.
archive_of() { compgen -G "*lictor-$version-$1.*" | grep -E '\.(tar\.gz|zip)$'; }

cd "$files"
says 'SHA256SUMS is right' sha256sum --check --strict SHA256SUMS
says 'SHA256SUMS has all files' diff <(find . -maxdepth 1 -type f ! -name SHA256SUMS -printf '%P\n' | sort) <(sed 's/^[^ ]* .//' SHA256SUMS)

says "lictor-$version.tgz is a chart for Helm" "$helm" lint "lictor-$version.tgz"
says "lictor-$version.tgz installs this version" grep -qE "^appVersion: \"?$version\"?\$" <("$helm" show chart "lictor-$version.tgz")
says "lictor-$version.tgz tells Artifact Hub the image with its registry and digest" \
  grep -qE "image: \"[^/\"]+/[^@\"]+:$version@sha256:[0-9a-f]{64}\"" <("$helm" show chart "lictor-$version.tgz")
says "lictor-$version.tgz names $source" grep -qx "home: $source" <("$helm" show chart "lictor-$version.tgz")

# Users of the chart or of install.yaml need not know where the image is.
"$helm" template lictor "lictor-$version.tgz" --namespace lictor --api-versions apiregistration.k8s.io/v1 >"$directory/rendered"
for made in "$directory/rendered" install.yaml; do
  says "every image in $(basename "$made") has a registry and a digest" \
    diff <(grep -E '^ +image: ' "$made" | grep -vE '^ +image: "?[^/" ]+/[^@" ]+@sha256:[0-9a-f]{64}"?$') /dev/null
  says "$(basename "$made") has an image" grep -qE '^ +image: ' "$made"
done
says "install.yaml has the CRDs" grep -q '^kind: CustomResourceDefinition$' install.yaml
says 'install.yaml has no hooks' lacks 'helm.sh/hook:' install.yaml
for page in lictor lictor-run lictor-list; do
  says "lictor-$version-man.tar.gz has $page" grep -q "^\.TH $page 1" <(tar -xOzf "lictor-$version-man.tar.gz" "man/$page.1")
done
for file in lictor.clusterserviceversion leaderelections.lictor.dev.customresourcedefinition; do
  says "lictor-$version-olm.tar.gz has $file" tar -xOzf "lictor-$version-olm.tar.gz" "manifests/$file.yaml"
done
says "CHANGELOG.md has $version" grep -qx "## $version" "$OLDPWD/CHANGELOG.md"

# The schemas name each other by their addresses. One file has another name in that module.
mkdir "$directory/schema"
cp "$schemas"/{bom-1.5,spdx}.schema.json "$directory/schema"
cp "$schemas/jsf-0.82.schemax.json" "$directory/schema/jsf-0.82.schema.json"
boms=()
for platform in {linux,darwin,windows}-{amd64,arm64}; do
  archive=$(archive_of "$platform") || continue
  bom=lictor-$version-$platform.cdx.json
  says "$archive has an SBOM" test -f "$bom"
  boms+=("$bom")
  for crate in lictor kube rustls tokio; do
    says "$bom names $crate" grep -q "\"name\": \"$crate\"" "$bom"
  done
  # A dependency of the tests alone is in no program, and a directory's name would show where it was built.
  for word in proptest stateright "$HOME"; do
    says "$bom does not name $word" lacks "$word" "$bom"
  done
done
says "the SBOMs fit CycloneDX' schema" \
  "$jv" --map "http://cyclonedx.org/schema/=$directory/schema/" "$directory/schema/bom-1.5.schema.json" "${boms[@]}"

says 'lictor.yaml is a manifest for krew' "$validate" -manifest lictor.yaml -skip-install
says 'lictor.yaml has nothing left to fill in' lacks '{' lictor.yaml
for platform in "$@"; do says "there is an archive for $platform" archive_of "$platform"; done
case $(uname -m) in x86_64) own=linux-amd64 ;; *) own=linux-arm64 ;; esac
export KREW_NO_UPGRADE_CHECK=1
for platform in {linux,darwin,windows}-{amd64,arm64}; do
  archive=$(archive_of "$platform") || continue
  says "lictor.yaml has the sum of $archive" grep -q "$(sha256sum "$archive" | cut -d' ' -f1)" lictor.yaml
  export KREW_ROOT=$directory/krew-$platform KREW_OS=${platform%-*} KREW_ARCH=${platform#*-}
  says "krew installs $archive" "$krew" install --manifest lictor.yaml --archive "$archive"
  program=$KREW_ROOT/store/lictor/v$version/kubectl-lictor
  [ "$KREW_OS" != windows ] || program=$program.exe
  says "$archive has the program and the licence" \
    diff <(cd "${program%/*}" && ls) <(printf 'LICENSE\n%s\n' "${program##*/}")
  says 'the program does not name where it was built' lacks_bytes "$HOME/" "$program"
  case $platform in
    # One for Apple's processors has to be signed, if only by itself.
    darwin-amd64) says_format "macos amd64 13\.0 (un)?signed( $of_macos)+" ;;
    darwin-arm64) says_format "macos arm64 13\.0 signed( $of_macos)+" ;;
    windows-*) says_format "windows $KREW_ARCH [0-9.]+ console( $of_windows)+" ;;
    "$own") says 'it runs as a plugin of kubectl' diff <("$KREW_ROOT/bin/kubectl-lictor" --version) <(echo "lictor $version") ;;
  esac
done
