#!/usr/bin/env bash
# The programs that the tests, the demo and the benchmarks run, built from the Go modules that hack/tools/ pins. Four come from Debian:
# consul-1.8, which is too old to build; libfaketime, a library that sets a program's clock; node-root, a directory with what a real node
# needs: containerd, runc, CNI's plugins, iptables, conntrack, busybox; and browser, a directory with Chromium and its WebDriver.
# Two come from npm, with the checksums of their package-lock.json: page-modules, a directory with what is in the page of `lictor
# dashboard`, and what checks it; and azurite-blob, a server of Azure's protocol. Three come from Python's registry, with the checksums of
# their requirements.txt: zig and cargo-zigbuild, which build the kubectl plugin for other systems; and azure-storage-blob, Microsoft's client.
#
#   hack/tools.sh NAME...     makes sure that each exists; prints its path, a line each
#
# Each is looked for in this order: the path in the environment variable of its name (kube-apiserver: KUBE_APISERVER, consul-1.8:
# CONSUL_1_8), a program of the pinned version on the PATH, the cache. A missing one is built into
# ${LICTOR_CACHE:-~/.cache/lictor}/tools/, with a directory for each state of go.sum, package-lock.json or requirements.txt. This is
# outside of the work tree, so a fresh clone builds nothing again. The output of a build is in logs/ there.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${LICTOR_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lictor}/tools
# shellcheck disable=SC2034  # hack/progress.sh uses it
build_logs=$cache/logs

# shellcheck source=hack/progress.sh
. "$here/progress.sh"

# The module under hack/tools/, the package, how to ask it for its version, and about how many seconds its first build takes on two
# cores. The programs of a module share most of the work of the first one.
describe() {
  case $1 in
    etcd)                    echo "etcd       go.etcd.io/etcd/server/v3                  --version          60" ;;
    kube-apiserver)          echo "kubernetes k8s.io/kubernetes/cmd/kube-apiserver          --version          240" ;;
    kube-controller-manager) echo "kubernetes k8s.io/kubernetes/cmd/kube-controller-manager --version          60" ;;
    kube-scheduler)          echo "kubernetes k8s.io/kubernetes/cmd/kube-scheduler          --version          10" ;;
    # The oldest Kubernetes that is supported.
    kube-apiserver-1.33)          echo "kubernetes-1.33 k8s.io/kubernetes/cmd/kube-apiserver          --version 240" ;;
    kube-controller-manager-1.33) echo "kubernetes-1.33 k8s.io/kubernetes/cmd/kube-controller-manager --version 60" ;;
    kube-scheduler-1.33)          echo "kubernetes-1.33 k8s.io/kubernetes/cmd/kube-scheduler          --version 10" ;;
    kubectl)                 echo "kubernetes k8s.io/kubernetes/cmd/kubectl                 version,--client   40" ;;
    kubelet)                 echo "kubernetes k8s.io/kubernetes/cmd/kubelet                 --version          20" ;;
    kube-proxy)              echo "kubernetes k8s.io/kubernetes/cmd/kube-proxy              --version          10" ;;
    node-root)               echo "debian-node -                                           -                  20" ;;
    browser)                 echo "debian-browser -                                        -                  30" ;;
    page-modules)            echo "npm-page   node_modules                                 -                  10" ;;
    azurite-blob)            echo "npm-azurite node_modules/.bin/azurite-blob              --version          30" ;;
    helm)                    echo "helm       helm.sh/helm/v4/cmd/helm                   version,--short    120" ;;
    helm-docs)               echo "helm-docs  github.com/norwoodj/helm-docs/cmd/helm-docs    --version          50" ;;
    kwok)                    echo "kwok       sigs.k8s.io/kwok/cmd/kwok                  --version          80" ;;
    kwokctl)                 echo "kwok       sigs.k8s.io/kwok/cmd/kwokctl               --version          10" ;;
    consul)                  echo "consul     github.com/hashicorp/consul                   version            240" ;;
    consul-1.8)              echo "debian     consul                                        version            10" ;;
    libfaketime)             echo "debian-libfaketime libfaketime                          version            10" ;;
    buildah)                 echo "buildah    github.com/containers/buildah/cmd/buildah     --version          120" ;;
    actionlint)              echo "actionlint github.com/rhysd/actionlint/cmd/actionlint    -version           30" ;;
    krew)                    echo "krew       sigs.k8s.io/krew/cmd/krew                     version            60" ;;
    validate-krew-manifest)  echo "krew       sigs.k8s.io/krew/cmd/validate-krew-manifest   version            10" ;;
    gitops)                  echo "gitops     lictor.dev/hack/tools/gitops                  --version          90" ;;
    helm-controller)         echo "flux       github.com/fluxcd/helm-controller             -                   180" ;;
    health)                  echo "health     lictor.dev/hack/tools/health                 --version          30" ;;
    elector)                 echo "elector    lictor.dev/hack/tools/elector                 --version          60" ;;
    versitygw)               echo "versitygw  github.com/versity/versitygw/cmd/versitygw   --version          60" ;;
    locker)                  echo "locker     lictor.dev/hack/tools/locker                  --version          20" ;;
    promtool)                echo "prometheus github.com/prometheus/prometheus/cmd/promtool --version          300" ;;
    prometheus)              echo "prometheus github.com/prometheus/prometheus/cmd/prometheus --version          60" ;;
    olm)                     echo "olm        lictor.dev/hack/tools/olm                    -                   150" ;;
    formats)                 echo "formats    lictor.dev/hack/tools/formats                -                   5" ;;
    zig)                     echo "python-zig ziglang/zig                                  version             20" ;;
    cargo-zigbuild)          echo "python-cargo-zigbuild bin/cargo-zigbuild                --version           5" ;;
    azure-storage-blob)      echo "python-azure-storage-blob azure/storage/blob            -                   15" ;;
    jv)                      echo "cyclonedx  github.com/santhosh-tekuri/jsonschema/cmd/jv  --version          10" ;;
    *) echo "hack/tools.sh: no program '$1' is pinned here. These are: etcd kube-apiserver kube-controller-manager kube-scheduler kube-apiserver-1.33 kube-controller-manager-1.33 kube-scheduler-1.33 kubectl helm helm-docs kubelet kube-proxy node-root kwok kwokctl consul consul-1.8 libfaketime buildah actionlint krew validate-krew-manifest gitops helm-controller health elector locker promtool prometheus jv browser page-modules versitygw azurite-blob azure-storage-blob olm formats zig cargo-zigbuild" >&2; return 1 ;;
  esac
}

