"""Models: functions that return an uncompiled keras.Model; pictures come in as uint8."""
