"""What to do when something a test needs is not installed: say so, and in CI fail."""

import os

import pytest

REQUIRE_ALL = "ACKD_TEST_REQUIRE_ALL"


def require(lack: str) -> None:
    """Go on when `lack` is empty; else skip, or fail where ACKD_TEST_REQUIRE_ALL=1 is set."""
    if not lack:
        return
    if os.environ.get(REQUIRE_ALL) == "1":
        pytest.fail(lack, pytrace=False)
    pytest.skip(lack)
