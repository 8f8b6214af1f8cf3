"""Timeline stores: one contract, one `Timeline`, several engines, chosen by URL in `factory`."""
