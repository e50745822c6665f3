"""The stores: Redis or Valkey (embedded or external) and memory, one contract."""

import sys


def _load_client() -> None:
    """Load redis without the SDK of OpenTelemetry.

    Where that is installed, the client loads its metrics for a feature that nobody here turns on,
    traces or not: 3.5 MiB and 80 ms for nothing. None in `sys.modules` is how Python says that a
    module is not there; the client asks once, when it is loaded.
    """
    name = "opentelemetry"
    hidden = name not in sys.modules
    if hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # as importlib documents it
    try:
        import redis.asyncio  # noqa: F401, PLC0415
    finally:
        if hidden:
            del sys.modules[name]


_load_client()
