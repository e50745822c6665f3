"""TLS on real connections, and the signature by an access key."""

import hashlib
import hmac

import pytest

from ackd.errors import BrokerError
from ackd_adapters.rocketmq import RocketMQOptions, adapter
from ackd_adapters.rocketmq.client import code_of
from ackd_adapters.rocketmq.rpc import NO_ANSWER, UNREACHABLE, sign
from tests.support.rocketmq import RocketMQ

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(180)]


async def test_tls_with_the_right_authority_and_with_others(rocketmq: RocketMQ) -> None:
    assert rocketmq.certs is not None
    for file in (rocketmq.certs.ca, rocketmq.certs.foreign_ca, None):
        options = RocketMQOptions(endpoints=rocketmq.endpoints, tls=True, tls_ca_file=file)
        broker = adapter.open("tls", options)
        try:
            if file == rocketmq.certs.ca:
                await broker.start()
            else:
                with pytest.raises(BrokerError) as refused:
                    await broker.start()
                assert code_of(refused.value) in {UNREACHABLE, NO_ANSWER}
        finally:
            await broker.close()


def test_the_signature_is_an_hmac_of_the_time_that_is_sent() -> None:
    made = sign("who", "secret", "20260102T030405Z")
    expected = hmac.new(b"secret", b"20260102T030405Z", hashlib.sha1).hexdigest()
    assert made == (
        "MQv2-HMAC-SHA1 Credential=who, SignedHeaders=x-mq-date-time, Signature=" + expected
    )
