"""Measurements. Every speed stands beside a reference that was measured in the same run.

A bench is a function over a `Session`. It measures in rounds, in which everything that is compared takes its
turn (`rounds`), counts what was lost, duplicated or early every time (`tally`), and adds rows to the
report. A process that only sleeps and wakes runs beside it all (`control`): how late that one woke says
how busy the machine was, and no figure can be judged without it.

To add a bench: write a module with `measure(session)`, and name it in `registry`.
"""
