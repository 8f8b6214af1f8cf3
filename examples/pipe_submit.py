"""The `chronoline` command for spark-submit, which starts files:

spark-submit --master spark://host:7077 pipe_submit.py pipe run --config pipe.toml
"""

from chronoline.cli.main import run

if __name__ == "__main__":
    run()
