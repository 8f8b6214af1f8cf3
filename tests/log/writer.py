"""Appends without end, and prints the answered events: `python -m tests.log.writer URL`."""

import sys

from chronoline.log import Log, NewEvent

with Log(sys.argv[1]) as log:
    number = 0
    while True:
        events = [NewEvent(value=f"{sys.argv[2]}-{number + n}".encode()) for n in range(7)]
        log.append_many("t", events)
        print(*(event.value.decode() for event in events if event.value), flush=True)
        number += len(events)
