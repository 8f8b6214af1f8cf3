"""A job that takes longer than its lease: it extends the lease while it works.

Start a broker first: `chronoline up`. Another one is named by CHRONOLINE_ADDRESS.

If this process dies, its lease ends two seconds later and another consumer gets the job. A `Worker` extends
leases by itself; this example does it explicitly.
"""

import time

from chronoline import Client


def convert(part: int) -> None:
    time.sleep(0.6)  # the work
    print(f"part {part} of 5 is converted", flush=True)


with Client() as client:
    client.create_topic("videos")
    client.send("videos", b"holidays.mkv")

    for lease in client.consume("videos", lease=2, prefetch=1):
        for part in range(1, 6):
            convert(part)
            if (
                lease.is_lost
            ):  # another consumer has the job, or will get it: further work is useless
                print("lost")
                break
            lease.extend()  # two more seconds from now; raises Refused if it is too late
        else:
            lease.ack()
            print("done")
        break
