"""The base of the servers here, and the environment of clients of a local AWS server."""

from __future__ import annotations

from chronoline.runtime.child_process import PATIENCE_S, Server, without

__all__ = ["AWS_ENVIRONMENT", "PATIENCE_S", "REGION", "Server", "without"]

REGION = "us-east-1"
AWS_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "chronoline",
    "AWS_SECRET_ACCESS_KEY": "chronoline",
    "AWS_REGION": REGION,
    "AWS_DEFAULT_REGION": REGION,
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""What a client of a local AWS server needs: any credentials do, and no others are looked for."""
