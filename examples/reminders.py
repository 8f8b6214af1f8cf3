"""Put three reminders on a timeline in a SQLite file, and serve each at its millisecond."""

import threading
import time

from chronoline.store import (
    FiringLane,
    LeasedMessage,
    NewMessage,
    SystemClock,
    open_store,
    raise_for_refused,
)

clock = SystemClock()
served = threading.Semaphore(0)


def remind(leased: LeasedMessage) -> None:
    late_ms = time.time() * 1000 - leased.message.due
    print(f"{(leased.body or b'').decode()}, {late_ms:.1f} ms late")
    served.release()


with open_store("sqlite:///reminders.db") as store:
    now = clock.now_ms()
    topic = store.ensure_topic("reminders", now_ms=now)
    reminders = [
        NewMessage(id=name, due=now + delay_ms, body=f"remember the {name}".encode())
        for name, delay_ms in (("milk", 300), ("bread", 600), ("cake", 900))
    ]
    outcomes = store.create(topic.uid, reminders, if_exists="replace", now_ms=now)
    raise_for_refused(outcomes)

    with FiringLane(store, topic, remind, consumer="example"):
        for _ in reminders:
            served.acquire(timeout=10)
