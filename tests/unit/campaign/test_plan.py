"""What a campaign's worlds are."""

from collections import Counter

from tests.campaign.plan import BROKERS, DURABILITIES, STORES, drawn

WORLDS = [drawn(number, 40, 1_500) for number in range(400)]


def test_the_same_number_draws_the_same_world() -> None:
    assert [drawn(number, 40, 1_500) for number in range(400)] == WORLDS
    assert len(set(WORLDS)) == 400


def test_every_part_has_its_turn() -> None:
    assert Counter(each.broker for each in WORLDS) == dict.fromkeys(BROKERS, 100)
    assert {each.store for each in WORLDS} == set(STORES)
    assert {each.durability for each in WORLDS} == set(DURABILITIES)
    assert {each.sidecars for each in WORLDS} == {1, 2, 3, 4}
    assert {each.ordering for each in WORLDS} == {"", "key"}
    assert {each.full_disk for each in WORLDS} == {each.restarts for each in WORLDS}


def test_no_world_asks_for_what_its_store_cannot_do() -> None:
    """A store in the sidecar serves nobody else; who fails over has a replica to wait for."""
    for each in WORLDS:
        if each.store == "embedded":
            assert each.sidecars == 1
            assert each.durability != "replicated"
        if each.store in ("sentinel", "cluster"):
            assert each.durability != "always"
        assert each.full_disk <= (each.store == "single")
