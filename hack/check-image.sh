#!/usr/bin/env bash
# Checks the image, and runs it as Kubernetes would, but without containers: its one file in an empty, read-only directory, as the
# image's user. At last it elects a leader in a real control plane. It needs root, for chroot.
#
#   hack/check-image.sh [TAR]     Default: target/image/lictor.tar, which is built again if it is not of these sources
set -euo pipefail
image=${1:+$(realpath -m "$1")}
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[ "$(id -u)" = 0 ] || exec hack/skip.sh 'the image is not looked into, for only root may call chroot'
[ -n "$image" ] || { hack/image.sh; image=$PWD/target/image/lictor.tar; }
[ -f "$image" ] || { echo "hack/check-image.sh: there is no $image" >&2; exit 1; }
version=$(sed -n 's/^version = "\(.*\)"/\1/p;T;q' Cargo.toml)
kubectl=$(hack/tools.sh kubectl)
directory=$(mktemp -d "${TMPDIR:-/tmp}/lictor-image.XXXXXX")
chroot=$(command -v chroot) root=$directory/root cluster=''
# Cleans up when the pipe to it ends, which also happens after SIGKILL.
# shellcheck disable=SC2016  # it is the other bash that expands this
exec {alive}> >(exec setsid bash -c 'trap "" INT TERM HUP; cat; [ ! -f "$0/pid" ] || kill "$(<"$0/pid")"; rm -rf "$0"' "$directory" >/dev/null 2>&1)
finish() {
  local status=$?
  [ -z "$cluster" ] || exec {cluster}>&-
  exec {alive}>&-
  wait
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

fail() { echo "hack/check-image.sh: $1" >&2; [ ! -s "$directory/log" ] || cat "$directory/log" >&2; exit 1; }
says() { "${@:2}" >"$directory/log" 2>&1 || fail "$1"; echo "ok  $1"; }
lacks() { ! grep -F -- "$1" "$2"; }
below() { [ "$(stat -c %s "$2")" -lt "$1" ]; }
within() {
  local end=$((SECONDS + $1))
  until "${@:2}" >"$directory/log" 2>&1; do
    [ "$SECONDS" -lt "$end" ] || return 1
    sleep 0.1
  done
}

# The content of the image.
tar -C "$directory" -xf "$image"
config=$directory/$(sed -E 's/.*"Config":"([^"]+)".*/\1/' "$directory/manifest.json")
layers=$(sed -E 's/.*"Layers":\[([^]]*)\].*/\1/; s/[",]+/ /g' "$directory/manifest.json")
read -r layer more <<<"$layers"
says 'one layer' test -z "$more"
says "it is lictor:$version" grep -q "/lictor:$version\"" "$directory/manifest.json"
says 'below 32 MiB' below $((32 << 20)) "$image"
says 'one file, of root' diff <(tar -tvf "$directory/$layer" | awk '{ print $1, $2, $6 }') <(echo '-rwxr-xr-x 0/0 lictor')
for word in '"User":"65532:65532"' '"Entrypoint":["/lictor"]' "\"org.opencontainers.image.version\":\"$version\"" \
  '"org.opencontainers.image.licenses":"Apache-2.0"' '"org.opencontainers.image.revision":"'; do
  says "its configuration has $word" grep -qF -- "$word" "$config"
done
says 'its configuration has no Cmd' lacks '"Cmd"' "$config"

mkdir "$root"
tar -C "$root" -xf "$directory/$layer"
readelf --wide --program-headers "$root/lictor" >"$directory/headers"
says 'the program needs no loader' lacks INTERP "$directory/headers"
readelf --wide --dynamic "$root/lictor" >"$directory/dynamic" 2>&1
says 'the program needs no library' lacks NEEDED "$directory/dynamic"
for word in "$PWD" "$HOME/" /cache/; do
  says "the program does not know $word" lacks "$word" "$root/lictor"
done

# Without any rights or files.
chmod 0755 "$directory" "$root"
lictor() { timeout --kill-after 5 120 env -i "$chroot" --userspec=65532:65532 "$root" /lictor "$@"; }
refuses() {
  local status=0
  lictor "${@:2}" >"$directory/log" 2>&1 || status=$?
  if [ "$status" != 1 ] || [ "$(wc -l <"$directory/log")" != 1 ] || ! grep -qE -- "$1" "$directory/log"; then
    fail "not refused as expected: lictor ${*:2}"
  fi
  echo "ok  $(cut -c1-120 "$directory/log")"
}
# As OpenShift runs it: as any user of the namespace's range, in the group root.
says 'it runs as any user' diff <(timeout 120 env -i "$chroot" --userspec=1000660000:0 "$root" /lictor --version) <(echo "lictor $version")
says 'it runs' diff <(lictor --version) <(echo "lictor $version")
says 'it prints its CRDs' diff <(lictor crd) crds/lictor.dev.yaml
refuses 'there is no cluster to connect to: name a kubeconfig' run
printf 'apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}]\ncontexts: [{name: a, context: {cluster: a, user: a}}]\nusers: [{name: a, user: {token: x}}]\n' >"$root/no-ca"
refuses 'there is no certificate authority' run --kubeconfig /no-ca --listen 127.0.0.1:0
asks() { { lictor doctor --kubeconfig "/$1" 2>&1 || true; } | grep "Connection refused"; }
sed 's/https:/http:/' "$root/no-ca" >"$root/http"
sed 's/:1"/&, insecure-skip-tls-verify: true/' "$root/no-ca" >"$root/insecure"
says 'it needs no authority for http' asks http
says 'it needs no authority where none is asked' asks insecure

# In a real control plane. The program looks its name up in the /etc/hosts that Kubernetes puts into a pod.
mkdir "$root/etc"
echo '127.0.0.1 localhost' >"$root/etc/hosts"
mkfifo "$directory/told"
exec {cluster}> >(exec hack/cluster.sh hold "image-$$" 1 >"$directory/told" {alive}>&-)
IFS='=' read -r -t 120 _ kubeconfig <"$directory/told" || fail 'there is no control plane'
export KUBECONFIG=$kubeconfig
"$kubectl" config view --raw --flatten | sed -E 's#https://(127\.0\.0\.1|0\.0\.0\.0):#https://localhost:#' >"$root/kubeconfig"
"$kubectl" apply --server-side -f crds/lictor.dev.yaml >/dev/null
says 'the CRDs are there' "$kubectl" wait --for=condition=established --timeout=60s crd/leaderelections.lictor.dev crd/electionclasses.lictor.dev crd/switchovers.lictor.dev
timeout --kill-after 5 120 env -i "$chroot" --userspec=65532:65532 "$root" /lictor run --kubeconfig /kubeconfig --lease-namespace default \
  --listen 127.0.0.1:0 2>"$directory/operator" {alive}>&- {cluster}>&- &
running=$!
echo "$running" >"$directory/pid"
within 30 "$kubectl" get serviceaccount default || fail 'the control plane makes no service account'
for name in web-0 web-1 web-2; do "$kubectl" run "$name" --image=web --labels app=web >/dev/null; done
"$kubectl" apply -f - >/dev/null <<<'{"apiVersion": "lictor.dev/v1alpha1", "kind": "LeaderElection", "metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"app": "web"}}}}'
led() { [ "$("$kubectl" get pods -l role=leader -o name | wc -l)" = 1 ]; }
within 60 led || { cp "$directory/operator" "$directory/log"; fail 'there is no leader'; }
echo 'ok  it elects a leader'
kill "$running"
wait "$running" || fail 'it does not stop as it should'
rm "$directory/pid"
says 'it gives its Lease back' diff <("$kubectl" get lease lictor.dev-operator -o 'jsonpath={.spec.holderIdentity}') /dev/null
