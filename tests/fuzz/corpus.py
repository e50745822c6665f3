"""Inputs of each target: its seeds, and those that are kept in the tree."""

import hashlib
import importlib
from pathlib import Path

from tests.support.paths import CACHE

CORPUS = Path(__file__).with_name("corpus")


def kept(target: str) -> Path:
    """The folder of inputs in the tree."""
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def written(target: str) -> Path:
    """A folder with the seeds as files, as the fuzzer reads them."""
    folder = CACHE / "fuzz" / "seeds" / target
    folder.mkdir(parents=True, exist_ok=True)
    for seed in importlib.import_module(f"tests.fuzz.{target}").seeds():
        (folder / hashlib.sha1(seed).hexdigest()).write_bytes(seed)  # noqa: S324  a name
    return folder


def inputs(target: str) -> list[bytes]:
    """All of them."""
    module = importlib.import_module(f"tests.fuzz.{target}")
    return [*module.seeds(), *(path.read_bytes() for path in sorted(kept(target).iterdir()))]
