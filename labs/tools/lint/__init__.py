"""`labs lint`; its rules are in `labs.course.plausibility`."""
