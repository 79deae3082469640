"""Code exercises: functions that students write, and scripts with a planted bug; a module per lab with its `TASKS`.

A function is graded by properties that it must have, on inputs from the smallest up, so that the example in a hint is
the smallest that fails. A hint names the property, never the right result. Imports no TensorFlow.
"""
