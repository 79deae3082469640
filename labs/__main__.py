"""`python -m labs` is the command `labs`."""

from labs.cli import main

main()
