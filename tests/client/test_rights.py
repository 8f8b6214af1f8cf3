"""Rights of tokens, through the SDK and a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from chronoline.broker.auth import Door
from chronoline.broker.tokens import Tokens
from chronoline.client import TopicSettings
from chronoline.client.sync import Client
from chronoline.core.errors import Forbidden, ScheduleExists, ScheduleNotFound
from chronoline.core.outcome import Refusal
from chronoline.core.rights import Rights
from chronoline.stores.memory import MemoryStore
from chronoline.testing.broker import LocalBroker

MakeClient = Callable[..., Client]


@pytest.fixture
def client_with(tmp_path: Path, chronoline_store: MemoryStore) -> Iterator[MakeClient]:
    """Makes clients whose tokens have these rights; the topics `orders` and `mails` exist."""
    tokens = Tokens(tmp_path / "tokens.json")
    with ExitStack() as exits:
        tokens.create("first")
        broker = exits.enter_context(LocalBroker(chronoline_store, door=Door(tokens)))

        def make(*rights: str, producer_group: str = "default") -> Client:
            name = f"token {len(tokens)}"
            token = tokens.create(name, Rights.parse(rights))
            return exits.enter_context(
                Client(broker.address, token=token, producer_group=producer_group)
            )

        admin = make("administer")
        admin.create_topic("orders")
        admin.create_topic("mails")
        yield make


def test_secrets_of_a_target_are_shown_to_administrators_alone(client_with: MakeClient) -> None:
    admin = client_with("administer")
    target = "https://x.example/hook?token=s3cret"
    admin.create_topic("pushed", TopicSettings(target=target))
    assert admin.topic("pushed").settings.target == target
    observer = client_with("observe", "produce:pushed")
    shown = [observer.topic("pushed"), *observer.topics()]
    assert {topic.settings.target for topic in shown} == {"https://x.example/hook?...", None}


def test_producer_uses_its_group_on_its_topics_alone(client_with: MakeClient) -> None:
    rights = ("produce:orders:billing", "consume:mails:worker-1")
    client = client_with(*rights, producer_group="billing")
    client.send("orders", b"x", id="a")
    with pytest.raises(Forbidden, match="right produce:mails:billing"):
        client.send("mails", b"x")
    with pytest.raises(Forbidden, match=r"right produce:…:shipping"):
        client_with(*rights, producer_group="shipping").send("orders", b"x")
    with pytest.raises(Forbidden, match="topic 'other', of any kind"):
        client.send("other", b"x")
    with pytest.raises(Forbidden, match="right consume:orders:worker-1"):
        next(client.consume("orders", consumer="worker-1"))
    for refused in (
        lambda: client.create_topic("orders-2"),
        lambda: client.delete_topic("orders"),
        lambda: client.count("orders"),
        client.cluster,
    ):
        with pytest.raises(Forbidden):
            refused()


def test_consumer_id_cannot_be_claimed_without_the_right(client_with: MakeClient) -> None:
    client_with("produce:orders").send("orders", b"x", id="a")
    consumer = client_with("consume:orders:worker-*")
    with pytest.raises(Forbidden, match="consume"):
        next(consumer.consume("orders", consumer="another"))
    with pytest.raises(Forbidden, match="topic 'mails', of any kind"):
        next(consumer.consume("mails", consumer="worker-1"))
    lease = next(consumer.consume("orders", consumer="worker-2"))
    assert lease.id == "a"
    lease.ack()
    with pytest.raises(Forbidden, match="produce"):
        consumer.send("orders", b"x")


def test_token_of_another_topic_disconnects_no_consumer(client_with: MakeClient) -> None:
    leases = client_with("consume:orders").consume("orders", consumer="worker-1", prefetch=2)
    client_with("produce:orders").send("orders", b"x", id="a")
    assert next(leases).id == "a"
    client_with("produce:mails").send("mails", b"x", id="b")
    stranger = client_with("consume:mails").consume("mails", consumer="worker-1")
    assert next(stranger).id == "b"
    client_with("produce:orders").send("orders", b"x", id="c")
    assert next(leases).id == "c"


def test_observer_reads_and_changes_nothing(client_with: MakeClient) -> None:
    client_with("produce:orders").send("orders", b"x", id="a", delay=60)
    client = client_with("observe:orders")
    assert client.count("orders").waiting == 1
    found = client.lookup("orders", "a")
    assert found is not None
    assert found.id == "a"
    assert [each.name for each in client.topics()] == ["orders"]
    client.cluster()
    for refused in (
        lambda: client.count("mails"),
        lambda: client.topic("mails"),
        lambda: client.body("orders", "a"),
        lambda: client.cancel("orders", "a"),
        lambda: client.discard("orders", ["a"]),
        lambda: client.delete_topic("orders"),
    ):
        with pytest.raises(Forbidden):
            refused()


def test_producer_looks_up_messages_of_its_group_alone(client_with: MakeClient) -> None:
    billing = client_with("produce:orders:billing", producer_group="billing")
    shipping = client_with("produce:orders:shipping", producer_group="shipping")
    billing.send("orders", b"x", id="a", delay=60)
    assert billing.lookup("orders", "a") is not None
    assert shipping.lookup("orders", "a") is None
    with pytest.raises(Forbidden):
        shipping.lookup("mails", "a")


def test_dead_letters_belong_to_their_owner_and_to_administrators(client_with: MakeClient) -> None:
    billing = client_with("produce:orders:billing", producer_group="billing")
    shipping = client_with("produce:orders:shipping", producer_group="shipping")
    for id in ("a", "b", "c"):
        billing.send("orders", b"x", id=id)
    leases = client_with("consume:orders").consume("orders")
    for _ in range(3):
        next(leases).bury("no use")
    assert {each.message.id for each in billing.dead_letters("orders")} == {"a", "b", "c"}
    assert shipping.dead_letters("orders") == []
    assert [each.refusal for each in shipping.discard("orders", ["a"])] == [Refusal.NOT_OWNER]
    assert [each.refusal for each in shipping.redrive("orders", ["a"])] == [Refusal.NOT_OWNER]
    assert [each.refusal for each in billing.discard("orders", ["a"])] == [None]
    assert [each.refusal for each in billing.redrive("orders", ["b"])] == [None]
    with pytest.raises(Forbidden):
        client_with("observe:orders").discard("orders", ["c"])
    admin = client_with("administer:orders")
    assert [each.message.id for each in admin.dead_letters("orders")] == ["c"]
    assert [each.refusal for each in admin.discard("orders", ["c"])] == [None]


def test_schedules_belong_to_their_group_and_to_administrators(client_with: MakeClient) -> None:
    billing = client_with("produce:orders:billing", producer_group="billing")
    shipping = client_with("produce:orders:shipping", producer_group="shipping")
    observer = client_with("observe:orders")
    admin = client_with("administer:orders")
    billing.create_schedule("s", "orders", b"x", every=3_600)
    with pytest.raises(Forbidden, match="topic 'mails', of any kind"):
        billing.create_schedule("t", "mails", every=3_600)
    with pytest.raises(Forbidden):
        observer.create_schedule("t", "orders", every=3_600)
    assert billing.schedule("s").body == admin.schedule("s").body == b"x"
    assert observer.schedule("s").body is None
    for stranger in (shipping, client_with("observe:mails"), client_with("consume:orders")):
        assert stranger.schedules() == []
        with pytest.raises(ScheduleNotFound):
            stranger.schedule("s")
    for change in (observer.pause_schedule, observer.resume_schedule, observer.delete_schedule):
        with pytest.raises(Forbidden):
            change("s")
    elsewhere = client_with("produce:mails:shop", producer_group="shop")
    for stranger, topic in ((shipping, "orders"), (elsewhere, "mails")):
        for change in (stranger.pause_schedule, stranger.resume_schedule):
            with pytest.raises(ScheduleNotFound, match="there is no schedule 's'"):
                change("s")
        assert not stranger.delete_schedule("s")
        with pytest.raises(ScheduleExists, match="has the name 's'") as taken:
            stranger.create_schedule("s", topic, b"y", every=60, if_exists="replace")
        assert "billing" not in str(taken.value)
    assert [each.name for each in observer.schedules()] == ["s"]
    assert admin.pause_schedule("s").paused
    assert billing.delete_schedule("s")