# Prints the version that go.mod pins for the module of a package.
pinned() {
  local directory=$1 module
  case $directory in
    etcd) module=go.etcd.io/etcd/server/v3 ;;
    kubernetes*) module=k8s.io/kubernetes ;;
    helm) module=helm.sh/helm/v4 ;;
    helm-docs) module=github.com/norwoodj/helm-docs ;;
    kwok) module=sigs.k8s.io/kwok ;;
    debian) echo v1.8.7; return ;;
    debian-libfaketime) echo v0.9.8; return ;;
    debian-node) codename; return ;;
    debian-browser) echo "$(codename)-2"; return ;; # the number changes with the script in it
    npm-*) sed -nE 's/^ *"'"${directory#npm-}"'": "([0-9.]+)"$/v\1/p' "$here/tools/${directory#npm-}/package.json"; return ;;
    python-*) sed -nE '/^[a-z-]+==/{s/^[a-z-]+==([^ ]+).*/v\1/p;q}' "$here/tools/${directory#python-}/requirements.txt"; return ;;
    formats) echo "of this repository"; return ;;
    consul) module=github.com/hashicorp/consul ;;
    buildah) module=github.com/containers/buildah ;;
    actionlint) module=github.com/rhysd/actionlint ;;
    krew) module=sigs.k8s.io/krew ;;
    gitops) module=github.com/argoproj/argo-cd/gitops-engine ;;
    flux) module=github.com/fluxcd/helm-controller ;;
    health) module=sigs.k8s.io/cli-utils ;;
    olm) module=github.com/operator-framework/api ;;
    elector) module=k8s.io/client-go ;;
    locker) module=github.com/hashicorp/consul/api ;;
    versitygw) module=github.com/versity/versitygw ;;
    prometheus) module=github.com/prometheus/prometheus ;;
    cyclonedx) module=github.com/santhosh-tekuri/jsonschema/cmd/jv ;;
  esac
  sed -nE "s#^(require)?[[:space:]]*$module (v[^ ]+).*#\2#p" "$here/tools/$directory/go.mod"
}

# Prints what a program is built from, if it changes from one commit to the next.
sources() {
  local directory=$1 file
  case $1 in npm-* | python-*) directory=${1#*-} ;; esac
  directory=$here/tools/$directory
  for file in "$directory/"{package-lock.json,requirements.txt}; do
    if [ -f "$file" ]; then cat "$file"; return; fi
  done
  cat "$directory/"go.{mod,sum}
  [ ! -f "$directory/main.go" ] || cat "$directory/main.go"
}

