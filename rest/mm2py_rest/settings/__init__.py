"""What REST changes: settings, pauses and offsets of a flow, checked before they are stored."""
