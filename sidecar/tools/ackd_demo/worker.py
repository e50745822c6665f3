"""A worker for ackd in nothing but the Python standard library. Take it and change `work`.

    python worker.py http://127.0.0.1:7080 orders

It asks for one order at a time, does the work, and says that it is done. When it hangs or dies in
between, it says nothing, and ackd hands the order to somebody else once the lease has run out.
"""

import json
import os
import sys
import time
import urllib.error
import urllib.request


def post(url: str, body: dict[str, object]) -> dict[str, object]:
    """POST a JSON body; the JSON answer."""
    headers = {"Content-Type": "application/json", "User-Agent": os.environ.get("WORKER", "python")}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)  # noqa: S310
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        found: dict[str, object] = json.load(answer)
        return found


def work(order: dict[str, object], count: int) -> None:  # noqa: ARG001
    """The work itself: here a short sleep, and (when the demo wants it) a very long one."""
    if str(count) == os.environ.get("HANG_AT"):
        time.sleep(3600)
    time.sleep(float(os.environ.get("WORK_S", "0.1")))


def main(ackd: str, subscription: str) -> None:
    """Receive, work, ack; for ever."""
    count = 0
    while True:
        try:
            answer = post(f"{ackd}/v1/subscriptions/{subscription}/receive", {"wait_ms": 5000})
            for message in answer["messages"]:  # type: ignore[attr-defined]
                count += 1
                work(message["json"], count)
                post(f"{ackd}/v1/leases/{message['lease']}/ack", {})
        except urllib.error.HTTPError as error:
            if error.code == 410:  # noqa: PLR2004
                continue  # Too late: the order went to another worker.
            time.sleep(0.2)
        except OSError:
            time.sleep(0.2)  # The sidecar is not there; it will be.


if __name__ == "__main__":
    main(*sys.argv[1:3])
