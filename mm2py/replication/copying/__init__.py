"""The state machine that copies one partition. Pure."""
