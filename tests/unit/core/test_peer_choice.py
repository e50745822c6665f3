"""At which owner a receive waits."""

from ackd.core.peer_choice import SKIP_MS, PeerChoice


def of(**ready: int) -> PeerChoice:
    """Owners, and how many messages lie ready at each."""
    choice = PeerChoice()
    choice.owners(ready)
    choice.seen(ready)
    return choice


def test_without_owners_nobody_is_asked() -> None:
    choice = of()
    assert (len(choice), choice.best(0), choice.any_ready(0)) == (0, None, False)


def test_a_receive_goes_where_most_messages_lie() -> None:
    choice = of(a=1, b=5, c=0)
    assert choice.best(0) == "b"
    choice.began("b", 5)  # they are for that receive
    assert choice.best(0) == "a"
    choice.ready("c", 2)
    assert choice.best(0) == "c"


def test_without_messages_it_goes_where_fewest_wait() -> None:
    choice = of(a=0, b=0)
    choice.began("a", 1)
    assert choice.best(0) == "b"
    choice.began("b", 1)
    choice.began("b", 1)
    assert choice.best(0) == "a"
    choice.ended("b")
    choice.ended("b")
    assert choice.best(0) == "b"


def test_an_owner_that_can_not_be_asked_is_left_out_for_a_while() -> None:
    choice = of(a=3, b=0)
    choice.skip("a", 100)
    assert (choice.best(100), choice.any_ready(100)) == ("b", False)
    assert choice.best(100 + SKIP_MS - 1) == "b"
    assert (choice.best(100 + SKIP_MS), choice.any_ready(100 + SKIP_MS)) == ("a", True)


def test_it_is_asked_at_once_when_it_has_a_link_or_says_that_it_has_messages() -> None:
    choice = of(a=3, b=0)
    choice.skip("a", 100)
    choice.reachable("a")
    assert choice.best(100) == "a"  # what lies there is known still
    choice.skip("a", 100)
    choice.ready("a", 1)
    assert choice.best(100) == "a"


def test_who_answers_without_messages_has_none_to_give() -> None:
    choice = of(a=3, b=1)
    choice.empty("a")
    assert choice.best(0) == "b"
    choice.empty("b")
    assert not choice.any_ready(0)


def test_only_some_owners_may_be_meant() -> None:
    choice = of(a=3, b=1)
    assert choice.best(0, lambda name: name == "b") == "b"
    assert choice.best(0, lambda _: False) is None


def test_heartbeats_bring_owners_and_take_them_away() -> None:
    choice = of(a=0, b=0)
    choice.began("a", 1)
    choice.owners(["a", "c"])
    assert len(choice) == 2
    assert choice.best(0) == "c"  # one still waits at a
    for name in ("b", "nobody"):  # what is said of others changes nothing
        choice.ready(name, 9)
        choice.began(name, 1)
        choice.ended(name)
        choice.skip(name, 0)
        choice.empty(name)
        choice.reachable(name)
    assert choice.best(0) == "c"


def test_of_equals_who_gave_messages_last_is_asked_and_who_had_none_is_not() -> None:
    choice = of(a=0, b=0, c=0)
    assert choice.best(0) == "a"
    choice.empty("a")
    assert choice.best(0) == "b"
    choice.empty("b")
    assert choice.best(0) == "c"
    choice.empty("c")
    assert choice.best(0) == "a"  # it was asked longest ago
    choice.gave("b", 0)
    assert choice.best(0) == "b"
    choice.gave("c", 0)
    assert choice.best(0) == "c"
    choice.began("c", 1)
    assert choice.best(0) == "b"


def test_a_heartbeat_that_names_a_few_leaves_what_others_said_themselves() -> None:
    choice = of(a=2, b=1)
    choice.owners(["a", "b", "c"])
    choice.ready("c", 8)
    choice.seen({"b": 4}, whole=False)
    assert choice.best(0) == "c"
    choice.empty("c")
    assert choice.best(0) == "b"  # of a the last heartbeat but one spoke
    choice.empty("b")
    assert not choice.any_ready(0)


def test_a_heartbeat_that_names_all_goes_for_the_others_too() -> None:
    choice = of(a=2, b=1)
    choice.ready("b", 8)
    choice.seen({"a": 4, "gone": 9})
    assert choice.best(0) == "a"
    choice.empty("a")
    assert not choice.any_ready(0)
