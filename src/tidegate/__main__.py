"""`python -m tidegate`: the same as `tidegate`."""

from tidegate.cli import main

if __name__ == "__main__":
    main()
