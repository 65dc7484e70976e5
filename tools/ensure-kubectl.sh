#!/usr/bin/env bash
# kubectl from the distribution, where it is missing and we may install it; otherwise say how to get it.
set -euo pipefail
command -v kubectl >/dev/null && exit 0

install() {
  [ "$(id -u)" = 0 ] || return 1
  if command -v apt-get >/dev/null; then
    echo "setup: installing kubectl (Debian's kubernetes-client)"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq kubernetes-client >/dev/null
  elif command -v dnf >/dev/null; then
    echo "setup: installing kubectl (kubernetes-client)"
    dnf install -y -q kubernetes-client
  else
    return 1
  fi
}

install || echo "setup: kubectl is missing and could not be installed; the demo does without, the guides and the end-to-end" \
  "tests do not: see https://kubernetes.io/docs/tasks/tools/" >&2
