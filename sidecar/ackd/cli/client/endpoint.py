"""Finds a port of a running sidecar and its token, by `--url` or else by the configuration."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from ackd.cli import common
from ackd.config.address import UnixAddress, parse_address
from ackd.errors import ConfigError

LOOPBACK = "127.0.0.1"
UNIX = "unix:"
Port = Literal["data", "admin"]


@dataclass(frozen=True, slots=True)
class AdminEndpoint:
    """`url` is the base of every address. With `unix`, clients connect to that socket file."""

    url: str
    unix: str = ""
    token: str = ""

    @property
    def name(self) -> str:
        """The address as an operator writes it in `--url`, without a scheme."""
        return f"{UNIX}{self.unix}" if self.unix else self.url.partition("://")[2]


def subscription_action(actions: Any, name: str, text: str) -> argparse.ArgumentParser:
    """Declare one of a command's actions, which is about a subscription."""
    sub: argparse.ArgumentParser = actions.add_parser(name, help=text, allow_abbrev=False)
    sub.add_argument("subscription", help="name of the subscription")
    add_arguments(sub, "admin")
    return sub


def add_arguments(parser: argparse.ArgumentParser, port: Port, *, several: bool = False) -> None:
    """Declare `--config`, `--url` and `--token-file`."""
    common.add_config(parser)
    example = "http://127.0.0.1:7081" if port == "admin" else "http://127.0.0.1:7080"
    parser.add_argument(
        "--url",
        metavar="URL",
        action="append" if several else "store",
        help=f"{port} port, say {example} or unix:/run/ackd.sock"
        + ("; may be given several times" if several else ""),
    )
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE", help="file with the bearer token"
    )


def find(arguments: argparse.Namespace, port: Port) -> AdminEndpoint:
    """The first endpoint of `--url`, else that of the configuration. Raises ConfigError,
    OSError.
    """
    return find_all(arguments, port)[0]


def find_all(arguments: argparse.Namespace, port: Port) -> list[AdminEndpoint]:
    """Every endpoint of `--url`, else that of the configuration; at least one. Raises ConfigError,
    OSError.
    """
    given = arguments.url or []
    urls = [given] if isinstance(given, str) else given
    token_file = arguments.token_file
    if not urls:
        server = common.settings_of(arguments).server
        address = server.admin_listen if port == "admin" else server.listen
        token_file = token_file or (
            server.admin_token_file if port == "admin" else server.token_file
        )
        return [of_address(address, _token(token_file))]
    token = _token(token_file)
    return [of_url(url, token) for url in dict.fromkeys(urls)]


def _token(file: Path | None) -> str:
    """First line of the token file, empty without a file. Raises ConfigError, OSError."""
    if file is None:
        return ""
    try:
        return file.read_text().split("\n", 1)[0].strip()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not a text") from error


def of_url(url: str, token: str = "") -> AdminEndpoint:
    """Parse `--url`: an HTTP address, or `unix:` and a path. Raises ConfigError."""
    if url.startswith(UNIX) and len(url) > len(UNIX):
        return AdminEndpoint("http://localhost", url.removeprefix(UNIX), token)
    try:
        parts = urlsplit(url)
        known = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise ConfigError(f"--url is like http://127.0.0.1:7081, not {url!r}")
    return AdminEndpoint(url.rstrip("/"), token=token)


def of_address(text: str, token: str = "") -> AdminEndpoint:
    """The endpoint of an address on which the sidecar listens."""
    address = parse_address(text)
    if isinstance(address, UnixAddress):
        return AdminEndpoint("http://localhost", address.path, token)
    host = address.host if address.host not in ("", "0.0.0.0", "::") else LOOPBACK  # noqa: S104 - nobody listens here
    return AdminEndpoint(
        f"http://{f'[{host}]' if ':' in host else host}:{address.port}", token=token
    )
