"""The toolbox: clock, alarm, group commit, settings, listeners. It knows no part of the product."""
