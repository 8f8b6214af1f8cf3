"""“Not now, give it to me in a few minutes”: an overloaded consumer releases its messages.

Start a broker first: `chronoline up`. Another one is named by CHRONOLINE_ADDRESS.
"""

from datetime import timedelta

from chronoline import Client

A_FEW_MINUTES = timedelta(seconds=0.5)  # short, for the example
load = iter([0.97, 0.92, 0.31])

with Client() as client:
    client.create_topic("mails")
    sent = client.send("mails", b"welcome!")

    for lease in client.consume("mails", prefetch=1):  # lease one message at a time
        busy = next(load)
        if busy > 0.9:
            print(f"{busy:.0%} busy: not now")
            lease.release(delay=A_FEW_MINUTES)  # another consumer may get it then
            continue
        # A release is not a failure: it counts no attempt.
        print(f"{busy:.0%} busy: sent, after {lease.attempts} failed attempts")
        lease.ack()
        break
