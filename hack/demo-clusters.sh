# shellcheck shell=bash disable=SC2154
# The part of hack/demo.sh for STORE=consul, bucket or hub: two clusters, each with an operator, share a store of locks. The demo deletes
# the leader's pod, and then kills the only operator of the leader's cluster.

# The shortest TTL that Consul allows.
ttl=10

show_clusters() {
  local what wait
  case $store in
    consul) what='a Consul' wait=$((2 * ttl + 1)) ;;
    bucket) what='a server of buckets' wait=$((ttl + ttl / 3 + 1)) ;;
    hub) what='a third one, the hub' wait=$((ttl + ttl / 3 + 1)) ;;
  esac
  next "starting two Kubernetes control planes, west and east, and $what (about 15 s)"
  start_clusters
  next "installing the CRDs and examples/$store/class.yaml in both"
  both install_class
  next 'starting an operator in each'
  both start_operator_here
  next 'applying three pods, a Service and an election to both, first to west'
  elect_in_both
  next 'what there is now'
  show_both
  next 'deleting the leader'
  at west fail_over
  say 'The lock stayed in west: another pod of the same cluster took over.'
  next "killing west's only operator by kill -9, while its leader runs on (at most $wait s)"
  lose_west
  next "starting west's operator again (about 15 s, because the Lease of the killed one has to expire first)"
  return_west
  invite_both
}

# Runs a command for one of the clusters.
# shellcheck disable=SC2034  # the command uses these
at() {
  local kubeconfig=${kubeconfigs[$1]} cluster=$1 prompt=$1
  "${@:2}"
}

both() { at west "$@" && at east "$@"; }

start_clusters() {
  kubectl=$("$here/tools.sh" kubectl)
  hold west "$here/cluster.sh" hold demo-west
  hold east "$here/cluster.sh" hold demo-east
  case $store in
    consul) hold store "$here/consul.sh" hold dev demo ;;
    bucket) hold store "$here/buckets.sh" hold s3 demo ;;
    hub) hold store "$here/cluster.sh" hold demo-hub ;;
  esac
  kubeconfigs[west]=$(told "${held[0]}" KUBECONFIG west) || fail 'the control plane west did not come up'
  kubeconfigs[east]=$(told "${held[1]}" KUBECONFIG east) || fail 'the control plane east did not come up'
  say "west: KUBECONFIG=${kubeconfigs[west]}"
  say "east: KUBECONFIG=${kubeconfigs[east]}"
  "reach_$store"
}

reach_consul() {
  consul=$("$here/tools.sh" consul)
  CONSUL_HTTP_ADDR=$(told "${held[2]}" CONSUL_HTTP_ADDR store) || fail 'Consul did not come up'
  export CONSUL_HTTP_ADDR
  say "Consul $("$consul" version | sed -n '1s/.* //p'): CONSUL_HTTP_ADDR=$CONSUL_HTTP_ADDR"
}

# A bucket is a directory there. The example's class names no Secret, so the operators take the credentials from their environment.
reach_bucket() {
  local account key
  socket=$(told "${held[2]}" BUCKETS_SOCKET store) || fail 'the server of buckets did not come up'
  data=$(told "${held[2]}" BUCKETS_DATA store)
  account=$(told "${held[2]}" BUCKETS_ACCOUNT store) key=$(told "${held[2]}" BUCKETS_KEY store)
  export AWS_ACCESS_KEY_ID=$account AWS_SECRET_ACCESS_KEY=$key
  mkdir "$data/example-locks"
  say "the bucket: s3://example-locks at http://$socket, in $data"
}

reach_hub() {
  kubeconfigs[hub]=$(told "${held[2]}" KUBECONFIG store) || fail 'the hub did not come up'
  at hub kube create namespace lictor-locks >/dev/null
  at hub kube config view --raw --minify --flatten >"$work/hub.yaml"
  say "hub:  KUBECONFIG=${kubeconfigs[hub]}"
}

install_class() {
  install_kinds
  local place=()
  case $store in
    consul) place=(-e "s|http://consul.example:8500|$CONSUL_HTTP_ADDR|") ;;
    # The server has the default region.
    bucket) place=(-e "s|region: .*|endpoint: http://$socket|") ;;
    hub) kube create secret generic hub --from-file=kubeconfig="$work/hub.yaml" | sed "s/^/    $cluster: /" ;;
  esac
  sed "${place[@]}" -e "s|clusterName: west|clusterName: $cluster\n    sessions: {ttlSeconds: $ttl}|" \
    "$root/examples/$store/class.yaml" >"$work/class.yaml"
  kube apply -f "$work/class.yaml" | sed "s/^/    $cluster: /"
}

start_operator_here() { start_operator "$cluster"; }

elect_in_both() {
  both apply_pods
  both within 180 three_ready_pods
  at west apply_election
  at west within 60 elected
  at east apply_election
  at east within 60 led_elsewhere west "$leader"
  say "the leader is $leader in west, and east knows"
}

apply_pods() {
  kube apply -f "$root/examples/service/deployment.yaml" | sed "s/^/    $cluster: /"
}

apply_election() { kube apply -f "$root/examples/$store/leaderelection.yaml" | sed "s/^/    $cluster: /"; }

