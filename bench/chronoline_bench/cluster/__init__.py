"""Figures of a cluster of brokers: the dealers and the selector, simulated."""
