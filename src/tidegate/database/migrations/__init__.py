"""The schema's history: one file in `versions/` for each change, in order. There is no way back but a backup."""
