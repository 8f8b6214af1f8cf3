"""What a receipt can say; apart from the receipts, which need Arrow: commands that count start faster."""

FIRED, SERVED, SKIPPED, STOPPED = "fired", "served", "skipped", "stopped"
"""A message was published; a window was served.

Skipped: it was over before its task came to it, or the store could not be reached and the task gave up.
Stopped: somebody had asked the pipe to stop before the task began, and it did nothing.
"""
