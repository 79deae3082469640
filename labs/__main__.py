"""`python -m labs` is the command `labs`."""

from labs.cli.commands import main

main()
