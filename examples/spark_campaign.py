"""A campaign on Spark: a DataFrame of customers becomes messages, each with its due time.

    python examples/spark_campaign.py [STORE-URL]

Needs `pip install 'chronoline[spark]'` and Java 17+. Run it twice: the second time nothing is added.
"""

import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import chronoline.spark
from chronoline.runtime.clock import SystemClock
from chronoline.store import open_store

STORE = sys.argv[1] if len(sys.argv) > 1 else "sqlite:///campaign.db"

with open_store(STORE) as store:
    store.ensure_topic("greetings", now_ms=SystemClock().now_ms())

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = SparkSession.builder.master("local[2]").config("spark.log.level", "ERROR").getOrCreate()
chronoline.spark.register(spark)

# 10,000 customers, whose greetings are due over an hour, from 2030 on.
city = F.when(F.col("id") % 2 == 0, "Rome").otherwise("Oslo")
customers = spark.range(10_000).withColumn("city", city)
greetings = customers.select(
    F.concat(F.lit("greeting-2030-"), "id").alias("id"),
    F.expr("timestamp'2030-01-01 09:00:00Z' + make_dt_interval(0, 0, 0, id % 3600)").alias("due"),
    F.col("city").alias("key"),
    F.concat(F.lit("Good morning, customer "), "id").alias("value"),
)
campaign = greetings.write.format("chronoline").option("store", STORE).option("topic", "greetings")
campaign.mode("append").save()

# A second greeting to the same customer is refused, and kept with the reason.
others = greetings.limit(2).withColumn("value", F.lit("Something else"))
again = others.write.format("chronoline").option("store", STORE).option("topic", "greetings")
again.option("refusals", "refused-greetings").mode("append").save()
refused = spark.read.parquet("refused-greetings").select("id", "refusal").distinct()

timeline = spark.read.format("chronoline").option("store", STORE).option("topic", "greetings")
waiting = timeline.option("status", "waiting").schema("id STRING, key BINARY").load()
for city, count in sorted(waiting.groupBy(F.decode("key", "UTF-8")).count().collect()):
    print(f"{count:,} greetings wait for {city}")
for message_id, reason in sorted(refused.collect()):
    print(f"{message_id} was refused: {reason}")
spark.stop()
