"""`python -m tidegate_simulators`."""

from tidegate_simulators.command_line import main

if __name__ == "__main__":
    main()
