"""`python -m orderflow` and the `orderflow` command."""

from orderflow.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
