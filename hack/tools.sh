#!/usr/bin/env bash
# The programs that the tests, the demo and the benchmarks run, built from the Go modules pinned in hack/tools/. Some come from
# Debian: consul-1.8, which is too old for that, libfaketime, a library by which a test sets a program's clock, and node-root, a
# directory with what a real node needs: containerd, runc, CNI's plugins, iptables, conntrack, busybox.
#
#   hack/tools.sh NAME...     makes sure that each exists; prints its path, a line each
#
# Looked for, in this order: the path in the environment variable of its name (kube-apiserver: KUBE_APISERVER, consul-1.8:
# CONSUL_1_8), a program on the PATH with the pinned version, the cache. Built into ${LICTOR_CACHE:-~/.cache/lictor}/tools/, one
# directory for each state of go.sum, outside of the work tree: a fresh clone builds nothing again.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${LICTOR_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lictor}/tools

# The module under hack/tools/, the package, how it is asked for its version, and about how long its first build takes on two
# cores: the later programs of a module share most of the first one's work.
describe() {
  case $1 in
    etcd)                    echo "etcd       go.etcd.io/etcd/server/v3                  --version          1min" ;;
    kube-apiserver)          echo "kubernetes k8s.io/kubernetes/cmd/kube-apiserver          --version          4min" ;;
    kube-controller-manager) echo "kubernetes k8s.io/kubernetes/cmd/kube-controller-manager --version          1min" ;;
    kube-scheduler)          echo "kubernetes k8s.io/kubernetes/cmd/kube-scheduler          --version          10s" ;;
    # The oldest Kubernetes that is supported.
    kube-apiserver-1.33)          echo "kubernetes-1.33 k8s.io/kubernetes/cmd/kube-apiserver          --version 4min" ;;
    kube-controller-manager-1.33) echo "kubernetes-1.33 k8s.io/kubernetes/cmd/kube-controller-manager --version 1min" ;;
    kube-scheduler-1.33)          echo "kubernetes-1.33 k8s.io/kubernetes/cmd/kube-scheduler          --version 10s" ;;
    kubectl)                 echo "kubernetes k8s.io/kubernetes/cmd/kubectl                 version,--client   40s" ;;
    kubelet)                 echo "kubernetes k8s.io/kubernetes/cmd/kubelet                 --version          20s" ;;
    kube-proxy)              echo "kubernetes k8s.io/kubernetes/cmd/kube-proxy              --version          10s" ;;
    node-root)               echo "debian-node -                                           -                  20s" ;;
    helm)                    echo "helm       helm.sh/helm/v4/cmd/helm                   version,--short    2min" ;;
    kwok)                    echo "kwok       sigs.k8s.io/kwok/cmd/kwok                  --version          80s" ;;
    kwokctl)                 echo "kwok       sigs.k8s.io/kwok/cmd/kwokctl               --version          10s" ;;
    consul)                  echo "consul     github.com/hashicorp/consul                   version            4min" ;;
    consul-1.8)              echo "debian     consul                                        version            10s" ;;
    libfaketime)             echo "debian-libfaketime libfaketime                          version            10s" ;;
    toxiproxy-server)        echo "toxiproxy  github.com/Shopify/toxiproxy/v2/cmd/server --version          10s" ;;
    buildah)                 echo "buildah    github.com/containers/buildah/cmd/buildah     --version          2min" ;;
    actionlint)              echo "actionlint github.com/rhysd/actionlint/cmd/actionlint    -version           30s" ;;
    krew)                    echo "krew       sigs.k8s.io/krew/cmd/krew                     version            1min" ;;
    validate-krew-manifest)  echo "krew       sigs.k8s.io/krew/cmd/validate-krew-manifest   version            10s" ;;
    jv)                      echo "cyclonedx  github.com/santhosh-tekuri/jsonschema/cmd/jv  --version          10s" ;;
    *) echo "hack/tools.sh: no program '$1' is pinned here; there are: etcd kube-apiserver kube-controller-manager kube-scheduler kube-apiserver-1.33 kube-controller-manager-1.33 kube-scheduler-1.33 kubectl helm kubelet kube-proxy node-root kwok kwokctl consul consul-1.8 libfaketime toxiproxy-server buildah actionlint krew validate-krew-manifest jv" >&2; return 1 ;;
  esac
}

# The version that go.mod pins for the module of a package.
pinned() {
  local directory=$1 module
  case $directory in
    etcd) module=go.etcd.io/etcd/server/v3 ;;
    kubernetes*) module=k8s.io/kubernetes ;;
    helm) module=helm.sh/helm/v4 ;;
    kwok) module=sigs.k8s.io/kwok ;;
    debian) echo v1.8.7; return ;;
    debian-libfaketime) echo v0.9.8; return ;;
    debian-node) codename; return ;;
    consul) module=github.com/hashicorp/consul ;;
    toxiproxy) module=github.com/Shopify/toxiproxy/v2 ;;
    buildah) module=github.com/containers/buildah ;;
    actionlint) module=github.com/rhysd/actionlint ;;
    krew) module=sigs.k8s.io/krew ;;
    cyclonedx) module=github.com/santhosh-tekuri/jsonschema/cmd/jv ;;
  esac
  sed -nE "s#^(require)?[[:space:]]*$module (v[^ ]+).*#\2#p" "$here/tools/$directory/go.mod"
}

