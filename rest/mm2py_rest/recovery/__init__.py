"""The recoveries that this REST process carries out."""
