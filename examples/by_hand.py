"""The operations on messages of a store, one by one: time is an argument, so no call waits."""

from chronoline.store import NewMessage, TopicSettings, open_store

HOUR = 3_600_000
now = 1_800_000_000_000  # 2027-01-15, in UTC milliseconds

with open_store("memory:") as store:
    topic = store.create_topic("invoices", TopicSettings(max_attempts=3), now_ms=now)
    uid = topic.uid

    # A producer: create, reschedule, cancel. Each id has its own outcome.
    new = [NewMessage(id=f"invoice-{n}", due=now + n * HOUR, body=b"pay me") for n in range(1, 6)]
    print(store.create(uid, [*new, new[0]], now_ms=now)[-1].refusal)  # exists
    store.reschedule(uid, [("invoice-1", now + 9 * HOUR)], producer_group="default", now_ms=now)
    store.cancel(uid, ["invoice-2"], producer_group="default", now_ms=now)

    # The future load, by status.
    steps = store.forecast(
        uid, topic.all_buckets, start=now, end=now + 10 * HOUR, step_ms=2 * HOUR, now_ms=now
    )
    print([step.counts.waiting for step in steps])  # [0, 1, 2, 0, 1]

    # A consumer, five hours later: lease the due messages, then extend, release, retry or ack them.
    now += 5 * HOUR
    grant = store.reserve(
        uid, topic.all_buckets, consumer="billing-1", limit=10, lease_ms=30_000, now_ms=now
    )
    third, fourth, fifth = grant.leased
    (extended,) = store.extend(uid, [(third.lease, now + 60_000)], now_ms=now)
    print(store.ack(uid, [third.lease], now_ms=now)[0].refusal)  # stale: it was extended since
    lease = third.lease.extended(extended.version, now + 60_000)  # this is what to ack
    counts = store.count(uid, topic.all_buckets, start=0, end=now + 9 * HOUR, now_ms=now)
    print(counts.processing, counts.waiting)  # 3 1
    store.release(uid, [(fourth.lease, now + HOUR)], now_ms=now)  # not now
    store.retry(uid, [(fifth.lease, now + HOUR)], now_ms=now)  # it failed, try again later

    # A consumer that died: its lease lapses, and the message is served to another.
    now += 60_000
    again = store.reserve(
        uid, topic.all_buckets, consumer="billing-2", limit=10, lease_ms=30_000, now_ms=now
    )
    print([(each.message.id, each.redelivered) for each in again.leased])  # [('invoice-3', True)]
    print(store.ack(uid, [lease], now_ms=now)[0].refusal)  # not_holder: it woke up too late
    print(store.ack(uid, [again.leased[0].lease], now_ms=now)[0].done)  # True
