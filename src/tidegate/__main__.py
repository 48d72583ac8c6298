"""`python -m tidegate`: the same as `tidegate`."""

from tidegate.app.cli import main

if __name__ == "__main__":
    main()
