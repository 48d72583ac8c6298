"""Commands of GitHub."""
