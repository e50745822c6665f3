"""The configuration files of one RocketMQ, from a few options."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.certs import Certs

ACCESS_KEY = "tests"
SECRET_KEY = "tests-secret-key"
_AUTH = "org.apache.rocketmq.auth.authentication.provider"


@dataclass(frozen=True)
class RocketMQOptions:
    """What kind of RocketMQ.

    `cluster` runs brokers beside the proxy, so that each can be killed alone; without it the only
    one and the proxy are one process. `brokers`: how many there are from the start on; `replica`:
    the first one has a replica, and a controller (in the name server) makes one of the two master.
    `access_keys` demands `ACCESS_KEY` and `SECRET_KEY` of all who connect, or a user that was made
    since, whose rights the broker looks at. `clock`: that of the brokers of a `cluster` can be set.
    `broker` and `proxy` come last and win.
    """

    cluster: bool = False
    brokers: int = 1
    replica: bool = False
    access_keys: bool = False
    clock: bool = False
    broker: Mapping[str, str] = field(default_factory=dict)
    proxy: Mapping[str, str | int | bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Ports:
    """Ports on 127.0.0.1 of name server and proxy."""

    names: int
    grpc: int
    remoting: int
    controller: int


@dataclass(frozen=True)
class BrokerPorts:
    """Ports of a broker on 127.0.0.1. It also takes the one 2 below its own."""

    own: int
    ha: int


@dataclass(frozen=True)
class BrokerAt:
    """One broker. `id` 0 is the master of its name, others are its replicas."""

    name: str
    ports: BrokerPorts
    store: Path
    id: int = 0

    @property
    def called(self) -> str:
        """Its files are called so."""
        return self.name if self.id == 0 else f"{self.name}-{self.id}"


def write_files(home: Path, ports: Ports, options: RocketMQOptions, certs: Certs) -> None:
    """Write `conf/` for name server and proxy below `home`."""
    conf = home / "conf"
    conf.mkdir(parents=True)
    (conf / "namesrv.conf").write_text(
        _properties(
            {
                "listenPort": str(ports.names),
                "bindAddress": "127.0.0.1",
                "rocketmqHome": str(home),
                **(_controller(home, ports) if options.replica else {}),
            }
        )
    )
    (conf / "rmq-proxy.json").write_text(json.dumps(_proxy(ports, options, certs)))


def _controller(home: Path, ports: Ports) -> dict[str, str]:
    """It makes a replica master some seconds after the master's last sign of life."""
    return {
        "enableControllerInNamesrv": "true",
        "controllerDLegerGroup": "controllers",
        "controllerDLegerPeers": f"n0-127.0.0.1:{ports.controller}",
        "controllerDLegerSelfId": "n0",
        "controllerStorePath": str(home / "controller"),
        "scanNotActiveBrokerInterval": "1000",
    }


def write_broker(home: Path, at: BrokerAt, ports: Ports, options: RocketMQOptions) -> Path:
    """Write the configuration of a broker."""
    found = home / "conf" / f"{at.called}.conf"
    found.write_text(_properties(_broker(at, ports, options)))
    return found


def _broker(at: BrokerAt, ports: Ports, options: RocketMQOptions) -> dict[str, str]:
    lines = {
        "brokerClusterName": "DefaultCluster",
        "brokerName": at.name,
        "brokerId": str(at.id),
        "brokerRole": "SLAVE" if at.id else "ASYNC_MASTER",
        "flushDiskType": "ASYNC_FLUSH",
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        "listenPort": str(at.ports.own),
        "haListenPort": str(at.ports.ha),
        "namesrvAddr": f"127.0.0.1:{ports.names}",
        "storePathRootDir": str(at.store),
        "storePathCommitLog": str(at.store / "commitlog"),
        "mappedFileSizeCommitLog": str(64 * 1024 * 1024),
        "mappedFileSizeConsumeQueue": "600000",
        "maxIndexNum": "20000",
        "maxHashSlotNum": "5000",
        "diskMaxUsedSpaceRatio": "95",
        "fileReservedTime": "4",
        "timerWheelEnable": "true",
        "enableMixedMessageType": "true",
        "enablePropertyFilter": "true",
        # The default of 200 ms refuses messages on a loaded machine ("broker busy").
        "waitTimeMillsInSendQueue": "10000",
        # After a transaction 5.5.0 looks for ended ones without a pause, a whole processor long
        # (apache/rocketmq#10966), unless the last one is younger than this.
        "transactionOpBatchInterval": str(24 * 60 * 60 * 1000),
        "transactionOpMsgMaxSize": "1",  # each is written down at once instead
    }
    if options.replica:
        # The controller gives the ids, and the master waits for its replica while it is in sync.
        del lines["brokerId"], lines["brokerRole"]
        lines |= {
            "enableControllerMode": "true",
            "controllerAddr": f"127.0.0.1:{ports.controller}",
            "allAckInSyncStateSet": "true",
            "brokerHeartbeatInterval": "500",
        }
    if options.access_keys:
        lines |= _keys(f"{_AUTH}.LocalAuthenticationMetadataProvider")
        lines |= {"authenticationEnabled": "true", "authConfigPath": str(at.store / "auth")}
        rights = "org.apache.rocketmq.auth.authorization.provider"
        lines |= {
            "authorizationEnabled": "true",
            "authorizationProvider": f"{rights}.DefaultAuthorizationProvider",
            "authorizationMetadataProvider": f"{rights}.LocalAuthorizationMetadataProvider",
        }
    return {**lines, **options.broker}


def _proxy(ports: Ports, options: RocketMQOptions, certs: Certs) -> dict[str, str | int | bool]:
    lines: dict[str, str | int | bool] = {
        "rocketMQClusterName": "DefaultCluster",
        "proxyName": "proxy-a",
        "proxyMode": "CLUSTER" if options.cluster else "LOCAL",
        "namesrvAddr": f"127.0.0.1:{ports.names}",
        "grpcServerPort": ports.grpc,
        "remotingListenPort": ports.remoting,
        "localServeAddr": "127.0.0.1",
        # Plain connections and TLS come to the same port.
        "tlsTestModeEnable": False,
        "tlsKeyPath": str(certs.server_key),
        "tlsCertPath": str(certs.server_cert),
        "minInvisibleTimeMillsForRecv": 1000,
        "grpcClientConsumerMinLongPollingTimeoutMillis": 1000,
    }
    # A new topic or group is known at once, not after 20 s.
    for cache in ("topicRouteServiceCache", "subscriptionGroupConfigCache", "topicConfigCache"):
        lines[f"{cache}RefreshSeconds"] = 1
        lines[f"{cache}ExpiredSeconds"] = 5
    if options.access_keys:
        # It asks the broker who there is.
        lines |= _keys("org.apache.rocketmq.proxy.auth.ProxyAuthenticationMetadataProvider")
        lines["authenticationEnabled"] = True
    return {**lines, **options.proxy}


def _keys(users: str) -> dict[str, str]:
    """One user, who may do everything; the broker's own parts use the same. `users`: the class
    that knows them.
    """
    user = {"username": ACCESS_KEY, "password": SECRET_KEY}
    inner = {"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}
    return {
        "authenticationProvider": f"{_AUTH}.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": users,
        "initAuthenticationUser": json.dumps(user),
        "innerClientAuthenticationCredentials": json.dumps(inner),
    }


def _properties(lines: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in lines.items())
