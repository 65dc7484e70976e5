#!/usr/bin/env bash
# kubectl from the distribution, where it is missing and we may install it; otherwise say how to get it.
set -euo pipefail
command -v kubectl >/dev/null && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "setup: installing kubectl (Debian's kubernetes-client)"
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq kubernetes-client >/dev/null
elif [ "$(id -u)" = 0 ] && command -v dnf >/dev/null; then
  echo "setup: installing kubectl (kubernetes-client)"
  dnf install -y -q kubernetes-client
else
  echo "setup: kubectl is missing, and may not be installed from here; the demo and the end-to-end tests need it" >&2
fi
