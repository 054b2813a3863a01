"""Configuration: from a properties file to typed settings of one flow."""
