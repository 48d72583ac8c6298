"""Asking for subjects before anybody misses them: which, when, and how many in a day."""
