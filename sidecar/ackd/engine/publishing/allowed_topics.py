"""Which topics applications may publish to, as the setting `publish.topics` lists them."""

from __future__ import annotations

import re
from collections.abc import Iterable


class AllowedTopics:
    """Names, and patterns that begin with `^`. An empty list allows every topic."""

    def __init__(self, topics: Iterable[str]) -> None:
        listed = tuple(topics)
        self._any = not listed
        self._names = frozenset(each for each in listed if not each.startswith("^"))
        self._patterns = [re.compile(each) for each in listed if each.startswith("^")]

    def __contains__(self, topic: str) -> bool:
        """Whether applications may publish to the topic, by its name as they give it."""
        return (
            self._any
            or topic in self._names
            or any(each.match(topic) is not None for each in self._patterns)
        )
