"""The pipe: settings, inputs, outputs and the work of its tasks. Only `pipe.spark` uses Spark."""
