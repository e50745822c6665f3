#!/bin/bash
# What the tests on real servers need beside Python: Java and Maven for Kafka, redis-server for TLS,
# Sentinel and Cluster, prometheus for the alert rules, Chromium for pages,
# iproute2 for the network of a Kubernetes, curl for the commands of pages, libfaketime for a broker's
# clock. Installs what is missing
# when it may, else says what to do.
set -euo pipefail

packages=()
command -v java >/dev/null || packages+=(default-jre-headless)
command -v mvn >/dev/null || packages+=(maven)
command -v redis-server >/dev/null || packages+=(redis-server)
command -v prometheus >/dev/null && command -v promtool >/dev/null || packages+=(prometheus)
command -v chromium >/dev/null || command -v google-chrome >/dev/null || packages+=(chromium)
command -v ip >/dev/null || packages+=(iproute2)
command -v curl >/dev/null || packages+=(curl)
compgen -G "/usr/lib/*/faketime/libfaketimeMT.so.1" >/dev/null || packages+=(libfaketime)
[ "${#packages[@]}" -eq 0 ] && exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "The tests on real servers need: ${packages[*]} (names of Debian)." >&2
  echo "Install them, or run only the tests that need no servers: make test-fast" >&2
  exit 1
fi

"$(dirname "$0")/apt-install.sh" "${packages[@]}"
