"""`python -m chronoline` is the `chronoline` command."""

from chronoline.cli.main import run

if __name__ == "__main__":
    run()
