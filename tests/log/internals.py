"""The parts inside a `Log`.

`Log` hides its parts from users. Tests reach them here, and only here, to inject failures and to look at
what a call left behind.
"""

from chronoline.log import Log
from chronoline.log.arrivals import Arrivals
from chronoline.log.contract import Index, Objects
from chronoline.log.readers import Readers
from chronoline.log.upkeep import Upkeep


def index_of(log: Log) -> Index:
    # Tests look at what a log is made of; the parts are not its interface.
    return log._index


def objects_of(log: Log) -> Objects:
    # As above.
    return log._objects


def arrivals_of(log: Log) -> Arrivals:
    # As above.
    return log._arrivals


def readers_of(log: Log) -> Readers:
    # As above.
    return log._readers


def upkeep_of(log: Log) -> Upkeep:
    # As above.
    return log._upkeep
