"""Retries with back-off: a failed message is tried again, later each time; a final error buries it.

Start a broker first: `chronoline up`. Another one is named by CHRONOLINE_ADDRESS.
"""

import logging

from chronoline import Client, Lease, Retry, Worker

# A worker logs every failure with its traceback; here failures are expected.
logging.getLogger("chronoline").setLevel(logging.CRITICAL)


class CardExpired(Exception):
    """A final error: no retry makes the card valid."""


# 0.2 s, 0.4 s, 0.8 s, …, and never more than a minute; each varies by 10 %.
worker = Worker(retry=Retry(base=0.2, factor=2, cap=60, jitter=0.1, final=(CardExpired,)))


@worker.handler("payments")
def pay(lease: Lease) -> None:
    order = lease.json()
    if order["card"] == "expired":
        raise CardExpired(order["number"])  # to the dead letters at once
    if lease.attempts < 3:  # the number of failed tries
        print(f"order {order['number']}, attempt {lease.attempts + 1}: the bank does not answer")
        raise TimeoutError
    print(f"order {order['number']}, attempt {lease.attempts + 1}: paid", flush=True)
    worker.stop()


with Client() as client:
    client.create_topic("payments")
    client.send("payments", json={"number": 1, "card": "valid"})
    dead = client.send("payments", json={"number": 2, "card": "expired"})

    worker.run()

    # Dead letters wait for a decision: `redrive` puts them back, `discard` deletes them.
    letters = [each for each in client.dead_letters("payments") if each.message.id == dead]
    print(letters[0].reason)  # CardExpired: 2
    client.discard("payments", [dead]).raise_for_refused()
