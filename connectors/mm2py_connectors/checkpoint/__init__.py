"""The checkpoint connector of a flow: where consumer groups may continue on the target."""
