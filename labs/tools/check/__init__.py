"""Checks whether this machine can run the labs (`labs check`): short functions, by subject, that return findings."""
