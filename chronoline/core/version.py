"""The version of Chronoline: the builds of both distributions read it from here."""

VERSION = "0.1.0"
