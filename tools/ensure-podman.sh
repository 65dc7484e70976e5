#!/usr/bin/env bash
# podman from the distribution, and busybox to make an image of, where they are missing and we may install them; otherwise say how.
set -euo pipefail
command -v podman >/dev/null && command -v catatonit >/dev/null && command -v busybox >/dev/null && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "setup: installing podman and busybox-static"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends podman runc catatonit busybox-static >/dev/null
else
  echo "setup: podman or a static busybox is missing, and may not be installed from here; tests of containers need both" >&2
fi
