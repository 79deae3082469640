"""Optional tools: one folder each, whose `command.py` is a subcommand of `labs`. They do not import each other."""
