#!/bin/bash
# Builds the image from the Dockerfile with buildah: no Docker engine, no registry.
#
#   tests/support/node/image.sh            the sidecar's image, as $folder/ackd.tar, and what is in it
#   tests/support/node/image.sh reports    the target `reports`, built only
#
# Needs root, and buildah and debootstrap, which it installs on Debian. The base is Debian's own
# Python, made by debootstrap (DEBIAN_MIRROR: where from, if not from Debian). A second argument
# names another image, which is pulled: what is built then is what
# `docker build --build-arg PYTHON=IMAGE` builds.
set -euo pipefail
cd "$(dirname "$0")/../../.."

target=${1:-sidecar}
base=${2:-}
folder=${ACKD_IMAGE_FOLDER:-${XDG_CACHE_HOME:-$HOME/.cache}/ackd/image}
suite=bookworm
bundle=/etc/ssl/certs/ca-certificates.crt

if [ "$(id -u)" -ne 0 ]; then
  echo "Building the image needs root: it unpacks a system and runs programs in it." >&2
  exit 1
fi
tests/support/node/apt.sh buildah debootstrap
# buildah leaves mounts behind: they go with a namespace of our own.
if [ -z "${ACKD_IMAGE_SPACE:-}" ]; then
  ACKD_IMAGE_SPACE=1 exec unshare --mount --propagation private tests/support/node/image.sh "$@"
fi
mkdir -p "$folder"
exec 9>"$folder/lock"
flock 9

store() { buildah --root "$folder/storage" --runroot "$folder/run" "$@"; }

# In full: short names are looked up at registries.
own=localhost/debian-python:$suite

make_base() {
  local root=$folder/root
  rm -rf "$root"
  # pip and the name `python`, as in the image that stands in the Dockerfile.
  debootstrap --variant=minbase --include=python3,python3-venv,python3-pip,ca-certificates \
    "$suite" "$root" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} >"$folder/debootstrap.log" || {
    tail -n 20 "$folder/debootstrap.log" >&2
    return 1
  }
  ln -sf ../../bin/python3 "$root/usr/local/bin/python"
  rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
  tar --sort=name -C "$root" -cf "$folder/base.part" .
  mv "$folder/base.part" "$folder/base.tar"
  rm -rf "$root"
}

argument=()
if [ -n "$base" ]; then
  argument=(--build-arg "PYTHON=$base")
else
  if [ ! -f "$folder/base.tar" ]; then
    echo "making the base image: Debian $suite with its Python"
    make_base
  fi
  if ! store inspect --type image "$own" >/dev/null 2>&1; then
    container=$(store from scratch)
    store add "$container" "$folder/base.tar" / >/dev/null
    store commit --quiet --rm "$container" "$own" >/dev/null
  fi
  argument=(--pull-never --build-arg "PYTHON=$own")
fi

name=localhost/ackd
[ "$target" = sidecar ] || name=$name-$target
[ -f "$bundle" ] && argument+=(--volume "$bundle:$bundle:ro")
began=$SECONDS
store bud --isolation chroot --layers --target "$target" "${argument[@]}" \
  --build-arg "REVISION=$(git rev-parse HEAD 2>/dev/null || echo unknown)" \
  --tag "$name:test" . >"$folder/build-$target.log" 2>&1 || {
  tail -n 40 "$folder/build-$target.log" >&2
  exit 1
}
echo "$name:test: built in $((SECONDS - began)) s"
if [ "$target" = sidecar ]; then
  rm -f "$folder/ackd.part"
  store push --quiet "$name:test" "docker-archive:$folder/ackd.part:$name:test"
  mv "$folder/ackd.part" "$folder/ackd.tar"
  container=$(store from --pull-never "$name:test")
  cp "$(store mount "$container")/opt/ackd/sbom.cdx.json" "$folder/ackd.cdx.json"
  store rm "$container" >/dev/null
  ls -l "$folder/ackd.tar" | awk -v name="$folder/ackd.tar" '{ printf "%s: %.0f MB\n", name, $5 / 1e6 }'
fi
