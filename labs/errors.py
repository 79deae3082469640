"""The one exception that is shown to a student as a single line."""


class LabError(Exception):
    """A mistake or an obstacle, told in one line that names the cause and the cure."""
