#!/bin/bash
# Runs its arguments on a "machine" of their own: network, mounts, processes and cgroups, so that a
# kubelet may do in there what it likes. Needs root. What is left over is removed, whatever happens.
set -euo pipefail

if [ "$(id -u)" -ne 0 ]; then
  # Tests say why they can't run; see tests.support.node.node.missing.
  exec "$@"
fi

name=ackd-node-$$
# Images are unpacked in there, which takes a disk that is no overlay itself.
folder=$(mktemp -d "${ACKD_NODE_TMP:-/var/tmp}/$name.XXXXXX")

# What runs that were killed together with this script have left.
for old in "${folder%/*}"/ackd-node-*; do
  number=${old##*/ackd-node-}
  [ -d "/proc/${number%%.*}" ] || rm -rf "$old"
done
if [ -d /sys/fs/cgroup ]; then
  while read -r old; do
    number=${old##*/ackd-node-}
    [ -d "/proc/$number" ] || find "$old" -depth -type d -exec rmdir {} + 2>/dev/null || true
  done < <(find /sys/fs/cgroup -maxdepth 2 -type d -name 'ackd-node-*')
fi

cgroups() {
  if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
    echo "/sys/fs/cgroup/$name"
  else
    for each in /sys/fs/cgroup/*/; do
      [ -L "${each%/}" ] || echo "$each$name"
    done
  fi
}

clean() {
  for _ in $(seq 50); do
    left=0
    while read -r group; do
      [ ! -d "$group" ] || find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || left=1
    done < <(cgroups)
    [ "$left" = 0 ] && break
    sleep 0.1
  done
  rm -rf "$folder"
}
trap clean EXIT

while read -r group; do mkdir -p "$group"; done < <(cgroups)

# A kubelet sets these for the whole machine; it finds them set already, in files.
export ACKD_NODE_CGROUP=$name
mkdir -p "$folder/sys"
settings=(
  vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1
  kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000
)
for each in "${settings[@]}"; do
  echo "${each#*=}" >"$folder/sys/${each//[\/=]/-}"
done

# shellcheck disable=SC2016  -- in there
unshare --net --mount --pid --fork --mount-proc --kill-child --propagation private bash -euc '
  folder=$1
  shift
  mount -t tmpfs -o mode=755 tmpfs /run
  ip link set lo up
  mkdir -p /run/node /run/lock
  mount --bind "$folder" /run/node
  for each in '"${settings[*]}"'; do
    mount --bind "/run/node/sys/${each//[\/=]/-}" "/proc/sys/${each%=*}"
  done
  status=0
  "$@" || status=$?
  exit $status
' space "$folder" "$@"