# This cluster has no leader label, and its status names the leader in the other cluster.
led_elsewhere() {
  [ "$(kube get leaderelection web -o jsonpath='{.status.leader.clusterName} {.status.leader.podName}')" = "$1 $2" ] &&
    [ -z "$(kube get pods -l role=leader -o name)" ]
}

show_both() {
  both run get leaderelection -o wide
  both run get pods -L role
  show_record
}

show_record() {
  local key=services/default/web/leader lease
  case $store in
    consul)
      say "\$ consul kv get $key | jq"
      "$consul" kv get "$key" | pretty | sed 's/^/    /'
      say 'The term is the ModifyIndex of this key.' ;;
    bucket)
      say "\$ aws s3 cp s3://example-locks/lictor/locks/$key.json - | jq"
      pretty <"$data/example-locks/lictor/locks/$key.json" | sed 's/^/    /' ;;
    hub)
      at hub run -n lictor-locks get leases
      lease=$(at hub kube -n lictor-locks get leases -o name | grep web-leader)
      say 'The record is in the annotation lictor.dev/content of the lock:'
      at hub kube -n lictor-locks get "$lease" -o jsonpath='{.metadata.annotations.lictor\.dev/content}' | pretty | sed 's/^/    /' ;;
  esac
}

# Formats JSON, because jq may not be installed.
pretty() {
  awk '
    function line() { printf "\n%*s", 2 * depth, "" }
    {
      for (i = 1; i <= length($0); i++) {
        c = substr($0, i, 1)
        if (c == "\"" && substr($0, i - 1, 1) != "\\") quoted = !quoted
        if (quoted) printf "%s", c
        else if (c ~ /[\[{]/ && substr($0, i + 1, 1) ~ /[\]}]/) printf "%s", c substr($0, ++i, 1)
        else if (c ~ /[\[{]/) { printf "%s", c; depth++; line() }
        else if (c ~ /[\]}]/) { depth--; line(); printf "%s", c }
        else if (c == ",") { printf "%s", c; line() }
        else if (c == ":") printf ": "
        else printf "%s", c
      }
    }
    END { print "" }'
}

lose_west() {
  local old=$leader pid=${operators[west]} killed
  at east observe
  at east within 20 watching
  say "\$ kill -KILL $pid"
  unset 'operators[west]'
  killed=${EPOCHREALTIME//[.,]/}
  kill -KILL "$pid"
  wait "$pid" 2>/dev/null || true
  at east within 90 elected
  at east within 20 seen_promoted
  stop "$watcher"
  both run get leaderelection -o wide
  both run get pods -L role
  say "$leader in east took over from $old in west."
  say "From kill -9 to its label: $((($(promoted) - killed) / 1000)) ms."
  case $store in
    consul)
      say 'Consul ends a session that was not renewed for twice its TTL, and then withholds the lock for the lock delay:'
      say "2 * $ttl s + 1 s = $((2 * ttl + 1)) s after the last renewal." ;;
    *)
      say "East ends the session of west when it has seen no renewal for its TTL of $ttl s. It sees a renewal up to a third of that late." ;;
  esac
  say "The label in west is still there, because west has no operator that could remove it: west's Service still reaches $old."
  say 'A system that both write to can tell them apart by the term, which is higher in east.'
}

promoted() { awk -v new="$leader" '$2 == new && $4 == "leader" { print $1; exit }' "$work/observed"; }

seen_promoted() { [ -n "$(promoted)" ]; }

return_west() {
  local began lines
  lines=$(wc -l <"${logs[west]}")
  at west observe
  began=${EPOCHREALTIME//[.,]/}
  at west start_operator west
  at west within 60 led_elsewhere east "$leader"
  at west within 20 seen_demoted
  stop "$watcher"
  at west run get leaderelection -o wide
  at west run get pods -L role
  say 'Its writes to pods, in the order in which a kubectl get pods --watch saw them:'
  awk -v began="$began" 'NR > 3 { printf "    %6d ms after its start: %s is %s\n", ($1 - began) / 1000, $2, $4 }' "$work/observed"
  echo
  say 'Its log from then on:'
  awk -v skip="$lines" 'NR > skip' "${logs[west]}" | sed 's/^/    /'
  echo
  say 'It removed the label before anything else. Until then, both clusters had a pod with the label. Now only one has.'
}

demoted() { awk '$4 == "follower" && led[$2] { print $1; exit } { led[$2] = $4 == "leader" }' "$work/observed"; }

seen_demoted() { [ -n "$(demoted)" ]; }

invite_both() {
  printf '\nIt works.\n'
  [ -t 1 ] || return 0
  local name=kubectl
  command -v kubectl >/dev/null || name=$kubectl
  printf 'To play with it, type in another terminal:\n\n'
  [ "$store" != consul ] || say "export CONSUL_HTTP_ADDR=$CONSUL_HTTP_ADDR"
  say "$name --kubeconfig ${kubeconfigs[west]} get leaderelection web -o wide --watch"
  say "$name --kubeconfig ${kubeconfigs[east]} scale deployment web --replicas=0     # west takes over"
  case $store in
    consul) say "$consul kv get services/default/web/leader" ;;
    bucket) say "cat $data/example-locks/lictor/locks/services/default/web/leader.json" ;;
    hub) say "$name --kubeconfig ${kubeconfigs[hub]} -n lictor-locks get leases --watch" ;;
  esac
  say "tail -f ${logs[west]} ${logs[east]}"
  stay
}
