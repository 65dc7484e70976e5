#!/usr/bin/env bash
# Start a hub, apply the samples with kubectl, look at them, change them, and stop.  Nothing is left behind.
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
  printf '%s$ %s%s\n' "$dim" "${*@Q}" "$plain" | sed "s/'\([a-zA-Z0-9._/:=-]*\)'/\1/g"
  "$@"
}

say "A hub starts: one process, its own certificates, an empty store"
.venv/bin/farflung hub --root-directory "$home/hub" --port 0 >"$home/log" 2>&1 &
hub=$!
for _ in $(seq 600); do
  grep -q "is ready" "$home/log" && break
  kill -0 "$hub" 2>/dev/null || { cat "$home/log" >&2; exit 1; }
  sleep 0.05
done
head -n 1 "$home/log"
export KUBECONFIG="$home/hub/admin.kubeconfig" HOME="$home"

say "kubectl talks to it as to any cluster"
show kubectl version
show kubectl apply -f config/guestbook
show kubectl get namespaces
show kubectl -n guestbook get configmaps,deployments,services -o wide

echo
echo "The Deployment stays at 0 of 2: this hub keeps objects; what runs them comes later."

say "Change something, and look at it"
show kubectl -n guestbook scale deployment frontend --replicas=5
show kubectl -n guestbook patch configmap greeting --type merge -p '{"data":{"language":"fr"}}'
show kubectl -n guestbook get deployment frontend -o jsonpath='{.spec.replicas} replicas, generation {.metadata.generation}{"\n"}'
show kubectl -n guestbook get configmap greeting -o yaml
show kubectl explain deployment.spec.replicas

say "Delete it all again"
show kubectl delete -f config/guestbook

say "The hub stops"
kill "$hub"
wait "$hub"
hub=""
grep '^farflung hub' "$home/log" | tail -n 1
