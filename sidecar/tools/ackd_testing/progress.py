"""What a group's progress promises: positions with metadata, kept, and only from members."""

from __future__ import annotations

import pytest

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError
from ackd.ports import Committed
from ackd_testing.lab import Lab, new_group
from ackd_testing.needs import needs

NOTHING = Committed(-1, "")


@pytest.mark.asyncio
class ProgressContract:
    """Subclass it with a fixture `lab`."""

    async def test_group_without_progress(self, lab: Lab) -> None:
        """Offset -1 and no metadata, for each partition that was asked for."""
        async with lab.bench() as bench:
            parts = await bench.topic(2)
            reader = await bench.join(await bench.broker(), [parts[0].topic])
            assert await reader.consumer.committed(parts) == dict.fromkeys(parts, NOTHING)
            assert await reader.consumer.committed([]) == {}

    @needs("positions")
    async def test_commit_comes_back(self, lab: Lab) -> None:
        """To everybody in the group, also after the connection was closed; to no other group."""
        async with lab.bench() as bench:
            broker = await bench.broker()
            parts = await bench.filled(broker, 3, [b"x"] * 5)
            group = new_group()
            member = await bench.join(broker, [parts[0].topic], group)
            await member.until(lambda: member.assigned == set(parts), "all", lab.rebalance_s)
            wanted = {parts[0]: Committed(3, "v1;0-2"), parts[2]: Committed(5, "")}
            await member.consumer.commit(wanted)
            expected = {**wanted, parts[1]: NOTHING}
            assert await member.consumer.committed(parts) == expected
            # Read without being a member: this one has not even started.
            await broker.close()
            later = await bench.broker()
            reader = await bench.join(later, ["^contract-nothing-has-this-name"], group)
            assert await reader.consumer.committed(parts) == expected
            other = await bench.join(later, [parts[0].topic])
            assert await other.consumer.committed(parts) == dict.fromkeys(parts, NOTHING)

    @needs("positions")
    async def test_commits_keep_their_order(self, lab: Lab) -> None:
        """The last one counts, also when it goes back."""
        async with lab.bench() as bench:
            (part,) = await bench.topic()
            member = await bench.join(await bench.broker(), [part.topic])
            await member.until(lambda: member.assigned, "assigned", lab.rebalance_s)
            for offset in [*range(1, 20), 4]:
                await member.consumer.commit({part: Committed(offset, f"at {offset}")})
                found = await member.consumer.committed([part])
                assert found == {part: Committed(offset, f"at {offset}")}

    @needs("positions")
    async def test_r8_metadata_as_long_as_it_says(self, lab: Lab) -> None:
        """`commit_metadata_chars` is true, for any letter of 16 bits; one more is refused (R8)."""
        async with lab.bench() as bench:
            broker = await bench.broker()
            (part,) = await bench.topic()
            most = broker.capabilities.commit_metadata_chars
            member = await bench.join(broker, [part.topic])
            await member.until(lambda: member.assigned, "assigned", lab.rebalance_s)
            for letter in ("é", "中", "x"):
                longest = {part: Committed(7, letter * most)}
                await member.consumer.commit(longest)
                assert await member.consumer.committed([part]) == longest
            with pytest.raises(BrokerError):
                await member.consumer.commit({part: Committed(8, "x" * (most + 1))})
            assert await member.consumer.committed([part]) == {part: Committed(7, "x" * most)}

    @needs("positions")
    async def test_commit_of_no_member_is_refused(self, lab: Lab) -> None:
        """After `close` nothing can be committed, and nothing was."""
        async with lab.bench() as bench:
            (part,) = await bench.topic()
            broker = await bench.broker()
            member = await bench.join(broker, [part.topic])
            await member.until(lambda: member.assigned, "assigned", lab.rebalance_s)
            await member.consumer.commit({part: Committed(5, "mine")})
            await member.consumer.close()
            with pytest.raises(BrokerError):
                await member.consumer.commit({part: Committed(6, "too late")})

    @needs("positions")
    async def test_commit_to_no_partition_is_refused(self, lab: Lab) -> None:
        """A partition that does not exist is a BrokerError."""
        async with lab.bench() as bench:
            (part,) = await bench.topic()
            member = await bench.join(await bench.broker(), [part.topic])
            await member.until(lambda: member.assigned, "assigned", lab.rebalance_s)
            with pytest.raises(BrokerError):
                await member.consumer.commit({TopicPartition(part.topic, 99): Committed(1, "")})

    @needs("positions")
    async def test_r1_progress_goes_with_the_topic(self, lab: Lab) -> None:
        """A topic that was made again begins without positions (rule R1)."""
        async with lab.bench() as bench:
            broker = await bench.broker()
            (part,) = await bench.topic()
            group = new_group()
            member = await bench.join(broker, [part.topic], group)
            await member.until(lambda: member.assigned, "assigned", lab.rebalance_s)
            await member.consumer.commit({part: Committed(1_000_000, "old")})
            await member.consumer.close()
            await lab.delete_topic(part.topic)
            await lab.create_topic(part.topic, 1)
            reader = await bench.join(broker, [part.topic], group)
            assert await reader.consumer.committed([part]) == {part: NOTHING}
