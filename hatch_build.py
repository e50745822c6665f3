"""Makes the RocketMQ adapter's message classes when ackd is built or installed.

They are generated from the protocol's descriptors, which its maintainers publish inside the
package that `requirements/rocketmq-protocol.txt` names by version and hash. Nothing of that package
is imported or run: the descriptors are byte strings in its source. Run as a script to make them by
hand: `python hatch_build.py`.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tempfile
import zipfile
from importlib import resources
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # as a script, where there is no build backend
    BuildHookInterface = object

ROOT = Path(__file__).resolve().parent
PIN = ROOT / "requirements" / "rocketmq-protocol.txt"
SOURCES = ROOT / "adapters"
PACKAGE = "ackd_adapters/rocketmq/protocol"
NAMES = ("definition", "service")


class ProtocolHook(BuildHookInterface):  # type: ignore[misc,valid-type,unused-ignore]
    """Called by hatchling before it collects the files, editable installations included."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make what is missing, and name it for the wheel, because git ignores it."""
        make()
        build_data["artifacts"] += [f"/adapters/{PACKAGE}/*_pb2.py", f"/adapters/{PACKAGE}/*.pyi"]


def make() -> None:
    """Make the classes unless those of this pin are there."""
    target = SOURCES / PACKAGE
    pin = PIN.read_text()
    made = target / ".made"
    if made.exists() and made.read_text() == pin:
        return
    with tempfile.TemporaryDirectory() as folder:
        descriptors = Path(folder) / "set.pb"
        descriptors.write_bytes(descriptor_set(fetch(Path(folder))))
        generate(descriptors, SOURCES)
    made.write_text(pin)


def fetch(folder: Path) -> Path:
    """The published package, its hash checked by pip."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--require-hashes"]
    subprocess.run([*command, "-d", str(folder), "-r", str(PIN)], check=True)
    return next(folder.glob("*.whl"))


def descriptor_set(wheel: Path) -> bytes:
    """A serialized FileDescriptorSet. The files get names of our own, so that they don't clash
    with that package's in one process.
    """
    from google.protobuf import (  # noqa: PLC0415 -- only where something is made
        descriptor_pb2,
        duration_pb2,
        timestamp_pb2,
    )

    found = descriptor_pb2.FileDescriptorSet()
    for known in (duration_pb2, timestamp_pb2):
        known.DESCRIPTOR.CopyToProto(found.file.add())
    with zipfile.ZipFile(wheel) as archive:
        for name in NAMES:
            (path,) = (each for each in archive.namelist() if each.endswith(f"/{name}_pb2.py"))
            file = found.file.add()
            file.ParseFromString(serialized(archive.read(path).decode()))
            file.name = f"{PACKAGE}/{name}.proto"
            for index, each in enumerate(file.dependency):
                if each.removesuffix(".proto") in NAMES:
                    file.dependency[index] = f"{PACKAGE}/{each}"
    return found.SerializeToString()


def serialized(source: str) -> bytes:
    """The byte string that a generated module gives to `AddSerializedFile`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "AddSerializedFile":
            value = ast.literal_eval(node.args[0])
            if isinstance(value, bytes):
                return value
    raise ValueError("the package holds no descriptor where one is expected")


def generate(descriptors: Path, target: Path) -> None:
    """Write modules and their type stubs."""
    from grpc_tools import protoc  # noqa: PLC0415 -- only where something is made

    files = [f"{PACKAGE}/{name}.proto" for name in NAMES]
    arguments = [
        "protoc",
        f"--proto_path={resources.files('grpc_tools') / '_proto'}",
        f"--descriptor_set_in={descriptors}",
        f"--python_out={target}",
        f"--pyi_out={target}",
        *files,
    ]
    if protoc.main(arguments):
        raise RuntimeError("protoc failed; its message stands above")


if __name__ == "__main__":
    make()
