"""The flight recorder: what a worker decided and met, kept for a day, so that ``mm2py why --at`` answers later."""
