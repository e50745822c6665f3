# ruff: noqa: E402 -- the registration below has to come first
"""The contract suite for adapters: what every broker must do, as test classes to subclass.

An adapter's tests give a fixture `lab` (see `Lab`) and subclass the six classes;
docs/develop/adapters.md shows it whole. It needs pytest and pytest-asyncio, which ackd does not
install.
"""

import pytest

# Before the modules are imported: a failed `assert` in them then says what was compared.
pytest.register_assert_rewrite(
    *(
        f"ackd_testing.{name}"
        for name in (
            "connection",
            "fetching",
            "group",
            "lab",
            "needs",
            "broker_side_acks",
            "progress",
            "publishing",
            "reader",
            "wait",
        )
    )
)

from ackd_testing.broker_side_acks import BrokerSideAcksContract
from ackd_testing.connection import ConnectionContract
from ackd_testing.fetching import FetchContract
from ackd_testing.group import GroupContract
from ackd_testing.lab import Bench, Lab, NotPossibleError, OtherProcess
from ackd_testing.progress import ProgressContract
from ackd_testing.publishing import PublishContract
from ackd_testing.reader import Reader

__all__ = [
    "Bench",
    "BrokerSideAcksContract",
    "ConnectionContract",
    "FetchContract",
    "GroupContract",
    "Lab",
    "NotPossibleError",
    "OtherProcess",
    "ProgressContract",
    "PublishContract",
    "Reader",
]
