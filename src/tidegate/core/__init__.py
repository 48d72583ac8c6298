"""Values and arithmetic; no input, no output."""
