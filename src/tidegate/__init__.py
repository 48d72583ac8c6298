"""Tidegate stands between crowds and quotas."""

__version__ = "0.1.0"
