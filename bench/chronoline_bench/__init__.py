"""Measurements. Every speed stands beside a reference that was measured in the same run.

A bench is a function over a `Session`. It measures in rounds, in which everything that is compared takes its
turn (`rounds`), counts lost, duplicated and early messages every time (`tally`), and adds rows to the report.
A process that only sleeps and wakes runs beside it (`chronoline.runtime.control`): its lateness says how busy
the machine was, and no figure can be judged without it.

Each bench is a package with a module `bench`; a module beside it holds one or more of its cases. Benches that
need several processes share the `harness`. To add a bench: write `measure(session)`, and name its module in
`registry`.
"""
