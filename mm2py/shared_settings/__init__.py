"""The settings of a flow that its workers share: stored on the target, followed while they run."""
