"""What the support's servers have in common: they run within a `with` block."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Started(ABC):
    """Made by `start`, gone after `stop`; also a context manager."""

    @abstractmethod
    def start(self) -> Self:
        """Start it and wait until it can be used; what was begun is stopped when that fails."""

    @abstractmethod
    def stop(self) -> None:
        """Kill it and remove its data; also when it never ran."""

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self.stop()
