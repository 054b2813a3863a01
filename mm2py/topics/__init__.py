"""Topic names: which topics a flow copies, and what they are called on the target. All pure."""