# Prints the release of Debian that this machine has.
codename() { sed -nE 's/^VERSION_CODENAME=//p' /etc/os-release; }

# A program on the PATH counts only if it names the pinned version itself.
on_path() {
  local name=$1 version=$2 flags=$3 found
  found=$(command -v "$name") || return 1
  # shellcheck disable=SC2086  # the flags are several words
  "$found" ${flags//,/ } 2>/dev/null | grep -qE "(^|[^0-9.])${version#v}([^0-9.-]|\$)" && echo "$found"
}

# Builds programs of one module, all by one call of go: while it links one, it compiles the others.
compile() {
  local directory=$1 version=$2 flags="-s -w" cgo=0 tags='' new name packages=()
  shift 2
  if [[ $directory = kubernetes* ]]; then
    local numbers=${version#v} at=k8s.io/component-base/version
    flags="$flags -X $at.gitVersion=$version -X $at.gitMajor=${numbers%%.*} -X $at.gitMinor=$(cut -d. -f2 <<<"$numbers")"
  elif [ "$directory" = helm ]; then
    flags="$flags -X helm.sh/helm/v4/internal/version.version=$version"
  elif [ "$directory" = helm-docs ]; then
    flags="$flags -X main.version=$version"
  elif [ "$directory" = kwok ]; then
    flags="$flags -X sigs.k8s.io/kwok/pkg/consts.Version=$version"
  elif [ "$directory" = versitygw ]; then
    flags="$flags -X main.Version=$version"
  elif [ "$directory" = buildah ]; then
    # The part that enters namespaces is written in C. All other C is left out.
    cgo=1 tags=containers_image_openpgp,exclude_graphdriver_btrfs
  elif [ "$directory" = prometheus ]; then
    # The tests name what it scrapes. Without the ways to find that in clouds, it is built in half the time.
    tags=remove_all_sd
  fi
  new=$(mktemp -d "$cache/.new.XXXXXX")
  trap 'rm -rf "$new"' EXIT
  trap 'exit 143' TERM
  for name in "$@"; do look_up "$name" && packages+=("$package"); done
  cd "$here/tools/$directory"
  if [ $# = 1 ]; then
    CGO_ENABLED=$cgo go build -v -trimpath -tags "$tags" -ldflags "$flags" -o "$new/$1" "${packages[@]}"
  else
    CGO_ENABLED=$cgo go build -v -trimpath -tags "$tags" -ldflags "$flags" -o "$new/" "${packages[@]}"
  fi
  for name in "$@"; do
    look_up "$name"
    mkdir -p "${target%/*}"
    # Go names several programs itself, by their packages.
    if [ $# = 1 ]; then mv "$new/$name" "$target"; else mv "$new/${package##*/}" "$target"; fi
  done
}

# Consul 1.8 is the oldest version that the tests use. Go's proxy does not have the modules of its time, and Debian 11 ships it.
unpack() {
  local name=$1 package=$2 version=$3 target=$4 file=bin/consul
  [ "$package" != libfaketime ] || file='lib/*/faketime/libfaketime.so.1'
  (
    debian "$name" bullseye
    apt-get -c apt.conf --quiet --quiet download "$package=${version#v}*" >&2
    dpkg-deb -x "$package"_*.deb unpacked
    mkdir -p "$(dirname "$target")"
    # shellcheck disable=SC2086  # the name of the architecture is part of the path
    install unpacked/usr/$file "$target.$$"
    mv "$target.$$" "$target"
  )
}

# pip checks the sums, and takes the package of this machine's architecture.
install_by_pip() {
  local target=$1 requirements=$2 new
  new=$(mktemp -d "$cache/.new.XXXXXX")
  trap 'rm -rf "$new"' EXIT
  trap 'exit 143' TERM
  python3 -m pip --disable-pip-version-check install --quiet --no-deps --only-binary :all: --require-hashes --target "$new/root" \
    --requirement "$requirements"
  mv "$new/root" "$target"
}

# What a real node runs beside Kubernetes' own programs, with the libraries that these need, from the machine's own release of Debian: a
# tree with usr/bin, usr/sbin, usr/lib. The C library is the machine's.
unpack_node() {
  local target=$1 package program
  (
    debian node-root "$(codename)"
    : >status # as if nothing was installed
    echo "Dir::State::status \"$PWD/status\";" >>apt.conf
    apt-get -c apt.conf --quiet --quiet --yes --no-install-recommends --download-only install \
      containerd runc containernetworking-plugins iptables conntrack busybox-static >&2
    for package in cache/archives/*.deb; do
      [[ ${package##*/} =~ ^(libc6|libcrypt1|libgcc-s1|gcc-[0-9]+-base|libc-bin)_ ]] || dpkg-deb -x "$package" unpacked
    done
    # A release may still have both /lib and /usr/lib, which are one on the machine.
    for package in bin sbin lib; do
      [ ! -d "unpacked/$package" ] || { mkdir -p "unpacked/usr/$package"; cp -a "unpacked/$package/." "unpacked/usr/$package/"; }
    done
    # The packages create these links when they are installed.
    for program in {iptables,ip6tables}{,-save,-restore}; do
      [ -e "unpacked/usr/sbin/$program" ] || ln -s xtables-nft-multi "unpacked/usr/sbin/$program"
    done
    mkdir -p "$(dirname "$target")"
    mv unpacked "$target"
  )
}

# Chromium without a window, and the program by which tests drive it, with the libraries and the fonts that these need: a tree with a
# script `chromedriver`, which runs both with those. The C library is the machine's.
unpack_browser() {
  local target=$1 package
  (
    debian browser "$(codename)"
    : >status # as if nothing was installed
    echo "Dir::State::status \"$PWD/status\";" >>apt.conf
    apt-get -c apt.conf --quiet --quiet --yes --no-install-recommends --download-only install \
      chromium-headless-shell fontconfig-config fonts-dejavu-core >&2
    # It depends on the Chromium with windows, and works with this one, too.
    (cd cache/archives && apt-get -c ../../apt.conf --quiet --quiet download chromium-driver >&2)
    for package in cache/archives/*.deb; do
      [[ ${package##*/} =~ ^(libc6|libcrypt1|libgcc-s1|gcc-[0-9]+-base|libc-bin)_ ]] || dpkg-deb -x "$package" unpacked
    done
    echo '<fontconfig><dir prefix="relative">usr/share/fonts</dir></fontconfig>' >unpacked/fonts.conf
    cat >unpacked/chromedriver <<'END'
