"""A real Pulsar from Maven's archive: `Pulsar(PulsarOptions(...))`."""

from tests.support.pulsar.admin import Admin, AdminError
from tests.support.pulsar.broker import Pulsar
from tests.support.pulsar.config import PulsarOptions
from tests.support.pulsar.install import install, missing

__all__ = ["Admin", "AdminError", "Pulsar", "PulsarOptions", "install", "missing"]
