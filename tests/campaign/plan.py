"""A world, as a number draws it."""

import random
from dataclasses import asdict, dataclass

BROKERS = ("kafka", "pulsar", "rocketmq", "local")
STORES = ("embedded", "single", "sentinel", "cluster")
DURABILITIES = ("everysec", "always", "replicated")
PACES_MS = (600, 1_200, 2_500)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldPlan:
    """What is started, what it does and what it meets.

    `pause_ms`, `down_ms`, `frozen_ms`, `freeze` and `cut` are as in `ackd_torture.nemesis.Temper`.
    `full_disk`: the store's disk is filled now and then. `restarts`: some sidecars are stopped in
    good order.
    """

    seed: int
    broker: str
    sidecars: int
    store: str
    durability: str
    partitions: int
    ordering: str
    rate_per_s: int
    publish_max: int
    batch_max: int
    kills: int
    pause_ms: int
    down_ms: int
    frozen_ms: int
    freeze: float
    cut: float
    full_disk: bool
    restarts: bool

    def facts(self) -> dict[str, object]:
        """For the log."""
        return asdict(self)


def drawn(seed: int, kills: int, rate_per_s: int) -> WorldPlan:
    """The world of this number. Brokers take turns; all else is by chance."""
    rng = random.Random(seed)
    store = rng.choice(STORES)
    sidecars = 1 if store == "embedded" else rng.randint(1, 4)
    durability = rng.choice(_durabilities(store))
    return WorldPlan(
        seed=seed,
        broker=BROKERS[seed % len(BROKERS)],
        sidecars=sidecars,
        store=store,
        durability=durability,
        partitions=rng.choice((1, 4, 8)),
        ordering=rng.choice(("", "", "key")),
        rate_per_s=rate_per_s,
        publish_max=rng.choice((1, 20, 50)),
        batch_max=rng.choice((1, 32, 100)),
        kills=kills,
        pause_ms=rng.choice(PACES_MS),
        down_ms=rng.choice((400, 800, 3_000)),
        frozen_ms=rng.choice((1_500, 3_000, 8_000)),
        freeze=rng.choice((0.1, 0.3)),
        cut=rng.choice((0.0, 0.15, 0.3)),
        full_disk=store == "single" and rng.random() < 1 / 2,
        restarts=rng.random() < 1 / 2,
    )


def _durabilities(store: str) -> tuple[str, ...]:
    """What this kind of store can promise. Behind Sentinel and in a cluster a failover may forget
    what no replica has yet, unless settles wait for one.
    """
    match store:
        case "embedded":
            return ("everysec", "always")
        case "single":
            return DURABILITIES
        case _:
            return ("everysec", "replicated")
