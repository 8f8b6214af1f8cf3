"""“Not now, give it to me in a few minutes”: a consumer that is overloaded releases what it gets.

Start a broker first: `chronoline up`. Another one is named by CHRONOLINE_ADDRESS.
"""

from datetime import timedelta

from chronoline import Client

A_FEW_MINUTES = timedelta(seconds=0.5)  # the example is in a hurry
load = iter([0.97, 0.92, 0.31])

with Client() as client:
    client.create_topic("mails")
    sent = client.send("mails", b"welcome!")

    for lease in client.consume("mails", prefetch=1):  # no more in hand than is worked on
        busy = next(load)
        if busy > 0.9:
            print(f"{busy:.0%} busy: not now")
            lease.release(delay=A_FEW_MINUTES)  # it may also come to another consumer then
            continue
        # Releasing is not failing: no attempt was counted.
        print(f"{busy:.0%} busy: sent, after {lease.attempts} failed attempts")
        lease.ack()
        break
