"""`python -m edge` is the `edge` command."""

from edge.cli import main

if __name__ == "__main__":
    main()
