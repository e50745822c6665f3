"""docs/guides/push.md: its application and its configuration do what the page says."""

from __future__ import annotations

import asyncio
import re
import sys
import tomllib
from pathlib import Path

from tests.integration.push.conftest import StartWorld
from tests.support.paths import REPO
from tests.support.proc import Process
from tests.support.wait import wait_until_async

PAGE = (REPO / "docs" / "guides" / "push.md").read_text()


def blocks(kind: str) -> list[str]:
    """The page's code blocks of a language."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


async def test_the_application_of_the_page_gets_its_message(start: StartWorld) -> None:
    """The page's program is complete, and its `url` is where it listens."""
    [program] = blocks("python")
    first = tomllib.loads(blocks("toml")[0])["subscriptions"]["orders"]["push"]
    assert first == {"url": "http://127.0.0.1:8000/orders"}
    assert '("127.0.0.1", 8000)' in program
    world = await start(up=False)
    path = world.folder / "orders.py"
    path.write_text(program.replace("8000", str(world.app.port)))
    argv: list[str | Path] = [sys.executable, "-u", path]
    application = Process(argv, log_path=world.folder / "orders.log")
    await asyncio.to_thread(application.start)
    try:
        await world.publish(b'{"total": 1}')
        await world.finished(1)

        async def printed() -> bool:
            return "/0 1 b'{\"total\": 1}'" in application.log()

        await wait_until_async(printed, "the program prints the message")
    finally:
        await asyncio.to_thread(application.stop)


def test_page_names_every_setting_that_exists() -> None:
    """What the page calls a setting is one."""
    source = (REPO / "sidecar/ackd/config/push.py").read_text()
    source += (REPO / "sidecar/ackd/config/schema.py").read_text()
    source += (REPO / "sidecar/ackd/config/subscription.py").read_text()
    for name in set(re.findall(r"`(?:server\.)?([a-z]+(?:_[a-z]+)+)(?: = [^`]*)?`", PAGE)):
        if not name.startswith("ackd_"):
            assert f"    {name}: " in source, name
