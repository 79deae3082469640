"""`labs watch`: a running run, from outside."""
