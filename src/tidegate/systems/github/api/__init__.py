"""HTTP routes of GitHub: statistics of users."""
