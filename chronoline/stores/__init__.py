"""Timeline stores: one contract, several engines, chosen by URL in `opening`."""
