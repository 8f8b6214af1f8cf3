"""Orders in a topic of the log, counted by Spark and billed by a stream: python examples/spark_log.py

Started again, the stream continues where it was: each order is billed once.
"""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from chronoline.log import Log
from chronoline.spark import register

LOG = Path("orders-log").absolute().as_uri()
CHECKPOINT = Path("billing-checkpoint").absolute().as_uri()

with Log(LOG) as log:
    topics = {topic.name for topic in log.topics()}
    for name in {"spark-orders", "spark-bills"} - topics:
        log.create_topic(name, partitions=4)

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the same Python for the workers
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", False)
    .config("spark.log.level", "ERROR")
    .getOrCreate()
)
register(spark)

# A batch job appends: rows with a key go to the partition of their key, as Kafka's clients choose it.
orders = spark.range(1_000).select(
    f.concat(f.lit("user-"), f.col("id") % 10).alias("key"),
    f.to_json(f.struct(f.col("id").alias("number"), (f.col("id") % 7).alias("amount"))).alias(
        "value"
    ),
)
orders.write.format("chronoline_log").mode("append").option("log", LOG).option(
    "topic", "spark-orders"
).save()

# A batch job reads the current events.
read = spark.read.format("chronoline_log").option("log", LOG).option("topic", "spark-orders").load()
amount = f.get_json_object(f.col("value").cast("string"), "$.amount").cast("int")
by_amount = read.groupBy(amount.alias("amount")).count().orderBy("amount")
for row in by_amount.collect():
    print(f"{row['count']} orders of {row['amount']}")

# A stream reads new events, and appends each micro-batch once, even if it is repeated.
bills = (
    spark.readStream.format("chronoline_log")
    .option("log", LOG)
    .option("topic", "spark-orders")
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", 500)
    .load()
    .where(amount > 0)
    .select("key", "value", "headers")
)
query = (
    bills.writeStream.format("chronoline_log")
    .option("log", LOG)
    .option("topic", "spark-bills")
    .option("checkpointLocation", CHECKPOINT)
    .trigger(availableNow=True)  # ends after the current events; without it, it runs forever
    .start()
)
query.awaitTermination()
with Log(LOG) as log:
    print(f"{sum(head.next_sequence for head in log.heads('spark-bills'))} bills")
spark.stop()
