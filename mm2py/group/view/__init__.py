"""What the records of the control log mean: members, owners, releases and claims. Pure."""
