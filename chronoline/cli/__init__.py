"""The command line: it parses, calls and prints. `chronoline.node` wires a node together."""