#!/bin/sh
root=$(cd "$(dirname "$0")" && pwd)
LD_LIBRARY_PATH=$(find "$root/lib" "$root/usr/lib" -maxdepth 3 -name '*.so*' -printf '%h\n' 2>/dev/null | sort -u | tr '\n' ':')
FONTCONFIG_FILE=$root/fonts.conf
export LD_LIBRARY_PATH FONTCONFIG_FILE
exec "$root/usr/bin/chromedriver" "$@"
END
    chmod +x unpacked/chromedriver
    mkdir -p "$(dirname "$target")"
    mv unpacked "$target"
  )
}

# The packages as package-lock.json names them, whose checksums npm compares. Nothing of them is run.
install_modules() {
  local target=$1 directory=$2 new
  new=$(mktemp -d "$cache/.new.XXXXXX")
  cp "$directory/"package{,-lock}.json "$new"
  (cd "$new" && npm ci --ignore-scripts --no-audit --no-fund --loglevel error >&2) || { rm -rf "$new"; return 1; }
  mv "$new" "$target"
}

# Changes to a directory with apt.conf and the package lists of a release of Debian, which is removed when the present subshell ends.
# The system's own lists stay as they are. apt checks the signature over the lists, and by them the packages.
debian() {
  local name=$1 release=$2 uri
  directory=$(mktemp -d "${TMPDIR:-/tmp}/lictor-tools.XXXXXX")
  trap 'rm -rf "$directory"' EXIT
  cd "$directory"
  mkdir -p lists/partial cache/archives/partial
  # The mirror that the machine itself uses, as apt reads its sources.
  uri=$(apt-get -o Dir::State::Lists="$directory/none" --print-uris update | sed -nE "s#^'(.*/debian(/[0-9TZ]+)?)/dists/.*#\\1#p" | sed -n 1p)
  [ -n "$uri" ] || {
    echo "hack/tools.sh: this machine has no Debian mirror among its apt sources: name a $name of your own in $(variable "$name")" >&2
    return 1
  }
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri $release main" >sources.list
  cat >apt.conf <<END
Dir::Etc::SourceList "$directory/sources.list";
Dir::Etc::SourceParts "-";
Dir::State::Lists "$directory/lists";
Dir::Cache "$directory/cache";
Acquire::AllowInsecureRepositories "false";
APT::Get::AllowUnauthenticated "false";
APT::Update::Error-Mode "any";
APT::Sandbox::User "";
Acquire::Languages "none";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
END
  apt-get -c apt.conf --quiet --quiet update >&2
}

