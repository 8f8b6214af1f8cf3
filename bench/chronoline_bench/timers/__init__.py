"""The bench `timers`.

The bench starts nodes by the command, as users do. An `agent` sends timers or receives their callbacks
(`requests`), or is a reference beside the nodes (`references`).
"""
