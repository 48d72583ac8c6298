"""Tools that all commands share: lazy groups, settings and event loop, tables, wording."""
