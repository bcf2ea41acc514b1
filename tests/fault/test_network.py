"""A bad network between relays and their sinks: slow, in pieces, silent, cut, refused. What may have arrived may come again;
nothing is lost, and no event is blamed."""

import pytest

from tests.support import servers
from tests.support.fault_run import FaultRun
from tests.support.proxy import Proxy
from tests.support.servers import wait_until
from tests.support.shop import Shop
from tests.support.targets import HttpTarget, KafkaTarget, RedisTarget

IN_FLIGHT = 16


class Behind:
    """A sink with a proxy in front of it: the target that is asked for receipts, and its settings by way of the proxy."""

    def __init__(self, proxy, target, **sink):
        self.proxy, self.target, self.sink = proxy, target, sink


@pytest.fixture
def redis_behind(redis):
    with Proxy(redis.port) as proxy:
        yield Behind(proxy, RedisTarget(redis), url=redis.url.replace(str(redis.port), str(proxy.port)), timeout="2s")


@pytest.fixture
def http_behind(http):
    with Proxy(http.port) as proxy:
        yield Behind(proxy, HttpTarget(http), url=f"http://127.0.0.1:{proxy.port}/in", timeout="4s", connect_timeout="4s")


@pytest.fixture
def kafka_behind():
    """The broker tells its clients where to find it: by way of the proxy."""
    proxy = Proxy(0)
    with servers.Kafka({"advertised.listeners": f"BROKER://127.0.0.1:{proxy.port}"}) as broker:
        proxy.peer_port = broker.port
        with proxy:
            broker.create_topic("orders", 4)
            target = KafkaTarget(broker, "orders")
            yield Behind(proxy, target, properties=f'{{ bootstrap.servers: "127.0.0.1:{proxy.port}" }}', down_after="500ms")


@pytest.mark.parametrize("sink", ["redis", "http", pytest.param("kafka", marks=pytest.mark.deep)])
def test_a_bad_network_to_a_sink_loses_nothing_and_blames_no_event(relay, db, request, sink):
    behind = request.getfixturevalue(f"{sink}_behind")
    run = FaultRun(relay, Shop(db), behind.target)
    one = run.start(sink={**behind.sink, "max_in_flight": IN_FLIGHT})

    def drain_some(events=400):
        run.add(events)
        half = len(run.shop.journal) - events // 2
        wait_until(lambda: run.shop.settled() >= half, 60, "half of them to be settled")

    def outage(begin, end):
        downs = len(one.logged("msg=sink.down"))
        drain_some()
        run.fault("the network is away", in_flight=IN_FLIGHT)
        begin()
        run.add(100)  # something to find out with
        wait_until(lambda: len(one.logged("msg=sink.down")) > downs, 60, "the relay to notice")
        end()
        run.wait_until_empty()

    drain_some()
    behind.proxy.slice_bytes = 100
    drain_some()
    behind.proxy.slice_bytes, behind.proxy.latency_s = 0, 0.02
    drain_some()
    behind.proxy.latency_s = 0.0
    for _ in range(3):
        drain_some()
        run.fault("RST", in_flight=IN_FLIGHT)
        behind.proxy.reset()
    run.wait_until_empty()
    outage(behind.proxy.down, behind.proxy.up)
    outage(behind.proxy.blackhole, lambda: (behind.proxy.cut(), behind.proxy.heal()))
    run.finish()
    run.no_failures()
