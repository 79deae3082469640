"""`labs watch`: the progress of a run, seen from another process."""
