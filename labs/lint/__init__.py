"""`labs lint`: plausibility checks of results, recorded or typed."""
