#!/usr/bin/env bash
# The global scheduler with the settings in CONFIG_BASE, by default those of conf/; nothing is built.  Options are passed on.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
export CONFIG_BASE="${CONFIG_BASE:-$root/conf}"
[ -x "$root/.venv/bin/farflung" ] && PATH="$root/.venv/bin:$PATH"
exec farflung global-scheduler "$@"
