"""Models: functions that return an uncompiled keras.Model; images are uint8."""
