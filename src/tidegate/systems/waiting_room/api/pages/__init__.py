"""The waiting page: what visitors see at `/rooms/{room}`."""
