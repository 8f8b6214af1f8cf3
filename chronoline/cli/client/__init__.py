"""The commands that speak with a broker."""
