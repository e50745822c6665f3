"""Celery as its users run it: a worker process, and tasks sent to it. Arguments: port, a folder.

As a module of the worker (with the variables that the main part sets) it only defines the tasks.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from celery import Celery

PORT = os.environ.get("TASKS_PORT") or sys.argv[1]
FOLDER = Path(os.environ.get("TASKS_FOLDER") or sys.argv[2])
QUEUE = "plain"

app = Celery("tasks")
app.conf.update(
    broker_url=f"sqs://any:any@127.0.0.1:{PORT}//",
    broker_transport_options={
        "region": "us-east-1",
        "is_secure": False,
        "wait_time_seconds": 5,
        "visibility_timeout": 60,
        "polling_interval": 0,
    },
    task_default_queue=QUEUE,
    task_acks_late=True,
    worker_enable_remote_control=False,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
)


@app.task(name="note")  # type: ignore[untyped-decorator]
def note(name: str) -> None:
    (FOLDER / f"done-{name}").touch()


@app.task(name="flaky", bind=True, max_retries=5)  # type: ignore[untyped-decorator]
def flaky(self: Any) -> None:
    (FOLDER / f"try-{self.request.retries}").touch()
    if self.request.retries < 2:
        raise self.retry(countdown=1)
    (FOLDER / "done-flaky").touch()


def main() -> None:
    """Send tasks, and wait until a worker has done them."""
    env = {**os.environ, "TASKS_PORT": PORT, "TASKS_FOLDER": str(FOLDER)}
    argv = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        "celery_tasks",
        "worker",
        "-P",
        "solo",
        "-l",
        "info",
    ]
    log = (FOLDER / "worker.log").open("w")
    worker = subprocess.Popen(argv, env=env, cwd=Path(__file__).parent, stdout=log, stderr=log)
    try:
        for number in range(3):
            note.delay(str(number))
        note.apply_async(("late",), countdown=2)
        flaky.delay()
        end_s = time.monotonic() + 150
        while len(list(FOLDER.glob("done-*"))) < 5:
            assert time.monotonic() < end_s, (FOLDER / "worker.log").read_text()
            assert worker.poll() is None, (FOLDER / "worker.log").read_text()
            time.sleep(0.1)
        done, tries = (len(list(FOLDER.glob(each))) for each in ("done-*", "try-*"))
        sys.stdout.write(f"{done} done, {tries} tries of the one that fails\n")
    finally:
        worker.send_signal(signal.SIGTERM)
        try:
            worker.wait(20)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()


if __name__ == "__main__":
    main()
