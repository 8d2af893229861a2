"""``python -m anyshape``: the command line."""

from anyshape.cli import main

if __name__ == "__main__":
    main()
