"""What can be left out: a folder each, whose `command.py` is a subcommand of `labs`. Tools do not import each other."""
