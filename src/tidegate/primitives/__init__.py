"""The primitives: one folder each, with its class, its keys and its Lua."""
