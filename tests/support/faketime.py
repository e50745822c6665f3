"""The clock of a server, to be set while it runs: libfaketime answers for the kernel."""

from pathlib import Path

_WHERE = "*/faketime/libfaketimeMT.so.1"


def missing() -> str:
    """What is not installed, as a sentence; empty when it is there."""
    return (
        "" if _libraries() else "a clock to set needs libfaketime; on Debian: tests/support/apt.sh"
    )


class Clock:
    """The clock of the processes that are started with `environment`; it starts as it is."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self.set_back(0)

    @property
    def environment(self) -> dict[str, str]:
        """Waits keep their length: only the time of day is another one."""
        return {
            "LD_PRELOAD": str(_libraries()[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            # Else waits of Java end at once.
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        }

    def set_back(self, by_s: int) -> None:
        """From the time of this machine; who runs notices in some seconds."""
        made = self._file.with_suffix(".new")
        made.write_text(f"-{by_s}s\n")
        made.replace(self._file)


def _libraries() -> list[Path]:
    return sorted(Path("/usr/lib").glob(_WHERE))
