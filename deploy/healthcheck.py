"""The health check of the images: asks HEALTH_URL, and exits with 1 unless the answer is 200.

The process is asked by the address of its own container, so a certificate for another name is accepted.
"""

import os
import ssl
import sys
import urllib.request

URL = os.environ.get("HEALTH_URL", "http://127.0.0.1:7480/livez")
TIMEOUT_S = 4

try:
    with urllib.request.urlopen(
        URL, timeout=TIMEOUT_S, context=ssl._create_unverified_context()
    ) as answer:
        answer.read()
except OSError as error:
    sys.exit(f"{URL}: {error}")
