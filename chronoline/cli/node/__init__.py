"""Running a broker: `chronoline up`, `chronoline config` and `chronoline token`."""