# The release of Debian that this machine has.
codename() { sed -nE 's/^VERSION_CODENAME=//p' /etc/os-release; }

# A program on the PATH counts only if it names the pinned version itself.
on_path() {
  local name=$1 version=$2 flags=$3 found
  found=$(command -v "$name") || return 1
  # shellcheck disable=SC2086  # the flags are several words
  "$found" ${flags//,/ } 2>/dev/null | grep -qE "(^|[^0-9.])${version#v}([^0-9.-]|\$)" && echo "$found"
}

build() {
  local name=$1 directory=$2 package=$3 version=$4 estimate=$5 target=$6 flags="-s -w" cgo=0 tags=''
  command -v go >/dev/null || {
    echo "hack/tools.sh: Go is missing, and $name $version is built with it: install Go 1.26 or newer, or name a binary in $(variable "$name")" >&2
    return 1
  }
  if [[ $directory = kubernetes* ]]; then
    local numbers=${version#v} at=k8s.io/component-base/version
    flags="$flags -X $at.gitVersion=$version -X $at.gitMajor=${numbers%%.*} -X $at.gitMinor=$(cut -d. -f2 <<<"$numbers")"
  elif [ "$directory" = helm ]; then
    flags="$flags -X helm.sh/helm/v4/internal/version.version=$version"
  elif [ "$directory" = kwok ]; then
    flags="$flags -X sigs.k8s.io/kwok/pkg/consts.Version=$version"
  elif [ "$directory" = toxiproxy ]; then
    flags="$flags -X github.com/Shopify/toxiproxy/v2.Version=${version#v}"
  elif [ "$directory" = buildah ]; then
    # What enters namespaces is written in C; all else that is in C is left out.
    cgo=1 tags=containers_image_openpgp,exclude_graphdriver_btrfs
  fi
  echo "building $name $version (once; about $estimate on two cores)" >&2
  mkdir -p "$(dirname "$target")"
  (cd "$here/tools/$directory" && CGO_ENABLED=$cgo go build -trimpath -tags "$tags" -ldflags "$flags" -o "$target.$$" "$package" >&2)
  mv "$target.$$" "$target"
}

# Consul 1.8 is the oldest that the tests run against: Go's proxy resolves none of its time, and Debian 11 ships it.
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

# What a real node runs beside Kubernetes' own programs, and the libraries that these need, from the machine's own release: a tree
# with usr/bin, usr/sbin, usr/lib. The C library is the machine's.
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
    # Where the release still has both, /lib and /usr/lib are one on the machine.
    for package in bin sbin lib; do
      [ ! -d "unpacked/$package" ] || { mkdir -p "unpacked/usr/$package"; cp -a "unpacked/$package/." "unpacked/usr/$package/"; }
    done
    # Links that the packages make when they are installed.
    for program in {iptables,ip6tables}{,-save,-restore}; do
      [ -e "unpacked/usr/sbin/$program" ] || ln -s xtables-nft-multi "unpacked/usr/sbin/$program"
    done
    mkdir -p "$(dirname "$target")"
    mv unpacked "$target"
  )
}

# Goes to a directory that is removed when the present subshell ends, with apt.conf and the lists of a release of Debian. They are
# apart from those of the system, which stay as they are. apt checks the signature over the lists, and by them the packages.
debian() {
  local name=$1 release=$2 program uri
  for program in apt-get dpkg-deb; do
    command -v "$program" >/dev/null || {
      echo "hack/tools.sh: $program is missing, and $name comes from Debian ($release): name one in $(variable "$name")" >&2
      return 1
    }
  done
  echo "fetching $name from Debian ($release; once)" >&2
  directory=$(mktemp -d "${TMPDIR:-/tmp}/lictor-tools.XXXXXX")
  trap 'rm -rf "$directory"' EXIT
  cd "$directory"
  mkdir -p lists/partial cache/archives/partial
  # The mirror that the machine uses itself, as apt understands its sources.
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

locate() {
  local name=$1 given directory package flags estimate version target described make
  given=$(variable "$name")
  if [ -n "${!given:-}" ]; then
    [ -x "${!given}" ] || { echo "hack/tools.sh: $given names '${!given}', which is no program" >&2; return 1; }
    echo "${!given}"; return
  fi
  described=$(describe "$name")
  read -r directory package flags estimate <<<"$described"
  version=$(pinned "$directory")
  [ "$directory" = debian-node ] || ! on_path "$name" "$version" "$flags" || return 0
  if [ "$directory" = debian-node ]; then
    target=$cache/debian-node-$version/root
    make=(unpack_node "$target")
  elif [[ $directory = debian* ]]; then
    target=$cache/$directory-$version/$name
    make=(unpack "$name" "$package" "$version" "$target")
  else
    target=$cache/$directory-$(cat "$here/tools/$directory/"go.{mod,sum} | sha256sum | cut -c1-16)/$name
    make=(build "$name" "$directory" "$package" "$version" "$estimate" "$target")
  fi
  if [ ! -x "$target" ]; then
    mkdir -p "$cache"
    (flock 9; [ -x "$target" ] || "${make[@]}") 9>"$cache/.lock"
  fi
  echo "$target"
}

[ $# -gt 0 ] || { sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 2; }
for name in "$@"; do locate "$name"; done
