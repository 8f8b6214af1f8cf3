"""The forecast of a timeline on Spark: counted in the store, and by Spark on rows without bodies.

python examples/spark_campaign.py && python examples/spark_forecast.py [STORE-URL]
"""

import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import chronoline.spark

STORE = sys.argv[1] if len(sys.argv) > 1 else "sqlite:///campaign.db"
START, END = "2030-01-01T09:00:00Z", "2030-01-01T10:00:00Z"

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
builder = SparkSession.builder.master("local[2]").config("spark.log.level", "ERROR")
spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
chronoline.spark.register(spark)
timeline = {"store": STORE, "topic": "greetings"}

# Counted in the store: one row for each step, empty ones included.
forecast = spark.read.format("chronoline").options(**timeline, view="forecast", step="15m")
counted = forecast.options(**{"from": START, "to": END}).load()

# The same by Spark, for other groupings: here by key, too. Without `value` no body is read.
rows = spark.read.format("chronoline").options(**timeline, start=START, end=END)
by_key = (
    rows.schema("due TIMESTAMP, key BINARY")
    .load()
    .groupBy(
        F.window("due", "15 minutes").start.alias("start"), F.decode("key", "UTF-8").alias("key")
    )
    .count()
)

keys = {(row.start, row.key): row["count"] for row in by_key.collect()}
counted = counted.withColumn("at", F.date_format("start", "HH:mm"))
for step in counted.orderBy("start").collect():
    parts = ", ".join(f"{keys.get((step.start, key), 0):,} for {key}" for key in ("Oslo", "Rome"))
    print(f"{step.at}  {step.waiting:,} waiting: {parts}")
spark.stop()
