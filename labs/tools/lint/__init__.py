"""`labs lint`; its rules are in `labs.lint`."""
