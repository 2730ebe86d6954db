"""`python -m holdfast.worker` is `holdfast worker`."""

from holdfast.cli.main import main

if __name__ == "__main__":
    import sys

    main(["worker", *sys.argv[1:]], prog_name="python -m holdfast")
