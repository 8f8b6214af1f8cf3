"""Settings with their origins: from a TOML file, the environment and flags, checked once, never changed.

`sources` brings what was given into one shape and remembers whence each setting came. `types` says what
values may be, and how people write them. `problems` says what is wrong: which setting, from where, what to
do. Which settings there are is the pipe's and the broker's to say, in tables that derive from `model`.
"""
