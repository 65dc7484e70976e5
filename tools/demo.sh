#!/usr/bin/env bash
# Start a hub with workspaces, fill an inventory, place a workload with kubectl, see it arrive in mailboxes, and stop.
# Nothing is left behind.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v kubectl >/dev/null || { echo "demo: there is no kubectl on PATH; install one and try again" >&2; exit 1; }

home=$(mktemp -d)
hub=""
finish() {
  if [ -n "$hub" ]; then
    kill "$hub" 2>/dev/null || true
    wait "$hub" 2>/dev/null || true
  fi
  rm -rf "$home"
}
trap finish EXIT

bold="" dim="" plain=""
[ -t 1 ] && bold=$'\033[1m' dim=$'\033[2m' plain=$'\033[0m'
say() { printf '\n%s# %s%s\n' "$bold" "$*" "$plain"; }
show() {
  printf '%s$ %s%s\n' "$dim" "${*@Q}" "$plain" | sed "s/'\([a-zA-Z0-9._/:=,-]*\)'/\1/g"
  "$@"
}
eventually() {  # what the hub does after it has answered: at most 30 seconds
  for _ in $(seq 150); do
    [ "$("${@:2}")" = "$1" ] && return
    sleep 0.2
  done
  echo "demo: ${*:2} does not come to $1" >&2
  exit 1
}

say "A hub starts, with its own certificates and a first tree of workspaces, and the controllers beside it"
export HOME="$home" PATH="$PWD/.venv/bin:$PATH"  # kubectl finds its plugins ws and kcp there
farflung start --root-directory "$home/hub" --port 0 >"$home/log" 2>&1 &
hub=$!
for _ in $(seq 600); do
  grep -q "is ready" "$home/log" && break
  kill -0 "$hub" 2>/dev/null || { cat "$home/log" >&2; exit 1; }
  sleep 0.05
done
head -n 1 "$home/log"
export KUBECONFIG="$home/hub/admin.kubeconfig"
show kubectl ws tree

say "The inventory: which clusters there are, and the places they stand for"
show kubectl ws root:compute
show kubectl create -f config/samples/location_prod.yaml
show kubectl create -f config/samples/location_dev.yaml
show kubectl create -f config/samples/synctarget_prod.yaml
show kubectl create -f config/samples/synctarget_dev.yaml
eventually 2 kubectl get location default -o 'jsonpath={.status.instances}'
eventually 1 kubectl get location dev -o 'jsonpath={.status.instances}'
eventually 1 kubectl get location prod -o 'jsonpath={.status.instances}'
show kubectl get locations,synctargets
echo
echo "The location default was made by the hub: it stands for every cluster of the workspace."

say "The workload has a workspace of its own; what it needs beyond that, it binds"
show kubectl ws root
show kubectl ws create my-org --enter
show kubectl ws create web --enter
show kubectl kcp bind apiexport root:compute:kubernetes
show kubectl apply -f config/guestbook
show kubectl -n guestbook get deployments,services

say "An EdgePlacement says what goes where; root:espw provides that API"
show kubectl apply -f config/imports
show kubectl create -f config/samples/edgeplacement_all2all.yaml
show kubectl get edgeplacements
show kubectl get edgeplacement all2all -o 'jsonpath={.spec}{"\n"}'

say "The scheduler says where that is, and each cluster has a mailbox workspace below root:espw"
destinations() { kubectl get sps all2all -o 'jsonpath={.destinations[*].locationName}' 2>/dev/null | wc -w; }
eventually 4 destinations
show kubectl get sps all2all -o 'jsonpath={range .destinations[*]}{.locationName} on {.syncTargetName}{"\n"}{end}'
show kubectl ws root:espw
mailboxes() { kubectl get workspaces -o name | wc -l; }
eventually 2 mailboxes
show kubectl get workspaces

say "The placement translator puts copies of the workload into the mailboxes, and tells the syncers"
mailbox=$(kubectl get workspaces -o 'jsonpath={.items[0].metadata.name}')
show kubectl ws "$mailbox"
copies() { kubectl get deployments,services -n guestbook -o name 2>/dev/null | wc -l; }
eventually 2 copies
show kubectl get namespaces
show kubectl -n guestbook get deployments,services
show kubectl get syncerconfig the-one -o 'jsonpath={.spec.namespaceScope.namespaces}{"\n"}'
echo
echo "What carries them from there to the clusters comes later."

say "Workspaces know nothing of each other"
show kubectl ws root:my-org
show kubectl ws create other --enter
show kubectl get namespaces
show kubectl ws root
show kubectl ws tree

say "A workspace goes with all that is in it"
show kubectl delete workspace my-org
show kubectl get workspaces

say "The hub stops"
kill "$hub"
wait "$hub"
hub=""
grep '^farflung hub' "$home/log" | tail -n 1
