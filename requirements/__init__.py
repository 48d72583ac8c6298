"""Pinned requirements, and the script that installs them."""
