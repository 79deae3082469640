"""The results store, and what is made of it: tables and plots."""
