"""How the marketplace is started in a process of its own."""

COMMAND = ("-c", "from tidegate.app.cli import main; main()", "simulate", "marketplace", "--json")
