"""Kinds of snapshots that come with the house."""
