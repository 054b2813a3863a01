"""The history of a flow: lag, rates, safe time and events of a day, for the charts of REST."""
