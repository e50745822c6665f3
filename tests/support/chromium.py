"""A page in a real browser: Chromium without a window, spoken to in its DevTools protocol (CDP)."""

import asyncio
import base64
import itertools
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.wait import wait_until_async

NAMES = ("chromium", "chromium-browser", "google-chrome")
START_S = 120.0
ANSWER_S = 60.0
BROKEN = ("Network.loadingFailed", "Runtime.exceptionThrown")


def missing() -> str:
    """What lacks, or nothing."""
    found = any(shutil.which(name) for name in NAMES)
    return "" if found else "pages are looked at in Chromium: apt-get install chromium"


class Page:
    """One tab. `errors`: what the console and the network had to complain; `addresses`: what was
    asked for.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.errors: list[str] = []
        self.addresses: list[str] = []
        self._socket = socket
        self._numbers = itertools.count(1)
        self._loaded = asyncio.Event()
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def read(self) -> None:
        """Take in what the browser says, for as long as it does."""
        async for message in self._socket:
            told = message.json()
            if "id" in told:
                self._asked.pop(told["id"]).set_result(told)
                continue
            method, what = told["method"], told.get("params", {})
            if method == "Page.loadEventFired":
                self._loaded.set()
            elif method == "Network.requestWillBeSent":
                self.addresses.append(what["request"]["url"])
            elif method in BROKEN or _complains(method, what):
                self.errors.append(str(what))

    async def do(self, method: str, **params: object) -> dict[str, Any]:
        """A command of the protocol. Raises AssertionError with what the browser says."""
        number = next(self._numbers)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(ANSWER_S):
            told = await answer
        assert "error" not in told, (method, told["error"])
        found: dict[str, Any] = told["result"]
        return found

    async def open(self, address: str) -> None:
        """Show a page, once all of it is there."""
        for each in ("Page", "Network", "Runtime", "Log", "Accessibility"):
            await self.do(f"{each}.enable")
        self._loaded.clear()
        await self.do("Page.navigate", url=address)
        async with asyncio.timeout(ANSWER_S):
            await self._loaded.wait()

    async def value(self, script: str) -> Any:
        """What an expression of JavaScript gives."""
        found = await self.do("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def like(self, *, width: int, dark: bool = False, paper: bool = False) -> None:
        """How wide the window is, and what the reader prefers."""
        await self.do(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        media = "print" if paper else ""
        await self.do("Emulation.setEmulatedMedia", media=media, features=[scheme])

    async def picture(self, path: Path) -> Path:
        """The whole page as PNG."""
        found = await self.do("Page.captureScreenshot", captureBeyondViewport=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        data = base64.b64decode(found["data"])
        await asyncio.to_thread(path.write_bytes, data)
        return path

    async def paper(self) -> bytes:
        """The whole page as PDF."""
        found = await self.do("Page.printToPDF")
        return base64.b64decode(found["data"])


def _complains(method: str, what: dict[str, Any]) -> bool:
    return method == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning")


@asynccontextmanager
async def page(*arguments: str) -> AsyncIterator[Page]:
    """An empty tab of a browser of our own, which ends with it. `arguments` are the browser's."""
    program = next(path for name in NAMES if (path := shutil.which(name)))
    folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="ackd-chromium-"))
    command = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"]
    command += ["--disable-dev-shm-usage", "--disable-background-networking", "--hide-scrollbars"]
    command += [f"--user-data-dir={folder}", "--remote-debugging-port=0"]
    command += [*arguments, "about:blank"]
    quiet = subprocess.DEVNULL
    browser = await asyncio.create_subprocess_exec(*command, stdout=quiet, stderr=quiet)
    try:
        port = folder / "DevToolsActivePort"

        async def tab() -> str:
            told = await asyncio.to_thread(port.read_text)
            address = f"http://127.0.0.1:{told.split()[0]}/json/list"
            async with session.get(address) as answer:
                tabs = [each for each in await answer.json() if each["type"] == "page"]
            return str(tabs[0]["webSocketDebuggerUrl"]) if tabs else ""

        async with aiohttp.ClientSession() as session:
            address = await wait_until_async(
                tab,
                "Chromium answers",
                timeout_s=START_S,
                ignoring=(OSError, aiohttp.ClientError, IndexError),
            )
            async with (
                session.ws_connect(address, max_msg_size=0) as socket,
                asyncio.TaskGroup() as group,
            ):
                opened = Page(socket)
                reader = group.create_task(opened.read())
                yield opened
                reader.cancel()
    finally:
        browser.terminate()
        await browser.wait()
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
