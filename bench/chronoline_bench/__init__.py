"""Benchmarks. Every figure stands beside a reference that is measured in the same run.

A bench is a function over a `Session`. It measures in rounds, in which the compared measures take turns
(`rounds`), counts lost, duplicated and early messages every time (`tally`), and adds rows to the report. The
control, a process that only sleeps and wakes, runs beside it (`chronoline.runtime.control`): its lateness
shows how busy the machine was.

Each bench is a package with a module `bench`; a module beside it holds one or more of its cases. Benches that
need several processes share the `harness`. To add a bench: write `measure(session)`, and name its module in
`registry`.
"""
