"""A message in each state, made by one release and checked by another: `python sample.py URL NOW_MS`.

It imports only the names of the library, which releases share.
"""

from __future__ import annotations

import sys

from chronoline.store import NewMessage, Store, Topic, TopicSettings, open_store

HOUR = 3_600_000
BODY = b"hello" * 10_000
"""Large enough to lie apart from its row."""
LEFT = {"waits", "leased", "large"}


def fill(store: Store, now_ms: int) -> Topic:
    """Creates a topic with a message in each state."""
    topic = store.create_topic("sample", TopicSettings(max_attempts=2), now_ms=now_ms)
    uid, due = topic.uid, now_ms + HOUR
    ids = ("leased", "acked", "dies")
    new = [NewMessage(id=each, due=now_ms, body=b"now") for each in ids]
    new += [NewMessage(id="waits", due=due, body=b"later", headers=(("a", b"\xff"), ("a", None)))]
    new += [NewMessage(id="large", due=due, body=BODY), NewMessage(id="cancelled", due=due)]
    assert all(each.done for each in store.create(uid, new, now_ms=now_ms))
    store.cancel(uid, ["cancelled"], producer_group="default", now_ms=now_ms)
    grant = store.reserve(
        uid, topic.all_buckets, consumer="ada", limit=10, lease_ms=1_000, now_ms=now_ms
    )
    leases = {each.message.id: each.lease for each in grant.leased}
    store.ack(uid, [leases["acked"]], now_ms=now_ms)
    store.retry(uid, [(leases["dies"], now_ms + 500)], now_ms=now_ms)
    again = store.reserve(
        uid, topic.all_buckets, consumer="ada", limit=10, lease_ms=1_000, now_ms=now_ms + 500
    )
    store.retry(uid, [(again.leased[0].lease, now_ms + 600)], now_ms=now_ms + 500)
    return topic


def check(store: Store, now_ms: int) -> None:
    """Checks that each message is as `fill` left it, and can go on. `now_ms` is at least that of `fill`."""
    topic = store.find_topic("sample")
    assert topic is not None
    uid = topic.uid
    assert set(store.lookup(uid, [*LEFT, "acked", "dies", "cancelled"])) == LEFT
    assert [each.message.id for each in store.dead_letters(uid, limit=10)] == ["dies"]
    taken = store.create(uid, [NewMessage(id="acked", due=now_ms)], now_ms=now_ms)
    assert str(taken[0].refusal) == "exists", taken
    later = now_ms + 2 * HOUR
    grant = store.reserve(
        uid, topic.all_buckets, consumer="bob", limit=10, lease_ms=1_000, now_ms=later
    )
    found = {each.message.id: each for each in grant.leased}
    assert found["large"].body == BODY
    assert found["waits"].message.headers == (("a", b"\xff"), ("a", None))
    outcomes = store.ack(uid, [each.lease for each in grant.leased], now_ms=later)
    assert all(each.done for each in outcomes)


def main(url: str, now_ms: int) -> None:
    """Fills a store; then, when a line comes, goes on to use it as it was opened."""
    with open_store(url) as store:
        topic = fill(store, now_ms)
        print("filled", flush=True)
        if not sys.stdin.readline():
            return
        late = [NewMessage(id=f"late-{number}", due=now_ms, body=b"x") for number in range(3)]
        created = store.create(topic.uid, late, now_ms=now_ms)
        assert all(each.done for each in created), created
        grant = store.reserve(
            topic.uid, topic.all_buckets, consumer="ada", limit=2, lease_ms=60_000, now_ms=now_ms
        )
        acked = store.ack(topic.uid, [each.lease for each in grant.leased], now_ms=now_ms)
        assert [each.done for each in acked] == [True, True], acked
        print("went on", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
