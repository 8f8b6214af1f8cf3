"""This broker in its cluster: its session, its entries, and the shares that the brokers agree on."""
