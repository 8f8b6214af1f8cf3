"""The etcd engine of the coordination service."""

from chronoline.runtime.extras import needs

with needs("coordination by etcd", "cluster"):
    from chronoline.coordination.etcd.connection import EtcdTimes
    from chronoline.coordination.etcd.engine import EtcdCoordination
    from chronoline.coordination.etcd.url import EtcdAddress

__all__ = ["EtcdAddress", "EtcdCoordination", "EtcdTimes"]
