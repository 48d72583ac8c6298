"""What is popular: members of a board, ranked by day, week and month. `ranking.Ranking` is the door."""
