"""The HTTP interface of a node: for clients as in the original, for other nodes, and for those who look."""
