"""`labs grade`: from a folder of hand-ins to a table of points, feedback, and a page on the class."""
