"""Topics and groups of a RocketMQ, by a small Java program that stays for the whole run.

There is no client for the administrator's protocol in Python, and each call of the broker's own
tool starts a JVM (4-7 s).
"""

import subprocess
import threading
from pathlib import Path

from tests.support import reaper

SOURCE = Path(__file__).with_name("Admin.java")


class RocketMQAdminError(AssertionError):
    """The broker refused, or the program ended."""


class Admin:
    """Talks to `Admin.java`. One order at a time, from any thread. `at`: the addresses of the
    brokers that get topics and groups.
    """

    def __init__(
        self, lib: Path, home: Path, names: str, brokers: list[str], keys: tuple[str, ...] = ()
    ) -> None:
        self.at = brokers
        logs = home / "admin"
        logs.mkdir(exist_ok=True)
        self._lock = threading.Lock()
        self._popen = subprocess.Popen(
            [
                "java",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-Xmx96m",
                f"-Duser.home={logs}",
                "-cp",
                f"{lib}/*",
                str(SOURCE),
                names,
                *keys,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        reaper.watch_process(self._popen.pid)

    def topic(self, name: str, queues: int = 1, kind: str = "NORMAL") -> str:
        """Make a topic: NORMAL, FIFO, DELAY or TRANSACTION. Returns the name."""
        self.order(f"topic {self._where} {name} {queues} {kind}")
        return name

    def group(self, name: str, *, orderly: bool = False, retries: int = 1000) -> str:
        """Make a consumer group. Returns the name."""
        self.order(f"group {self._where} {name} {str(orderly).lower()} {retries}")
        return name

    def reset(self, group: str, topic: str, queue: int, offset: int) -> None:
        """Reset a group in one queue of the first broker, as `mqadmin resetOffsetByTime` does."""
        self.order(f"reset {self._where} {group} {topic} {queue} {offset}")

    def user(self, name: str, secret: str, *rights: str) -> None:
        """Make a user with these rights (`Pub`, `Sub`, `Get`, ...) on all topics and groups."""
        self.order(f"user {self._where} {name} {secret} {','.join(rights)}")

    def drop_topic(self, name: str) -> None:
        """Delete a topic."""
        self.order(f"drop {self._where} {name}")

    def brokers(self) -> int:
        """How many brokers the name server knows; 0 also when it does not answer."""
        try:
            return int(self.order("brokers"))
        except RocketMQAdminError:
            return 0

    def queues(self, topic: str) -> dict[str, int]:
        """How many queues the topic's route has on each broker, by name."""
        words = [each.split("=") for each in self.order(f"queues {topic}").split()]
        return {name: int(count) for name, count in words}

    @property
    def _where(self) -> str:
        return ",".join(self.at)

    def order(self, line: str) -> str:
        """Give an order and wait for its answer, the text behind `ok`."""
        with self._lock:
            if self._popen.stdin is None or self._popen.stdout is None:
                raise RocketMQAdminError("no pipes")
            self._popen.stdin.write(line + "\n")
            self._popen.stdin.flush()
            for answer in self._popen.stdout:
                word, _, rest = answer.strip().partition(" ")
                if word == "ok":
                    return rest
                if word == "error":
                    raise RocketMQAdminError(f"{line}: {rest}")
        raise RocketMQAdminError(f"the program ended at {line!r}")

    def stop(self) -> None:
        """Kill it."""
        self._popen.kill()
        self._popen.wait(10)
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None:
                pipe.close()
        reaper.forget_process(self._popen.pid)
