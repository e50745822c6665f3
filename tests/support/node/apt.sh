#!/bin/bash
# Installs what its arguments name (programs that are called as their Debian packages are), if it is
# missing and if it may.
set -euo pipefail

packages=()
for each in "$@"; do
  case $each in
  containernetworking-plugins) [ -x /usr/lib/cni/bridge ] || packages+=("$each") ;;
  *) command -v "$each" >/dev/null || packages+=("$each") ;;
  esac
done
[ "${#packages[@]}" -eq 0 ] && exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "This needs: ${packages[*]} (names of Debian)." >&2
  exit 1
fi

"$(dirname "$0")/../apt-install.sh" "${packages[@]}"
