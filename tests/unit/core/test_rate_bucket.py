"""The token bucket never gives more than a burst and what the time has brought."""

from random import Random

from ackd.core.rate_bucket import Bucket, TokensTaken

SECOND_US = 1_000_000


def test_a_full_bucket_gives_a_burst_then_the_rate() -> None:
    bucket, taken = Bucket(10, 0).take(100, 5.0, 10, 0)
    assert taken == TokensTaken(10, 0)
    bucket, taken = bucket.take(1, 5.0, 10, 0)
    assert taken == TokensTaken(0, 200)
    bucket, taken = bucket.take(9, 5.0, 10, SECOND_US)
    assert taken == TokensTaken(5, 0)
    bucket, taken = bucket.take(100, 5.0, 10, 3600 * SECOND_US)
    assert taken == TokensTaken(10, 0)


def test_a_clock_that_goes_back_gives_nothing_and_takes_nothing() -> None:
    bucket, _ = Bucket(3, 10 * SECOND_US).take(3, 1.0, 3, 10 * SECOND_US)
    bucket, taken = bucket.take(1, 1.0, 3, 0)
    assert taken == TokensTaken(0, 1000)
    assert bucket.take(1, 1.0, 3, SECOND_US)[1] == TokensTaken(1, 0)


def test_never_more_than_burst_and_rate_whatever_is_asked_when() -> None:
    for seed in range(200):
        random = Random(seed)
        rate, burst = random.uniform(0.1, 5000), random.randint(1, 100)
        bucket, now_us, given = Bucket(burst, 0), 0, 0
        for _ in range(200):
            now_us += random.randint(0, 50_000)
            bucket, taken = bucket.take(random.randint(1, 200), rate, burst, now_us)
            given += taken.granted
            assert given <= burst + rate * now_us / SECOND_US + 1e-6, f"seed {seed}"
            assert bool(taken.granted) is not bool(taken.wait_ms), f"seed {seed}"
