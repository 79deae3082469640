"""`labs report`: all results on one page."""
