#!/bin/sh
# A worker for ackd in curl and plain shell: sh worker.sh http://127.0.0.1:7080 orders
# Asked for bytes, ackd answers with the message itself; what belongs to it stands in headers.
ackd=$1
subscription=$2
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
trap 'exit 0' INT TERM

while :; do
  status=$(curl -s -o "$folder/order" -D "$folder/headers" -w '%{http_code}' -A "${WORKER:-curl}" \
    -H 'Accept: application/octet-stream' -H 'Content-Type: application/json' \
    -d '{"wait_ms": 5000}' "$ackd/v1/subscriptions/$subscription/receive")
  case $status in
    200) ;;
    204) continue ;;           # nothing to do: ask again
    *) sleep 0.2; continue ;;  # the sidecar is not there; it will be
  esac
  lease=$(sed -n 's/^[Aa]ckd-[Ll]ease: *//p' "$folder/headers" | tr -d '\r')
  sleep "${WORK_S:-0.1}"       # the work: the order is in $folder/order
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    status=$(curl -s -o /dev/null -w '%{http_code}' -A "${WORKER:-curl}" -X POST \
      "$ackd/v1/leases/$lease/ack")
    case $status in 200 | 410) break ;; esac  # done, or too late: it went to another worker
    sleep 0.2
  done
done
