#!/bin/bash
# Installs Debian's packages of these names, as root; what was printed is shown when it fails.
set -euo pipefail

echo "installing $*"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Servers are started by the tests themselves: RUNLEVEL=1 keeps a package from starting its own.
{
  apt-get update -qq -o Acquire::Retries=3 &&
    RUNLEVEL=1 apt-get install -y -qq -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 \
      --no-install-recommends "$@"
} >"$log" 2>&1 || {
  cat "$log" >&2
  exit 1
}
