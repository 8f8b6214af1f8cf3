"""Settings with their origins: loaded from a TOML file, the environment and flags, checked once, frozen.

`loader` has the sources, the errors, and the base class `Settings`, from which the settings of a node and of
a pipe derive. `types` has the values that settings take, and how people write them.
"""
