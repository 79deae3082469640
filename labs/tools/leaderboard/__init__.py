"""`labs leaderboard`: the results folders of a class, ranked by scaling efficiency."""