variable() { tr 'a-z.-' 'A-Z__' <<<"$1"; }

# Sets $directory, $package, $version, $estimate and $target for a program, and $found to its path, or to nothing if it is missing.
look_up() {
  local name=$1 given described flags
  found='' given=$(variable "$name")
  described=$(describe "$name") || return
  read -r directory package flags estimate <<<"$described"
  if [ -n "${!given:-}" ]; then
    [ -x "${!given}" ] || { echo "hack/tools.sh: $given names '${!given}', which is not a program" >&2; return 1; }
    found=${!given}
    return
  fi
  version=$(pinned "$directory")
  case $directory in
    debian-node | debian-browser) target=$cache/$directory-$version/root ;;
    debian*) target=$cache/$directory-$version/$name ;;
    npm-* | python-*) target=$cache/$directory-$(sources "$directory" | sha256sum | cut -c1-16)/$package ;;
    *) target=$cache/$directory-$(sources "$directory" | sha256sum | cut -c1-16)/$name ;;
  esac
  [ "$flags" = - ] || found=$(on_path "$name" "$version" "$flags") || found=''
  [ -n "$found" ] || [ ! -x "$target" ] || found=$target
}

# Builds what is missing, module by module.
make_missing() {
  local name directory package version estimate target found part=0 seconds told order=()
  declare -A names=() needs=()
  for name in "$@"; do
    look_up "$name"
    [ -z "$found" ] || continue
    [ -n "${names[$directory]:-}" ] || order+=("$directory")
    names[$directory]+=" $name"
    case $directory in
      debian*) needs[debian]=1 ;;
      npm*) needs[npm]=1 ;;
      python-*) needs[python]=1 ;;
      *) needs[go]=1 ;;
    esac
    [ "$directory" != buildah ] || needs[c]=1
  done
  [ "${#order[@]}" != 0 ] || return 0
  "$here/require.sh" "${!needs[@]}"
  for directory in "${order[@]}"; do
    seconds=0 part=$((part + 1))
    for name in ${names[$directory]}; do
      look_up "$name"
      seconds=$((seconds + estimate))
    done
    if [ "$seconds" -lt 90 ]; then told="$seconds s"; else told="$(((seconds + 30) / 60)) min"; fi
    case $directory in
      npm*) printf 'fetching %s from npm, %s of %s (once)\n' "$name" "$part" "${#order[@]}" >&2 ;;
      debian*) printf 'fetching %s from Debian, %s of %s (once)\n' "$name" "$part" "${#order[@]}" >&2 ;;
      python-*) printf 'fetching%s %s by pip, %s of %s (once)\n' "${names[$directory]}" "$version" "$part" "${#order[@]}" >&2 ;;
      *) printf 'building %s %s, %s of %s (once; about %s on two cores):%s\n' "$directory" "$version" "$part" "${#order[@]}" "$told" "${names[$directory]}" >&2 ;;
    esac
    # shellcheck disable=SC2086  # the names are several words
    case $directory in
      debian-node) build "$name" unpack_node "$target" ;;
      debian-browser) build "$name" unpack_browser "$target" ;;
      npm*) build "$name" install_modules "${target%/"$package"}" "$here/tools/${directory#npm-}" ;;
      debian*) build "$name" unpack "$name" "$package" "$version" "$target" ;;
      python-*) build "$name" install_by_pip "${target%/"$package"}" "$here/tools/${directory#python-}/requirements.txt" ;;
      *) build "$directory" compile "$directory" "$version" ${names[$directory]} ;;
    esac
    wait_for_builds
  done
}

[ $# -gt 0 ] || { sed -n '2,14s/^# \{0,1\}//p' "$0"; exit 2; }
trap stop_builds EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
missing=''
for name in "$@"; do
  look_up "$name"
  [ -n "$found" ] || missing=1
done
if [ -n "$missing" ]; then
  mkdir -p "$cache"
  exec {lock}>"$cache/.lock"
  flock --nonblock "$lock" || { echo 'waiting for another hack/tools.sh' >&2; flock "$lock"; }
  make_missing "$@"
  exec {lock}>&-
fi
for name in "$@"; do
  look_up "$name"
  echo "$found"
done
