"""The pipe without Spark: settings, places, outputs, and what happens to a record on its way."""
